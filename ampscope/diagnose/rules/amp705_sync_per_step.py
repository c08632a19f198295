"""The host waits for the GPU in every step, because it asks for the value of a tensor.

## How it shows
GPU utilisation has gaps. `.item()`, `print(loss)`, `if loss > x`, `scaler.get_scale()` or a progress bar in the loop.

## Why it happens
Kernels are queued. A value can be read only when everything before it has run, so that the queue runs empty and the
next step starts late. GradScaler itself reads one value per step; anything on top is the script's.

## Fix
```diff
- total += loss.item()
+ total += loss.detach()                             # a float32 tensor on the device
+ if step % 100 == 0:
+     print(total.item() / 100)
```

## What would refute it
Without these lines the step takes as long.

## Source
[torch performance tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html).
Tested on traces written for the purpose only, not on a GPU.
"""

from __future__ import annotations

from ampscope.diagnose.finding import Abstain, Change, Where
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, percent
from ampscope.diagnose.work import gpu_of, span

WAITS = (
    "kind = 'op' AND name IN ('aten::_local_scalar_dense', 'cudaStreamSynchronize', 'cudaDeviceSynchronize')"
)
READS = "FROM ops WHERE op = 'aten::_local_scalar_dense' AND line IS NOT NULL"


@rule("AMP705", "sync-per-step", "warning", needs=("kernels",), depth=SYMPTOM)
def sync_per_step(rule: Rule, s: Signals) -> Found:
    """Host time in synchronising calls of a profiled step, and the lines of the script that read values."""
    if gpu_of(s) is None:
        yield Abstain("no CUDA device in this run")
        return
    wait = s.measure(
        "share of the profiled step in waiting for the device",
        f"SELECT sum(k.self_host_s) / any_value(t.duration_s) FROM kernels k JOIN steps t ON t.rank = k.rank AND "
        f"t.proc IS NOT DISTINCT FROM k.proc AND t.segment = k.segment WHERE {WAITS} GROUP BY k.rank, k.segment "
        "ORDER BY 1 DESC LIMIT 1",
    )
    if wait is None or not isinstance(wait.value, float) or wait.value < s.policy.sync_share:
        return
    lines = s.frame(
        f"SELECT file, line, count(*) AS n {READS} AND (file, line) NOT IN (SELECT (file, line) FROM calls WHERE "
        "call IN ('scaler.step', 'scaler.update', 'optimizer.step') AND file IS NOT NULL) "
        "GROUP BY file, line HAVING count(DISTINCT segment) > 1 ORDER BY n DESC, file, line"
    )
    if lines.empty:
        yield Abstain("the step waits for the device, but no line of the script that reads a value was seen")
        return
    first = lines.iloc[0]
    yield rule.finding(
        Where(
            file=str(first["file"]), line=int(first["line"]), op="aten::_local_scalar_dense", steps=span(s)
        ),
        f"{percent(wait.value)} of a step passes in waiting for the GPU; {count(len(lines), 'line')} of the script "
        f"{'reads' if len(lines) == 1 else 'read'} a value in every step.",
        "Keep the value on the device and read it every hundred steps.",
        evidence=(wait, s.measure("values read in the censuses", f"SELECT count(*) {READS}", "reads")),
        falsifier="Without these lines the step takes as long.",
        change=Change(diff="- total += loss.item()\n+ total += loss.detach()"),
    )
