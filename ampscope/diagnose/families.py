"""Names for groups of codes and symptoms that rules list as what follows from them. No logic."""

from __future__ import annotations

from ampscope.diagnose.symptoms import BAD_LOSS, BAD_WEIGHTS, CRASH, SCALE_FALL, SKIPS

UNDERFLOW = ("AMP301", "AMP305", "AMP504", "AMP506")
"""What follows when gradients reach the optimizer too small."""

SKIPPING = ("AMP121", "AMP201", "AMP204", "AMP301", "AMP112", SKIPS, SCALE_FALL)
"""What follows when gradients overflow at every scale: at the low scale that is left, others underflow."""

FORWARD_OVERFLOW = (
    "AMP302", "AMP303", "AMP401", "AMP402", "AMP403", "AMP404", "AMP408", "AMP409", "AMP410", "AMP413",
)  # fmt: skip
"""Arithmetic that breaks once weights or activations have grown too large."""

RUINED = ("AMP505", "AMP415", "AMP417", "AMP411", BAD_LOSS, BAD_WEIGHTS)
"""What is seen of a run whose weights were driven away."""

CRASHED = (CRASH,)
