"""Training in fp16 without loss scaling: gradients below 6e-8 become zero, those below 6e-5 lose bits.

## How it shows
The loss stops improving early, without NaN, inf or any warning, where float32 goes on. Zeros fill the gradients
of layers far from the loss.

## Why it happens
fp16 has 5 exponent bits: the smallest number is 2^-24, about 6e-8. Gradients of a mean loss over a batch are
often smaller. Multiplying the loss by a large scale moves them up into the range; `GradScaler` does that and
takes it out again before the step. bfloat16 has the exponent range of float32 and needs no scaling.

## Fix
```diff
+ scaler = torch.amp.GradScaler()
  with torch.autocast(device, dtype=torch.float16):
      loss = criterion(model(x), y)
- loss.backward()
- optimizer.step()
+ scaler.scale(loss).backward()
+ scaler.step(optimizer)
+ scaler.update()
```
Or `dtype=torch.bfloat16` where the device computes in it (Ampere and later, recent CPUs, Apple Silicon).

## What would refute it
With a scaler the share of zero gradients and the loss curve stay as they are. A note without measured loss is
no fault: gradients that are large enough need no scaling.

## Source
[Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2](https://arxiv.org/abs/1710.03740)
"""

from __future__ import annotations

from ampscope.diagnose.advice import or_bf16
from ampscope.diagnose.families import UNDERFLOW
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.starving import flush_evidence, lost_phrase, severity_of, starving, where_lost

_DIFF = """\
+ scaler = torch.amp.GradScaler()
- loss.backward()
- optimizer.step()
+ scaler.scale(loss).backward()
+ scaler.step(optimizer)
+ scaler.update()"""


@rule("AMP115", "fp16-without-scaler", "warning", needs=("steps",), explains=UNDERFLOW)
def fp16_without_scaler(rule: Rule, s: Signals) -> Found:
    """fp16 in training, no enabled scaler and no scaling by hand. How bad it is, the measured underflow says."""
    if "float16" not in s.training_dtypes or s.scaler_used or s.scales_by_hand:
        return
    backward = s.first_call("backward")
    file, line = backward.place if backward is not None else (None, None)
    sample = starving(s, None, worst=True)
    first, last = int(s.steps["step"].min()), int(s.steps["step"].max())
    advice = or_bf16(s, "Scale the loss with torch.amp.GradScaler")
    if sample is None:
        yield rule.finding(
            Where(file=file, line=line, steps=(first, last)),
            "Training runs in fp16 without loss scaling. No loss of gradients was measured so far; it comes as soon "
            "as they shrink below 6e-8.",
            f"{advice}.",
            severity="info",
            falsifier="Gradients stay above 6e-5 throughout.",
            change=Change(diff=_DIFF),
        )
        return
    yield rule.finding(
        Where(module=where_lost(s, sample.worst).module, file=file, line=line, steps=(first, last)),
        f"Training runs in fp16 without loss scaling, and at step {sample.step} {lost_phrase(sample)}.",
        f"{advice}.",
        severity=severity_of(s, sample),
        evidence=flush_evidence(s, sample),
        falsifier="With a GradScaler the share of gradients that become zero does not fall.",
        change=Change(diff=_DIFF),
    )
