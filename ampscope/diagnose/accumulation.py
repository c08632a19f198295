"""Tells a lost `update()` from an accumulation window: both look like two unscale_ in a row to GradScaler."""

from __future__ import annotations

from ampscope.diagnose.calls import Call
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.windows import Breach


def stream_of(s: Signals, call: Call) -> tuple[Call, ...]:
    """The stream that a call belongs to."""
    return next(st for st in s.streams if call.index < len(st) and st[call.index] is call)


def between(s: Signals, breach: Breach) -> tuple[Call, ...]:
    """The calls between the earlier call that a breach collides with and the breach."""
    if breach.prior is None:
        return ()
    return stream_of(s, breach.call)[breach.prior.index + 1 : breach.call.index]


def backwards_between(s: Signals, breach: Breach) -> int:
    return sum(c.call == "backward" for c in between(s, breach))


def opened_iteration(s: Signals, breach: Breach) -> bool:
    """Whether a new iteration began between the two: then the update() of the earlier one is missing.

    It did when gradients were cleared before the next backward. Where nothing was cleared, the windows before
    decide: a loop that always stepped after as few backwards as lie here accumulates nothing.
    """
    calls = between(s, breach)
    names = [c.call for c in calls]
    if "backward" not in names:
        return False
    if "optimizer.zero_grad" in names[: names.index("backward")]:
        return True
    earlier = [
        w
        for w in s.windows
        if w.opt == breach.call.target and w.step is not None and w.step.index < breach.call.index
    ]
    micro = [len(w.backwards) for w in earlier]
    return bool(micro) and max(micro) <= names.count("backward")
