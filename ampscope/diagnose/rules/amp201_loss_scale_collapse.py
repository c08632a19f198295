"""The loss scale falls step after step, after it had been found, and nothing that was recorded explains why.

## How it shows
The scale halves again and again, far below where training began, and never comes back; most steps are skipped.
Below 1 it divides the gradients instead of multiplying them. At exactly 0 the weights turn NaN: 1/scale is inf,
zero gradients pass the check, and inf times 0 is NaN.

## Why it happens
Every non-finite gradient halves the scale. When the cause is not the scale (an overflow in the forward pass, a
division by zero, NaN in the data) no scale is low enough. This is a symptom; the watch level finds the op.

## Fix
```diff
- ampscope run train.py
+ ampscope run --watch train.py
```
Then repair the op that it names. Where the device computes in bfloat16, switching to it removes fp16's limits.

## What would refute it
The scale recovers and settles within a few times growth_interval.

## Source
[torch.amp.GradScaler](https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler)
"""

from __future__ import annotations

from ampscope.diagnose.advice import bf16_change, or_bf16
from ampscope.diagnose.families import RUINED
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.origins import origins_of
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.scales import ScalePath
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.symptoms import SCALE_FALL, SKIPS
from ampscope.diagnose.text import count, pow2


@rule(
    "AMP201",
    "loss-scale-collapse",
    "critical",
    needs=("scaler",),
    explains=("AMP121", "AMP112", "AMP301", SKIPS, SCALE_FALL, *RUINED),
    depth=SYMPTOM,
)
def loss_scale_collapse(rule: Rule, s: Signals) -> Found:
    """A fall by 2^6 that does not settle, after the scale had been found; or one to below 1, even where it settles
    there: gradients that overflow without a loss scale are no matter of the scale."""
    for path in s.scale_paths:
        fall = _fall(s, path)
        if fall is None:
            continue
        top, low, step = fall
        origins = [o for o in origins_of(s) if o.trouble.key[:2] == (path.rank, path.proc)]
        unknown = "" if origins else ", and nothing recorded says which op overflows"
        advice = (
            "Repair what overflows" if origins else "Record again with `ampscope run --watch` to catch the op"
        )
        where = f"rank = {path.rank} AND proc = {path.proc} AND scaler = '{path.scaler}'"
        yield rule.finding(
            Where(steps=(step, path.updates[-1].step)),
            f"The loss scale fell from {pow2(top)} to {pow2(low)} in {count(len(path.skips), 'skipped step')} of "
            f"{len(path.updates)}{unknown}.",
            or_bf16(s, advice) + ".",
            severity="warning" if step == path.updates[0].step and path.settled else "critical",
            evidence=(
                s.measure(
                    "lowest scale", f"SELECT min(coalesce(scale_after, scale)) FROM scaler WHERE {where}"
                ),
                s.measure("highest scale", f"SELECT max(scale) FROM scaler WHERE {where}"),
                s.measure("skipped", f"SELECT count(*) FROM scaler WHERE found_inf AND {where}", "steps"),
            ),
            falsifier="The scale recovers and settles.",
            change=Change(set=bf16_change(s)),
        )


def _fall(s: Signals, path: ScalePath) -> tuple[float, float, int] | None:
    policy = s.policy
    first = path.updates[0]
    if path.leading_skips > policy.warmup_skips and not path.begun_too_high(policy):
        return first.scale, path.updates[path.leading_skips - 1].scale_after, first.step
    if not path.settled:
        low = path.final_scale
        return (first.scale, low, first.step) if low < policy.tiny_scale <= first.scale else None
    if path.settled_scale is not None and path.settled_scale < policy.tiny_scale <= first.scale:
        return first.scale, path.settled_scale, first.step
    top, low, step = path.deepest_fall
    ran_away = low < policy.tiny_scale <= top
    if ran_away or (top >= low * 2**policy.collapse_binades and not _settles(s, path, low)):
        return top, low, step
    return None


def _settles(s: Signals, path: ScalePath, low: float) -> bool:
    """Whether the scale held after its lowest point: then it was found anew, as after a change of the data."""
    at = next(i for i, u in enumerate(path.updates) if u.scale_after == low)
    after = path.updates[at + 1 :]
    return len(after) >= s.policy.settled_steps and not any(
        u.found_inf for u in after[: s.policy.settled_steps]
    )
