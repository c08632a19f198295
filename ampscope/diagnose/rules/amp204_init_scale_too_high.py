"""The first steps are all skipped because the loss scale starts far above where it settles.

## How it shows
The run begins with a row of skipped steps, one per halving of the scale, and is healthy after that.

## Why it happens
The default `init_scale` of 65536 suits a mean loss. A sum over a batch or over pixels, or a loss multiplied by a
constant, is larger by that factor, and the scaler finds its way down one skipped step at a time. In a long run
that is nothing; in a short one, or after every restart, it is training that did not happen.

## Fix
```diff
- scaler = torch.amp.GradScaler()
+ scaler = torch.amp.GradScaler(init_scale=2.0**9)
```
Or reduce the loss with a mean.

## What would refute it
With the lower init_scale the first steps are skipped just the same.

## Source
[torch.amp.GradScaler](https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler)
"""

from __future__ import annotations

from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.scales import ScalePath
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.symptoms import SKIPS
from ampscope.diagnose.text import percent, pow2


@rule("AMP204", "init-scale-too-high", "info", needs=("scaler",), explains=(SKIPS,), depth=MECHANISM)
def init_scale_too_high(rule: Rule, s: Signals) -> Found:
    """A leading row of skips that ends, in a run so short that it matters; a warning when it took a real share."""
    policy = s.policy
    for path in s.scale_paths:
        settled = path.settled_scale
        skips, updates = path.leading_skips, len(path.updates)
        short = updates <= policy.init_high_run
        if (
            settled is None
            or settled < policy.tiny_scale
            or skips < policy.init_high_skips
            or (skips > policy.warmup_skips and not path.begun_too_high(policy))
            or not short
        ):
            continue
        init = s.first_call("scaler.init", path.scaler)
        place = (init.file, init.line) if init is not None else (None, None)
        where = f"rank = {path.rank} AND proc = {path.proc} AND scaler = '{path.scaler}'"
        yield rule.finding(
            Where(file=place[0], line=place[1], steps=(path.updates[0].step, path.updates[skips - 1].step)),
            f"The first {skips} steps of {updates} ({percent(skips / updates)}) were skipped while the loss scale "
            f"came down from {pow2(path.updates[0].scale)} to {pow2(settled)}, where it settled.",
            f"Start there: GradScaler(init_scale={pow2(settled)}), or use a mean instead of a sum in the loss.",
            severity="warning" if _matters(s, path) else "info",
            evidence=(
                s.measure("skipped", f"SELECT count(*) FROM scaler WHERE found_inf AND {where}", "steps"),
                s.measure(
                    "scale at the start", f"SELECT first(scale ORDER BY segment) FROM scaler WHERE {where}"
                ),
                s.measure(
                    "scale of the first good step",
                    f"SELECT first(scale ORDER BY segment) FROM scaler WHERE NOT found_inf AND {where}",
                ),
            ),
            falsifier="With the lower init_scale the first steps are skipped just the same.",
            change=Change(set={"scaler.init_scale": f"{settled:g}"}, diff=f"+ init_scale={settled:g}"),
        )


def _matters(s: Signals, path: ScalePath) -> bool:
    """Whether the leading skips of all scalers of this process took a real share of its steps: a script may
    build a scaler per job."""
    paths = [p for p in s.scale_paths if (p.rank, p.proc) == (path.rank, path.proc)]
    return sum(p.leading_skips for p in paths) >= s.policy.init_high_share * sum(
        len(p.updates) for p in paths
    )
