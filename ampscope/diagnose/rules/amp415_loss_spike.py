"""The loss jumps and stays high for a while, with attention or output logits growing: a spike of the training itself.

## How it shows
A smooth loss curve leaps to several times its value within a step or two, without NaN, and comes back slowly or not
at all. Outputs of a projection or of the head have grown at the same time.

## Why it happens
Logits that grow make softmax sharp and its gradients large; one large update then throws the weights out of the
region in which they were trained. A learning rate that is too high for the moment (end of warm-up, a restart, a new
data source) does the same. Whether precision took part is told by what was found beside it: an overflow or lost
gradients at that time would be reported on their own.

## Fix
```diff
+ loss = loss + 1e-4 * torch.logsumexp(logits.float(), -1).square().mean()    # z-loss
- for group in optimizer.param_groups: group["lr"] = 3.0
```
z-loss or query-key normalisation against growing logits; a lower learning rate or a longer warm-up; clip the
(unscaled) gradients.

## What would refute it
The same steps in float32 show no jump.

## Source
[Chowdhery et al., PaLM, section 5.1 (loss spikes) and z-loss](https://arxiv.org/abs/2204.02311);
[Wortsman et al., Small-scale proxies for large-scale Transformer training instabilities](https://arxiv.org/abs/2309.14322)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ampscope.diagnose.course import Array, Course, courses
from ampscope.diagnose.finding import Where
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import at_module, sci


@dataclass(frozen=True)
class Jump:
    """A loss that left its course at `place`; `usual` is its median before."""

    place: int
    usual: float
    height: float
    length: int


@rule("AMP415", "loss-spike", "warning", needs=("steps",), depth=MECHANISM)
def loss_spike(rule: Rule, s: Signals) -> Found:
    """A jump of a finite loss over several steps together with a module whose output grew."""
    for course in courses(s):
        jump = find_jump(s, course)
        if jump is None:
            continue
        step = int(course.steps[jump.place])
        last = int(course.steps[min(len(course.steps), jump.place + jump.length) - 1])
        grown = _grown_module(s, course, step, last)
        if grown is None:
            continue
        module, before, after = grown
        rate = _rate_phrase(s, course, jump)
        yield rule.finding(
            Where(module=module, steps=(step, last)),
            f"At step {step} the loss jumped from {sci(jump.usual)} to {sci(jump.height)} and stayed high for "
            f"{jump.length} steps; the largest output of {at_module(module)} grew from {sci(before)} to "
            f"{sci(after)}.{rate} Nothing "
            "overflowed, so half precision is not to blame for the jump.",
            "Lower the learning rate at that point or warm it up longer, clip the unscaled "
            "gradients, and hold the logits "
            "down with a z-loss or a normalisation of queries and keys.",
            evidence=(
                s.measure(
                    "loss at the jump", f"SELECT max(loss) FROM steps WHERE step BETWEEN {step} AND {last}"
                ),
                s.measure("median loss before", f"SELECT median(loss) FROM steps WHERE step < {step}"),
                s.measure(
                    "learning rate at the jump",
                    f"SELECT max(lr) FROM steps WHERE step BETWEEN {step - 1} AND {step}",
                ),
            ),
            falsifier="The same steps in float32 show no jump.",
        )


def find_jump(s: Signals, course: Course) -> Jump | None:
    """The highest jump of a loss that was finite before and after; None when there is none."""
    policy = s.policy
    losses = course.losses
    window = policy.spike_window
    best: Jump | None = None
    for place in range(window // 2, len(losses)):
        before = losses[max(0, place - window) : place]
        before = before[np.isfinite(before)]
        if len(before) < window // 2 or not np.isfinite(losses[place]):
            continue
        usual, noise = float(np.median(before)), float(before.max())
        if usual <= 0.0 or losses[place] < max(policy.spike_ratio * usual, 2.0 * noise):
            continue
        if not np.isfinite(losses[place : place + window // 2]).all():
            break
        length = _length(losses, place, max(2.0 * usual, noise), window // 2)
        if length < policy.spike_length:
            continue
        jump = Jump(place, usual, float(losses[place : place + length].max()), length)
        if best is None or jump.height / jump.usual > best.height / best.usual:
            best = jump
    return best


def _length(losses: Array, place: int, high: float, window: int) -> int:
    """Steps up to the last high one of the next `window`; 1 when the loss came back at once and hardly rose again."""
    above = np.flatnonzero(losses[place : place + window] > high)
    together = len(above) > 1 and above[1] == 1
    return int(above[-1]) + 1 if together or len(above) > 2 else 1


def _grown_module(s: Signals, course: Course, step: int, last: int) -> tuple[str, float, float] | None:
    """(module, largest output before, largest after) of the module that grew most across the jump."""
    rows = s.tensors("activation")
    rows = rows[rows["rank"].eq(course.rank) & rows["amax"].notna() & rows["module"].notna()]
    rows = rows[np.isfinite(rows["amax"].astype(float))]
    best: tuple[str, float, float] | None = None
    for module, group in rows.groupby("module", sort=True):
        by_step = group.groupby("step", sort=True)["amax"].max()
        before = by_step[by_step.index < step].tail(6)
        # What is learnt after a jump grows too, but later.
        soon = step + s.policy.spike_seen_within
        after = by_step[(by_step.index >= step) & (by_step.index <= max(last, soon))]
        if before.empty or after.empty or before.max() <= 0.0:
            continue
        if after.index[0] > soon:
            # What the model gave when the loss jumped was not read: it may have grown by learning other targets.
            continue
        if after.index[0] == step and after.iloc[0] < s.policy.spike_at_once * float(before.max()):
            # The model still gave what it gave before: the targets changed, and it grows as it learns them.
            continue
        low, high = float(before.median()), float(after.max())
        if high < s.policy.spike_growth * float(before.max()):
            continue
        if best is None or high / low > best[2] / best[1]:
            best = str(module), low, high
    return best


def _rate_phrase(s: Signals, course: Course, jump: Jump) -> str:
    rates = s.steps[s.steps["rank"].eq(course.rank)]["lr"].to_numpy(dtype=float, na_value=np.nan)
    before = rates[max(0, jump.place - s.policy.spike_window) : max(1, jump.place - 1)]
    near = rates[max(0, jump.place - 2) : jump.place + 1]
    before, near = before[np.isfinite(before)], near[np.isfinite(near)]
    if len(before) and len(near) and near.max() > 2.0 * np.median(before) > 0.0:
        return (
            f" The learning rate had risen from {sci(float(np.median(before)))} to {sci(float(near.max()))}."
        )
    return ""
