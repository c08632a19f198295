"""Activations, and the other tensors of the forward: range and headroom over steps, one tensor's histogram."""

from __future__ import annotations

from ampscope.app import explorer
from ampscope.app.page import Page

EXPLORER = explorer.Explorer(
    roles=("activation", "weight", "buffer"),
    stats=("headroom",),
    empty="No activation was read in this run: it needs a step sampled at the range level (`--every 1`).",
)

PAGE = Page(
    slug="activations",
    title="Activations",
    icon="layers",
    lead="How close module outputs and weights come to the end of the format, in forward order.",
    parts=explorer.parts(EXPLORER),
    controls=EXPLORER.top_controls,
    skeleton_keys=("of",),
)
