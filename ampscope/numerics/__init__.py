"""Numbers about numbers: exponent histograms, formats, what-if, recipes and updates, as pure functions.

Usable in a notebook without a trace: `from ampscope.numerics import exponent_histogram, what_if, FORMATS`.
Imports nothing of ours, does no I/O, and leaves no trace in a tensor, in autograd or in a random state.
"""

from .binades import HIST_BINS, HIST_MAX, HIST_MIN, ExponentHistogram
from .formats import FORMATS, Format, of_dtype, round_to
from .histogram import exponent_histogram
from .loss_scale import LossScaleTrajectory, ScaleWindow, TensorWindow, scale_window, simulate_loss_scale
from .optimizer_state import (
    RoundingEvidence,
    SecondMoment,
    decay_absorbed,
    rounding_evidence,
    second_moment,
)
from .ranges import RangeSummary, range_summary
from .recipes import (
    RECIPES,
    Recipe,
    RecipeReport,
    delayed_scale,
    delayed_scales,
    evaluate,
    evaluate_both,
    quantise,
)
from .rows import Pending, StatsRows
from .updates import Update, UpdateStats, compare_update, compare_updates, subset_indices
from .what_if import WhatIf, what_if

__all__ = [
    "FORMATS",
    "HIST_BINS",
    "HIST_MAX",
    "HIST_MIN",
    "RECIPES",
    "ExponentHistogram",
    "Format",
    "LossScaleTrajectory",
    "Pending",
    "RangeSummary",
    "Recipe",
    "RecipeReport",
    "RoundingEvidence",
    "ScaleWindow",
    "SecondMoment",
    "StatsRows",
    "TensorWindow",
    "Update",
    "UpdateStats",
    "WhatIf",
    "compare_update",
    "compare_updates",
    "decay_absorbed",
    "delayed_scale",
    "delayed_scales",
    "evaluate",
    "evaluate_both",
    "exponent_histogram",
    "of_dtype",
    "quantise",
    "range_summary",
    "round_to",
    "rounding_evidence",
    "scale_window",
    "second_moment",
    "simulate_loss_scale",
    "subset_indices",
    "what_if",
]
