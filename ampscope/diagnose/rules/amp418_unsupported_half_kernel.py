"""An op has no half-precision kernel on this device, and raises.

## How it shows
The script ends in a RuntimeError or NotImplementedError that names an op and Half or BFloat16: `"cholesky_cpu" not
implemented for 'Half'`, "Low precision dtypes not supported", "Unsupported dtype Half", or oneDNN's "could not create
a primitive descriptor" of an fp16 LSTM. In float32 the same line works.

## Why it happens
Linear algebra, FFTs, some losses and recurrent layers exist in float32 only, and which of them exist in half differs
between CPU, CUDA and other devices. Autocast does not know every one of them.

## Fix
```diff
- y = torch.linalg.cholesky(cov)
+ with torch.autocast(device, enabled=False):
+     y = torch.linalg.cholesky(cov.float())
```
Run that op in float32, or (for a missing fp16 kernel only) use bfloat16.

## What would refute it
The same call in float32 raises the same error.

## Source
[torch.amp op reference](https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference);
[pytorch #74625](https://github.com/pytorch/pytorch/issues/74625)
"""

from __future__ import annotations

import re

import pandas as pd

from ampscope.diagnose.dtypes import Ending, ending, mismatch
from ampscope.diagnose.families import CRASHED
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import HALF, Signals, quoted

_NO_KERNEL = re.compile(
    r"not (?:implemented|supported|support)[^.]*(?:half|bfloat16|float16)|(?:low precision|unsupported) d?types?|"
    r"(?:doesn't|does not|do not|not) support[^.]*(?:half|bfloat16|float16|fp16|bf16)",
    re.IGNORECASE,
)
_NO_PRIMITIVE = re.compile(
    r"could not create a primitive|primitive descriptor|no kernel image", re.IGNORECASE
)
_NAMED = re.compile(r"\b(BFloat16|bfloat16|bf16|Half|float16|fp16)\b")


@rule("AMP418", "unsupported-half-kernel", "critical", explains=(*CRASHED, "AMP121"), depth=ROOT)
def unsupported_half_kernel(rule: Rule, s: Signals) -> Found:
    """The run ended with an error that says a half kernel is missing."""
    end = ending(s)
    if end is None or mismatch(end.message):
        return
    op, dtypes = _failed_op(s, end)
    dtype = _dtype(s, end, dtypes)
    missing = _NO_KERNEL.search(end.message) or (_NO_PRIMITIVE.search(end.message) and dtype is not None)
    if not missing or dtype is None:
        return
    named = re.search(r'"(\w+)" not implemented', end.message)
    name = named.group(1) if named else (op or "an op").removeprefix("aten::")
    side = " in backward" if end.in_backward else ""
    yield rule.finding(
        Where(op=op, module=_module(s, end), file=end.file, line=end.line, steps=(end.step, end.step)),
        f"{name} has no {dtype} kernel on this {s.device} device{side}: {end.subject}, {_short(end.message)}.",
        _advice(s, dtype),
        evidence=(
            s.measure(
                "the exception",
                f"SELECT message FROM events WHERE event = 'exception' AND subject = {quoted(end.subject)} LIMIT 1",
            ),
            s.measure(
                "op that raised",
                "SELECT op FROM ops WHERE error IS NOT NULL ORDER BY segment DESC, seq DESC LIMIT 1",
            ),
        ),
        falsifier="The same call in float32 raises the same error.",
        change=Change(
            set=_change(s, end, dtype),
            diff="+ with torch.autocast(device, enabled=False):\n+     y = op(x.float())",
        ),
    )


def _failed_op(s: Signals, end: Ending) -> tuple[str | None, tuple[str, ...]]:
    """The op whose call raised last, and the dtypes that it got."""
    rows = s.frame(
        f"SELECT op, in_dtypes FROM ops WHERE error IS NOT NULL AND segment = {end.segment} ORDER BY seq DESC LIMIT 1"
    )
    if rows.empty:
        return None, ()
    return str(rows["op"].iloc[0]), tuple(str(d) for d in rows["in_dtypes"].iloc[0])


def _dtype(s: Signals, end: Ending, dtypes: tuple[str, ...]) -> str | None:
    """The half dtype that the message names, that the op got, or that autocast gave it."""
    named = _NAMED.search(end.message)
    if named:
        return "bfloat16" if named.group(1).lower().startswith("bf") else "float16"
    if dtypes:
        return next((d for d in dtypes if d in HALF), None)
    ended = s.steps[s.steps["segment"].eq(end.segment)]["autocast_dtype"].dropna().astype(str)
    return next((d for d in ended if d in HALF), None)


def _module(s: Signals, end: Ending) -> str | None:
    rows = s.frame(
        f"SELECT module FROM ops WHERE error IS NOT NULL AND segment = {end.segment} ORDER BY seq DESC LIMIT 1"
    )
    return None if rows.empty or pd.isna(rows["module"].iloc[0]) else str(rows["module"].iloc[0])


def _short(message: str) -> str:
    return message.split("\n")[0].split(". ")[0][:160]


def _advice(s: Signals, dtype: str) -> str:
    if dtype == "float16" and s.device == "cpu":
        return "Run that op in float32 with autocast switched off around it, or use bfloat16 if it has such a kernel."
    return "Run that op in float32 with autocast switched off around it."


def _change(s: Signals, end: Ending, dtype: str) -> dict[str, str]:
    module = _module(s, end)
    if module:
        return {"module.fp32": module}
    return {"autocast.enabled": "false"} if s.half_autocast else {}
