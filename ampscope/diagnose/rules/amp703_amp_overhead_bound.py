"""AMP brings no speed here: small ops, casts and launches take the time, not the arithmetic.

## How it shows
The step is as slow with autocast as without, or slower. The model is small, or its batches are; the profile holds many
short ops.

## Why it happens
Half precision makes large matrix products faster. A product of 16 by 24 by 24 takes less time than to dispatch it, and
autocast adds a cast for every input and weight. Most CPUs have no fp16 arithmetic at all, so that small fp16 products
are slower than float32 ones. On a GPU the host cannot launch kernels as fast as they run.

## Fix
```diff
- with torch.autocast(device, dtype=torch.float16):
+ with torch.autocast(device, dtype=torch.float16, enabled=False):
```
Or give it more to do: larger batches, wider layers, `torch.compile` to merge the small ops.

## What would refute it
With autocast off the step takes longer.

## Source
[pytorch #118499](https://github.com/pytorch/pytorch/issues/118499), [apex #297](https://github.com/NVIDIA/apex/issues/297)
"""

from __future__ import annotations

from ampscope.diagnose.finding import Abstain, Change, Evidence, Finding, Where
from ampscope.diagnose.pace import Pace, compared, paces_of, plain_steps
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import percent, sci
from ampscope.diagnose.work import MATMULS, low_dtype, span


@rule("AMP703", "amp-overhead-bound", "warning", needs=("steps",), depth=SYMPTOM)
def amp_overhead_bound(rule: Rule, s: Signals) -> Found:
    """Steps that are slower with autocast than without, tiny half matmuls, or a device that mostly waits."""
    dtype = low_dtype(s)
    if dtype is None:
        return
    both = compared(paces_of(s), s.policy.compared_steps)
    if both is not None:
        if both[1].duration_s >= s.policy.slower * both[0].duration_s:
            yield _slower(rule, s, *both)
        return
    if s.device == "cuda":
        yield from _idle(rule, s, dtype)
        return
    if not s.rows["ops"]:
        yield Abstain("no census was recorded, so the size of the matmuls is not known")
        return
    yield from _tiny(rule, s, dtype)


_FALSIFIER = "With autocast off the step takes longer."
_OFF = Change(set={"autocast.enabled": "false"})


def _slower(rule: Rule, s: Signals, full: Pace, low: Pace) -> Finding:
    ratio = low.duration_s / full.duration_s
    return rule.finding(
        Where(steps=span(s)),
        f"A step of {low.opt} takes {sci(1e3 * low.duration_s)} ms under {low.dtype} autocast and "
        f"{sci(1e3 * full.duration_s)} ms without: AMP makes it {ratio:.1f} times slower.",
        "Leave AMP off for this model and device, or give it larger matrix products (batch, width).",
        severity="warning" if s.device == "cuda" else "info",
        evidence=(
            Evidence("median step with autocast", low.duration_s, "s"),
            Evidence("median step without", full.duration_s, "s"),
            Evidence("ratio", ratio),
            _mean_work(s),
        ),
        falsifier=_FALSIFIER,
        change=_OFF,
    )


def _mean_work(s: Signals) -> Evidence | None:
    if not s.rows["ops"]:
        return None
    half = f"{MATMULS} AND out_dtypes[1] IN ('float16', 'bfloat16')"
    return s.measure("operations of a half matmul, median", f"SELECT median(flops) {half}", "operations")


def _tiny(rule: Rule, s: Signals, dtype: str) -> Found:
    """On the CPU: the median half matmul is smaller than what it takes to dispatch it, and casts come on top."""
    work = _mean_work(s)
    if work is None or not isinstance(work.value, float) or work.value >= s.policy.tiny_matmul:
        return
    casts = s.measure(
        "casts for each half matmul",
        f'SELECT (SELECT count(*) FROM ops WHERE "cast" IS NOT NULL) / count(*) {MATMULS}',
    )
    yield rule.finding(
        Where(steps=span(s)),
        f"Half of the {dtype} matrix products take fewer than {sci(work.value)} operations, less than it takes to "
        f"dispatch them and their casts: AMP has nothing to speed up.",
        "Leave AMP off for a model of this size, or give it larger matrix products (batch, width).",
        severity="info",
        evidence=(work, casts),
        falsifier=_FALSIFIER,
        change=_OFF,
    )


def _idle(rule: Rule, s: Signals, dtype: str) -> Found:
    """On a GPU: kernels run for a small part of the step."""
    if not s.rows["kernels"]:
        yield Abstain("no step was profiled, so the time of the kernels is not known")
        return
    rows = plain_steps(s)
    if rows.empty:
        return
    busy = s.measure(
        "device time of one step",
        "SELECT max(t) FROM (SELECT sum(self_device_s) AS t FROM kernels WHERE kind = 'kernel' GROUP BY rank, segment)",
        "s",
    )
    step = float(rows["duration_s"].median())
    if busy is None or not isinstance(busy.value, float) or busy.value >= s.policy.busy_share * step:
        return
    yield rule.finding(
        Where(steps=span(s)),
        f"Kernels run for {percent(busy.value / step)} of a step of {sci(1e3 * step)} ms: the host sets the pace, and "
        f"{dtype} cannot make it faster.",
        "Use torch.compile or CUDA graphs, or larger batches.",
        evidence=(busy, Evidence("median step", step, "s")),
        falsifier="With a larger batch the time per example stays the same.",
    )
