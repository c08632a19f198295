"""A restart restores model and optimizer but not the GradScaler: the scale is searched for again, by overflowing.

## How it shows
Right after every resume from a checkpoint a few steps are skipped and the loss scale starts again at 65536. On
preemptible machines that adds up.

## Why it happens
The loss scale is state, like the moments of the optimizer, and belongs into the checkpoint.

## Fix
```diff
- torch.save({"model": model.state_dict(), "optim": optimizer.state_dict()}, path)
+ torch.save({"model": model.state_dict(), "optim": optimizer.state_dict(), "scaler": scaler.state_dict()}, path)
  ...
+ scaler.load_state_dict(checkpoint["scaler"])
```

## What would refute it
With the scaler restored the first steps after a resume are skipped just the same.

## Source
[torch.amp examples: saving and resuming](https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html);
[transformers #11663](https://github.com/huggingface/transformers/pull/11663)
"""

from __future__ import annotations

from collections.abc import Iterator

from ampscope.diagnose.calls import Call, of_kind
from ampscope.diagnose.finding import Change
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.scales import ScalePath
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.symptoms import SKIPS
from ampscope.diagnose.text import count, pow2


@rule("AMP113", "scaler-state-not-restored", "warning", needs=("calls", "scaler"), explains=("AMP204", SKIPS))
def scaler_state_not_restored(rule: Rule, s: Signals) -> Found:
    """An optimizer that was loaded before its first step, a scaler that was not, and skips right after."""
    restarts = [r for history in s.histories for r in _restarts(s, history)]
    for _, found in by_place(restarts, lambda pair: pair[0]):
        path = found[0][1]
        lost = sum(p.leading_skips for _, p in found)
        yield rule.finding(
            at([c for c, _ in found]),
            f"After {count(len(found), 'restart')} the optimizer's state was loaded and the GradScaler's was not: the "
            f"scale began at {pow2(path.updates[0].scale)} again and {count(lost, 'step')} were skipped to come back "
            f"to {pow2(path.settled_scale)}.",
            "Save `scaler.state_dict()` with the checkpoint and load it again.",
            evidence=(
                s.measure(
                    "optimizer.load_state_dict calls",
                    "SELECT count(*) FROM calls WHERE call = 'optimizer.load_state_dict'",
                    "calls",
                ),
                s.measure(
                    "scaler.load_state_dict calls",
                    "SELECT count(*) FROM calls WHERE call = 'scaler.load_state_dict'",
                    "calls",
                ),
                s.measure("skipped steps", "SELECT count(*) FROM scaler WHERE skipped", "steps"),
            ),
            falsifier="With the scaler restored the first steps are skipped just the same.",
            change=Change(diff='+ scaler.load_state_dict(checkpoint["scaler"])'),
        )


def _restarts(s: Signals, stream: tuple[Call, ...]) -> Iterator[tuple[Call, ScalePath]]:
    """(optimizer.load_state_dict, path of the scaler that began after it) for every restart that cost skips."""
    steps = of_kind(stream, "scaler.step")
    for path in s.scale_paths:
        own = [c for c in steps if c.object == path.scaler]
        same = bool(stream) and (stream[0].rank, stream[0].proc) == (path.rank, path.proc)
        if not own or not same or path.leading_skips < s.policy.restart_skips or path.settled_scale is None:
            continue
        before = [c for c in steps if c.index < own[0].index]
        start = before[-1].index if before else -1
        opening = stream[start + 1 : own[0].index]
        loads = [c for c in of_kind(opening, "optimizer.load_state_dict") if c.error is None]
        restored = any(c.object == path.scaler for c in of_kind(opening, "scaler.load_state_dict"))
        if loads and not restored:
            yield loads[0], path
