"""The loss scale is too low: gradients become zero in fp16 although there is room to scale them up.

## How it shows
A `GradScaler` is there and skips nothing, yet deep layers hardly train and the loss flattens out. Large parts of
the gradients are zero or subnormal, while the largest gradient is far below 65504.

## Why it happens
The scale grows only by `growth_factor` after `growth_interval` steps without overflow (2000 by default). A run
that starts at a low `init_scale`, or restarts at one, does not get to a useful scale before it ends.

## Fix
```diff
- scaler = torch.amp.GradScaler(init_scale=1.0)
+ scaler = torch.amp.GradScaler(init_scale=2.0**16)
```
A scale that is too high costs a few skipped steps at the start; one that is too low costs gradients in every step.

## What would refute it
At the recommended scale the share of zero gradients does not fall, or steps overflow.

## Source
[Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2](https://arxiv.org/abs/1710.03740);
[apex #45](https://github.com/NVIDIA/apex/pull/45)
"""

from __future__ import annotations

from dataclasses import replace

from ampscope.diagnose.families import UNDERFLOW
from ampscope.diagnose.finding import Abstain, Change
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.scales import ScalePath
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.starving import (
    flush_evidence,
    lost_phrase,
    room_phrase,
    scale_for,
    severity_of,
    starving,
    where_lost,
)
from ampscope.diagnose.text import pow2


@rule("AMP203", "loss-scale-too-low", "warning", needs=("scaler",), explains=UNDERFLOW)
def loss_scale_too_low(rule: Rule, s: Signals) -> Found:
    """Much of the gradients is flushed at the scale in force, and there are binades to spare."""
    if not s.underflow:
        yield Abstain("no fp16 gradient was sampled")
        return
    for path in s.scale_paths:
        yield from _judge(rule, s, path)


def _judge(rule: Rule, s: Signals, path: ScalePath) -> Found:
    policy = s.policy
    sample = starving(s, path.final_scale)
    if sample is None or (sample.headroom is not None and sample.headroom < policy.starved_headroom_binades):
        return
    better = scale_for(sample, policy.scale_slack_binades, policy.largest_advised_scale)
    overflowed = [u.scale for u in path.skips]
    if overflowed:
        # A scale that was tried and overflowed is no advice: what overflows there is the cause then.
        better = min(better, min(overflowed) / 2)
    if better <= path.final_scale:
        return
    init = s.first_call("scaler.init", path.scaler)
    where = replace(where_lost(s, None), module=where_lost(s, sample.worst).module)
    if init is not None:
        where = replace(where, file=init.file, line=init.line)
    yield rule.finding(
        where,
        f"The loss scale is {pow2(path.final_scale)}, at which {lost_phrase(sample)}, while {room_phrase(sample)}.",
        f"Raise the loss scale: init_scale={pow2(better)} keeps {policy.scale_slack_binades:g} binades of room.",
        severity=severity_of(s, sample),
        evidence=[
            s.measure("loss scale at the end", _final_scale_query(path)),
            *flush_evidence(s, sample),
        ],
        falsifier="At the higher scale the share of gradients that become zero does not fall, or steps overflow.",
        change=Change(set={"scaler.init_scale": f"{better:g}"}, diff=f"+ init_scale={better:g}"),
    )


def _final_scale_query(path: ScalePath) -> str:
    where = f"rank = {path.rank} AND proc = {path.proc} AND scaler = '{path.scaler}'"
    return f"SELECT last(coalesce(scale_after, scale) ORDER BY segment) FROM scaler WHERE {where}"
