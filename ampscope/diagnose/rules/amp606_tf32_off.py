"""Matrix products in float32 take time on a GPU that could compute them in TF32, and TF32 is off.

## How it shows
A float32 run, or the float32 part of a mixed one, on an A100 or later is several times slower than it could be.
Kernels are called `sgemm`.

## Why it happens
TF32 rounds the inputs of a float32 matrix product to 11 significant bits and runs on tensor cores; results stay
float32. PyTorch leaves it off for matrix products (not for convolutions) unless asked.

## Fix
```diff
+ torch.set_float32_matmul_precision("high")
```

## What would refute it
With TF32 on, the step takes as long, or the loss differs by more than between two seeds.

## Source
[torch.set_float32_matmul_precision](https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html).
Tested on traces written for the purpose only, not on a GPU.
"""

from __future__ import annotations

from ampscope.diagnose.finding import Abstain, Change, Where
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import percent
from ampscope.diagnose.work import gpu_of, span

PLAIN = (
    "regexp_matches(lower(name), 'sgemm|gemm_f32f32_f32f32_f32') AND NOT regexp_matches(lower(name), 'tf32')"
)
"""Kernels that multiply float32 matrices without tensor cores, by the names of cuBLAS and CUTLASS."""


@rule("AMP606", "tf32-off", "warning", needs=("kernels",))
def tf32_off(rule: Rule, s: Signals) -> Found:
    """Device time in plain float32 matmul kernels on Ampere or later."""
    gpu = gpu_of(s)
    if gpu is None:
        yield Abstain("no CUDA device in this run")
        return
    if float(gpu.capability or "0") < s.policy.tf32_capability:
        return
    kernels = "FROM kernels WHERE kind = 'kernel'"
    share = s.measure(
        "share of device time in float32 matmul kernels",
        f"SELECT coalesce(sum(self_device_s) FILTER ({PLAIN}), 0) / sum(self_device_s) {kernels}",
    )
    if share is None or not isinstance(share.value, float):
        yield Abstain("no kernel was timed")
        return
    if share.value < s.policy.float32_matmul_share:
        return
    yield rule.finding(
        Where(steps=span(s)),
        f"{percent(share.value)} of the device time goes into float32 matrix products without tensor cores on "
        f"{gpu.name}, which has TF32.",
        'Call torch.set_float32_matmul_precision("high") before training.',
        evidence=(
            share,
            s.measure("time of these kernels", f"SELECT sum(self_device_s) {kernels} AND {PLAIN}", "s"),
        ),
        falsifier="With TF32 on, the step takes as long.",
        change=Change(set={"matmul.precision": "high"}, diff='+ torch.set_float32_matmul_precision("high")'),
    )
