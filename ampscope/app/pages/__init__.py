"""The pages of the dashboard, one file each. To add one: a file with a `PAGE`, and its name here."""

from __future__ import annotations

from ampscope.app.page import Page
from ampscope.app.pages import (
    activations,
    compare,
    findings,
    gradients,
    ops,
    overview,
    run,
    scale,
    timing,
    updates,
)

PAGES: tuple[Page, ...] = tuple(
    module.PAGE
    for module in (overview, findings, scale, gradients, activations, updates, ops, timing, compare, run)
)
"""In the order of the navigation."""
