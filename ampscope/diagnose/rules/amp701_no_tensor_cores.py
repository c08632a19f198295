"""Half-precision matrix products run without tensor cores, because of the shapes of their operands.

## How it shows
fp16 or bf16 brings little on a GPU that has tensor cores. A layer of 1 000 classes, 50 257 tokens or 33 features is
slower than one of 1 024, 50 304 or 40.

## Why it happens
Tensor cores take tiles. Dimensions that are not multiples of 8 (16 bytes in half; 16 elements in fp8) make the library
pick an unaligned or a plain kernel, which is several times slower for the same work.

## Fix
```diff
- self.head = nn.Linear(width, 50257)
+ self.head = nn.Linear(width, 50304)                # next multiple of 64; ignore the last classes
```

## What would refute it
With these dimensions padded to multiples of 8, the kernels take as long.

## Source
[NVIDIA, Train With Mixed Precision](https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/index.html).
Tested on traces written for the purpose only, not on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from ampscope.diagnose.finding import Abstain, Change, Where
from ampscope.diagnose.frames import items, number, records, text, whole
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import listed, percent
from ampscope.diagnose.work import PHASES, gpu_of, span

HALF_MATMULS = (
    f"FROM ops WHERE flops > 0 AND {PHASES} AND device = 'cuda' AND out_dtypes[1] IN ('float16', 'bfloat16')"
)
PLAIN = "tensor_core = FALSE AND regexp_matches(lower(name), 'gemm|conv|fprop|dgrad|wgrad') AND NOT "
PLAIN += "regexp_matches(lower(name), 'sgemm|f32f32_f32f32_f32')"
"""Kernels of matrix products other than float32 ones whose name is not that of a tensor-core kernel."""


@rule("AMP701", "no-tensor-cores", "warning", needs=("ops",))
def no_tensor_cores(rule: Rule, s: Signals) -> Found:
    """Half matmul work in shapes that are no multiples of 8, and device time in kernels without tensor cores."""
    gpu = gpu_of(s)
    if gpu is None:
        yield Abstain("no CUDA device in this run")
        return
    if float(gpu.capability or "0") < s.policy.tensor_core_capability:
        return
    rows = records(
        s.frame(
            f"SELECT module, file, line, in_shapes, sum(flops) AS flops {HALF_MATMULS} GROUP BY module, file, line, "
            "in_shapes ORDER BY flops DESC, module, line"
        )
    )
    total = sum(number(r["flops"]) for r in rows)
    odd = [r for r in rows if any(n % s.policy.core_multiple for n in _dimensions(r["in_shapes"]))]
    share = sum(number(r["flops"]) for r in odd) / total if total else 0.0
    if share < s.policy.misaligned_share:
        return
    plain = s.measure(
        "share of device time in half matmul kernels without tensor cores",
        f"SELECT coalesce(sum(self_device_s) FILTER ({PLAIN}), 0) / sum(self_device_s) FROM kernels "
        "WHERE kind = 'kernel'",
    )
    lost = plain.value if plain is not None and isinstance(plain.value, float) else None
    if lost is not None and lost < s.policy.plain_kernel_share:
        return
    timed = (
        ""
        if lost is None
        else f", and {percent(lost)} of the device time goes into kernels without tensor cores"
    )
    first = odd[0]
    shapes = list(dict.fromkeys(" and ".join(str(x) for x in items(r["in_shapes"])) for r in odd))
    yield rule.finding(
        Where(
            module=text(first["module"]), file=text(first["file"]), line=whole(first["line"]), steps=span(s)
        ),
        f"{percent(share)} of the half matmul work has dimensions that are no multiples of {s.policy.core_multiple} "
        f"({listed(shapes)}){timed}.",
        f"Pad these dimensions to multiples of {s.policy.core_multiple} (better 64).",
        severity="info" if lost is None else "warning",
        evidence=(plain, s.measure("half matmul work", f"SELECT sum(flops) {HALF_MATMULS}", "operations")),
        falsifier="With these dimensions padded, the kernels take as long.",
        change=Change(diff="- nn.Linear(width, 50257)\n+ nn.Linear(width, 50304)"),
    )


def _dimensions(shapes: object) -> Iterator[int]:
    """The dimensions that are multiplied: the last two of every operand of a product."""
    for shape in items(shapes):
        sizes = [int(n) for n in str(shape).split("x") if n]
        if len(sizes) >= 2:
            yield from sizes[-2:]
