"""The learning-rate schedule advances in iterations whose optimizer step was skipped.

## How it shows
`UserWarning: Detected call of lr_scheduler.step() before optimizer.step()`; a short run whose warm-up is over before
the first real update, and which ends with fewer updates than the schedule assumes.

## Why it happens
`scaler.step` skips the optimizer step when it finds inf, in particular in the first iterations, while the scale is
searched for. `scheduler.step()` does not know.

## Fix
```diff
+ scale = scaler.get_scale()
  scaler.step(optimizer)
  scaler.update()
- scheduler.step()
+ if scaler.get_scale() >= scale:
+     scheduler.step()
```

## What would refute it
The schedule counts epochs or samples on purpose, not updates.

## Source
[pytorch #44511](https://github.com/pytorch/pytorch/issues/44511);
[transformers #11106](https://github.com/huggingface/transformers/issues/11106)
"""

from __future__ import annotations

from ampscope.diagnose.calls import Call, of_kind
from ampscope.diagnose.finding import Change
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, percent


@rule("AMP112", "scheduler-ignores-skips", "warning", needs=("calls", "scaler"))
def scheduler_ignores_skips(rule: Rule, s: Signals) -> Found:
    """Scheduler steps right after skipped optimizer steps, often enough to bend the schedule."""
    for history in s.histories:
        advances = [c for c in of_kind(history, "scheduler.step") if not c.has("initial")]
        lost = _lost(history)
        asked = sum(1 for c in history if c.call == "scaler.step" and c.error is None)
        per_step = len(advances) * 2 >= asked
        # Every skipped step is recorded, and of the others perhaps a few only: their number is in `scaler`.
        rank, proc = history[0].rank, history[0].proc
        taken = len(s.scaler[s.scaler["rank"].eq(rank) & s.scaler["proc"].fillna(0).eq(proc)])
        advanced = len(advances) * max(1.0, taken / asked if asked else 1.0)
        share = len(lost) / advanced if advanced else 0.0
        if len(lost) < s.policy.scheduler_lost or share < s.policy.scheduler_lost_share or not per_step:
            continue
        for _, calls in by_place(lost, lambda c: c):
            yield rule.finding(
                at(calls),
                f"{calls[0].object} advanced {count(len(calls), 'time')} in iterations whose optimizer step was "
                f"skipped: {percent(share)} of its {round(advanced)} steps moved the learning rate with no update.",
                "Step the scheduler only when the optimizer stepped (the scale did not fall).",
                evidence=(
                    s.measure("skipped steps", "SELECT count(*) FROM scaler WHERE skipped", "steps"),
                    s.measure(
                        "scheduler steps",
                        "SELECT count(*) FROM calls WHERE call = 'scheduler.step' AND "
                        "coalesce(detail, '') NOT LIKE '%initial%'",
                        "calls",
                    ),
                ),
                falsifier="The schedule is meant to count iterations, not updates.",
                change=Change(
                    diff="+ scale = scaler.get_scale()\n  scaler.step(optimizer)\n  scaler.update()\n"
                    "- scheduler.step()\n+ if scaler.get_scale() >= scale:\n+     scheduler.step()"
                ),
            )


def _lost(stream: tuple[Call, ...]) -> list[Call]:
    """Scheduler steps whose optimizer was skipped the last time it was asked to step."""
    skipped: dict[str | None, bool] = {}
    last: str | None = None
    lost = []
    for c in stream:
        if c.call == "scaler.step" and c.error is None:
            last = c.target
            skipped[last] = c.has("skipped")
        elif c.call == "optimizer.step" and not c.has("via_scaler"):
            last = c.object
            skipped[last] = False
        elif c.call == "scheduler.step" and not c.has("initial") and skipped.get(c.target or last, False):
            lost.append(c)
    return lost
