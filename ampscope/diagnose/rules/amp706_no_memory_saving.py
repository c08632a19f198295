"""Autocast is on and most of what the modules hand on is still float32: activations take as much memory as before.

## How it shows
Peak memory hardly falls when AMP is switched on, and the batch size cannot grow.

## Why it happens
Half precision halves what is stored for backward, but only where results are half. Norms, softmax and losses run in
float32 under autocast; a float32 input to an elementwise op keeps a whole residual stream in float32; a region may be
outside of the context. Parameters, gradients and optimizer state stay float32 in any case.

## Fix
```diff
- x = self.embedding(tokens)
  with torch.autocast(device, dtype=torch.bfloat16):
+     x = self.embedding(tokens)
      x = self.blocks(x)
```
Or recompute instead of storing: `torch.utils.checkpoint`.

## What would refute it
The peak memory of the run is that of its parameters and optimizer state, not of activations.

## Source
[torch.amp](https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference)
"""

from __future__ import annotations

from ampscope.diagnose.finding import Abstain, Where
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import listed, percent
from ampscope.diagnose.work import low_dtype, span

OUTPUTS = "FROM tensors WHERE role = 'activation' AND numel > 0"


@rule("AMP706", "no-memory-saving", "warning", needs=("modules",), depth=SYMPTOM)
def no_memory_saving(rule: Rule, s: Signals) -> Found:
    """Share of the bytes of module outputs that are float32 in a run under autocast."""
    dtype = low_dtype(s)
    if dtype is None:
        return
    wide = "sum(of_numel) FILTER (dtype = 'float32') * 4.0"
    share = s.measure(
        "share of the bytes of module outputs in float32",
        f"SELECT {wide} / ({wide} + 2.0 * coalesce(sum(of_numel) FILTER (dtype IN ('float16', 'bfloat16')), 0)) "
        f"{OUTPUTS}",
    )
    if share is None:
        if not s.rows["tensors"]:
            yield Abstain("no module outputs were sampled")
        return
    if not isinstance(share.value, float) or share.value < s.policy.unsaved_share:
        return
    names = s.frame(
        f"SELECT module, sum(of_numel) AS n {OUTPUTS} AND dtype = 'float32' GROUP BY module ORDER BY n DESC, module"
    )["module"].astype(str)
    yield rule.finding(
        Where(module=str(names.iloc[0]), steps=span(s)),
        f"{percent(share.value)} of the bytes that modules hand on are float32 although autocast runs in {dtype}: "
        f"{listed(list(names))}.",
        "Widen the autocast region to what makes them, cast what enters it, or checkpoint these modules.",
        severity="warning" if s.device == "cuda" and share.value >= s.policy.unsaved_costly else "info",
        evidence=(
            share,
            s.measure("device memory at its peak", "SELECT max(device_allocated) FROM steps", "bytes"),
        ),
        falsifier="The peak memory of the run is that of its parameters and optimizer state.",
    )
