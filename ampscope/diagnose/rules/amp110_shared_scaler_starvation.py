"""One GradScaler serves several optimizers: the one that overflows sets the scale, and another's gradients vanish.

## How it shows
A GAN, or a model with several losses and optimizers: one part trains, the other stands still. The scale is low and
falls whenever the first part overflows.

## Why it happens
A scaler has one scale. `update()` halves it when any of its optimizers found inf. If the gradients of two
optimizers differ by more than fp16 has room for, no common scale suits both.

## Fix
```diff
- scaler = torch.amp.GradScaler()
+ scaler_d, scaler_g = torch.amp.GradScaler(), torch.amp.GradScaler()
```
One scaler per optimizer, or losses of similar size, or bfloat16 where the device computes in it.

## What would refute it
With a scaler of its own the starved optimizer loses as many gradients.

## Source
[torch.amp examples: multiple models, losses and optimizers](https://docs.pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers)
"""

from __future__ import annotations

from collections import Counter

from ampscope.diagnose.advice import or_bf16
from ampscope.diagnose.families import UNDERFLOW
from ampscope.diagnose.finding import Abstain, Change
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.scales import ScalePath
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.starving import flush_evidence, lost_phrase, severity_of, starving, where_lost
from ampscope.diagnose.symptoms import SCALE_FALL, SKIPS
from ampscope.diagnose.text import count, listed, pow2


@rule(
    "AMP110",
    "shared-scaler-starvation",
    "warning",
    needs=("scaler",),
    explains=("AMP201", "AMP203", "AMP204", "AMP205", "AMP302", *UNDERFLOW, SKIPS, SCALE_FALL),
)
def shared_scaler_starvation(rule: Rule, s: Signals) -> Found:
    """Nearly all overflows come from one optimizer, and another loses its gradients at the scale that results."""
    shared = [p for p in s.scale_paths if len({o for u in p.updates for o in u.opts}) > 1]
    if shared and not s.underflow:
        yield Abstain("no fp16 gradient was sampled")
        return
    for path in shared:
        yield from _judge(rule, s, path)


def _judge(rule: Rule, s: Signals, path: ScalePath) -> Found:
    guilty = Counter(o for u in path.updates for o in u.overflowed)
    total = sum(guilty.values())
    if total < s.policy.starver_overflows:
        return
    loud, overflows = guilty.most_common(1)[0]
    quiet = sorted(
        {o for u in path.updates for o in u.opts} - {o for o, n in guilty.items() if n > total * 0.1}
    )
    for opt in quiet:
        sample = starving(s, path.final_scale, opt=opt)
        if sample is None:
            continue
        yield rule.finding(
            where_lost(s, sample.worst),
            f"{listed([loud, opt])} share one GradScaler: {loud} caused {overflows} of {count(total, 'overflow')} and "
            f"brought the scale to {pow2(path.final_scale)}, at which {lost_phrase(sample)} for {opt}.",
            or_bf16(s, "Give each optimizer a GradScaler of its own, or rebalance the losses") + ".",
            severity=severity_of(s, sample),
            evidence=(
                s.measure(
                    f"overflows of {loud}", f"SELECT count(*) FROM scaler WHERE found_inf AND opt = '{loud}'"
                ),
                s.measure(
                    f"overflows of {opt}", f"SELECT count(*) FROM scaler WHERE found_inf AND opt = '{opt}'"
                ),
                *flush_evidence(s, sample),
            ),
            falsifier=f"With a scaler of its own {opt} loses as many gradients.",
            change=Change(
                diff="- scaler = torch.amp.GradScaler()\n+ scaler_a, scaler_b = GradScaler(), GradScaler()"
            ),
        )
