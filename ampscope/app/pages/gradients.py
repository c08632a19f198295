"""Gradients: heat map, one tensor's histogram with format bands, what-if scale and format, window of safe scales."""

from __future__ import annotations

from typing import Any

from ampscope.app import explorer, whatif
from ampscope.app.blocks import notice
from ampscope.app.page import Page
from ampscope.app.queries import tensors
from ampscope.app.runs import Context

EXPLORER = explorer.Explorer(
    roles=("grad", "activation_grad"),
    stats=("flushed", "subnormal", "amax"),
    empty="No gradient was read in this run: it needs a step sampled at the range level (`--every 1`).",
)


def _window(context: Context) -> Any:
    which = EXPLORER.chosen(context)
    spectra = tensors.spectra(context.src, which.role, which.stage)
    if not any(any(s.counts) for s in spectra):
        return _no_window(spectra)
    through = whatif.seen_through(context, which.role)
    floor, lost = whatif.observed_floor(context)
    data = whatif.window_data(spectra, whatif.recorded_scale(context), through, floor, lost)
    return whatif.window_view(data)


def _no_window(spectra: list[tensors.Spectrum]) -> Any:
    if not spectra:
        why = "Every step that was sampled was skipped; what a skipped step holds belongs to a scale that was given up."
    elif any(s.nonfinite for s in spectra):
        why = "Of the gradients that were read, none is finite and not zero."
    else:
        why = "Every gradient that was read is zero."
    return notice("No loss scale can be judged", why)


PAGE = Page(
    slug="gradients",
    title="Gradients",
    icon="gradient",
    lead="How large the gradients are, what float16 does to them, and what another loss scale or format would do.",
    parts=explorer.parts(EXPLORER, _window),
    controls=EXPLORER.top_controls,
    skeleton_keys=("of",),
)
