"""The training diverges: loss, weights and activations grow before anything overflows. Precision is innocent.

## How it shows
inf or NaN after some steps, blamed on fp16 or bfloat16. But the loss had grown tenfold and more before, and each
update is as large as the weights themselves.

## Why it happens
The learning rate (or the initial weights, or a recurrent gain) makes each step overshoot, so that everything grows
geometrically. Half precision overflows first because its range ends first; float32 follows a few steps later.

## Fix
```diff
- optimizer = torch.optim.SGD(model.parameters(), lr=1.2)
+ optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
```
Lower the learning rate, add a warm-up, clip the (unscaled) gradients, check the initialisation. Changing the
precision does not help: `ampscope run --precision fp32` shows it.

## What would refute it
In float32 with the same learning rate the loss falls.

## Source
[Goodfellow, Bengio and Courville, Deep Learning, section 8.2.4 (cliffs and exploding gradients)](https://www.deeplearningbook.org/)
"""

from __future__ import annotations

import math

import numpy as np

from ampscope.diagnose.course import Course, Moved, courses, growth, largest_by_step, weight_growth
from ampscope.diagnose.failing import BROKEN
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import sci


@rule(
    "AMP417",
    "divergence-not-precision",
    "critical",
    needs=("steps",),
    explains=(*BROKEN, "AMP405", "AMP407", "AMP412", "AMP304", "AMP501", "AMP502"),
    depth=ROOT,
)
def divergence_not_precision(rule: Rule, s: Signals) -> Found:
    """A loss and weights that grew many times over before the first step that failed."""
    for course in courses(s):
        found = _diverged(s, course)
        if found is None:
            continue
        ratio, rise, moved = found
        last = _last_step(course)
        first = int(course.steps[max(0, _end(course) - rise)])
        activations = largest_by_step(s.tensors("activation"), last)
        outputs = (
            f", the largest output of a module from {sci(activations.iloc[0])} to {sci(activations.iloc[-1])}"
            if len(activations) > 1
            else ""
        )
        where = f"rank = {course.rank} AND step <= {last}"
        yield rule.finding(
            Where(steps=(min(first, last), last)),
            f"Before anything overflowed, the loss grew {sci(ratio)} times, the weights "
            f"{sci(moved.growth)} times by updates "
            f"of up to {sci(moved.update)} times their size{outputs}. float32 diverges as well: "
            "precision is innocent.",
            "Lower the learning rate (or warm it up), clip the unscaled gradients, and check the "
            "initialisation; to be "
            "sure, run with `--precision fp32`.",
            evidence=(
                s.measure("first loss", f"SELECT arg_min(loss, segment) FROM steps WHERE {where}"),
                s.measure(
                    "last loss before the failure", f"SELECT arg_max(loss, segment) FROM steps WHERE {where}"
                ),
                s.measure(
                    "largest ratio of an update to its weight",
                    f"SELECT max(update_norm / nullif(weight_norm, 0)) FROM updates WHERE {where}",
                ),
                s.measure("learning rate", f"SELECT max(lr) FROM steps WHERE {where}"),
            ),
            falsifier="In float32 with the same learning rate the loss falls.",
            change=Change(diff="- lr\n+ lr / 10"),
        )


def _end(course: Course) -> int:
    return len(course.steps) if course.failed_at is None else course.failed_at


def _last_step(course: Course) -> int:
    return int(course.steps[max(0, _end(course) - 1)])


def _diverged(s: Signals, course: Course) -> tuple[float, int, Moved] | None:
    """(growth of the loss, steps it took, what the weights did) when both are those of a divergence."""
    policy = s.policy
    if course.failed_at is None or not len(course.before):
        return None
    failing = course.losses[course.failed_at]
    losses = np.append(course.before, failing) if math.isfinite(failing) else course.before
    ratio, rise = growth(losses, policy.spike_window)
    if ratio < policy.divergence_ratio or rise < 1:
        return None
    moved = weight_growth(s, course.rank, _last_step(course))
    if moved is None or (
        moved.growth < policy.divergence_weights and moved.update < policy.divergence_update
    ):
        return None
    return ratio, rise, moved
