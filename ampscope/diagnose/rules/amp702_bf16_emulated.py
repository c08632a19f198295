"""bfloat16 on hardware that does not compute in it: it is emulated, and slower than float32.

## How it shows
bf16 autocast on a V100, T4 or RTX 20 card, or on an older CPU: same results, slower steps.

## Why it happens
`torch.cuda.is_bf16_supported()` is true on these cards as well, because kernels exist: they convert to float32,
compute and convert back. Tensor cores for bfloat16 came with compute capability 8.0, on CPUs with AVX512_BF16 and AMX.

## Fix
```diff
- with torch.autocast("cuda", dtype=torch.bfloat16):
+ scaler = torch.amp.GradScaler("cuda")
+ with torch.autocast("cuda", dtype=torch.float16):
```
On a CPU without these instructions: float32.

## What would refute it
The step takes longer in fp16 (on a GPU) or in float32 (on a CPU).

## Source
[pytorch #124996](https://github.com/pytorch/pytorch/pull/124996);
[CUDA arithmetic instructions](https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#arithmetic-instructions).
Tested on traces written for the purpose only, not on a GPU.
"""

from __future__ import annotations

from ampscope.diagnose.finding import Abstain, Change, Where
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.work import gpu_of, span

BF16 = "FROM ops WHERE list_contains(out_dtypes, 'bfloat16')"


@rule("AMP702", "bf16-emulated", "warning")
def bf16_emulated(rule: Rule, s: Signals) -> Found:
    """bf16 work on a device that is known not to compute in it."""
    if not s.info.processes:
        yield Abstain("the trace does not say what the run ran on")
        return
    if s.bf16_native or not ("bfloat16" in s.training_dtypes or s.half_ops("bfloat16")):
        return
    gpu = gpu_of(s)
    name = gpu.name if gpu is not None else s.info.processes[0].cpu_model or "this CPU"
    if gpu is not None:
        advice, change = (
            "Use float16 with a GradScaler: its matrix units compute in that.",
            {"autocast.dtype": "float16"},
        )
    else:
        advice, change = "Leave AMP off on this CPU.", {"autocast.enabled": "false"}
    yield rule.finding(
        Where(steps=span(s)),
        f"The run computes in bfloat16, which {name} emulates: it converts to float32 and back.",
        advice,
        severity="warning" if gpu is not None else "info",
        evidence=(s.measure("ops with bfloat16 results", f"SELECT count(*) {BF16}", "ops"),),
        falsifier="The step takes longer in the format that is advised.",
        change=Change(set=change),
    )
