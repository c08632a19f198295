"""The exception that ended a run, and whether it is about two dtypes that met. Reads texts, not tensors."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pandas as pd

from ampscope.diagnose.signals import Signals

_HALF = re.compile(r"\b(?:c10::|at::)?(?:Half|BFloat16|float16|bfloat16)\b|HalfTensor|BFloat16Tensor")
_OTHER = re.compile(r"\bfloat\b|\bFloat\b|\bDouble\b|\bdouble\b|float32|float64|FloatTensor|DoubleTensor")
_CLAIM = re.compile(
    r"dtype|scalar type|same type|to be same|should be the same|expected|must have", re.IGNORECASE
)


def mismatch(message: str | None) -> bool:
    """Whether an error message says that half precision met another float type."""
    text = message or ""
    halves = {m.group(0).rpartition(":")[2].lower() for m in _HALF.finditer(text)}
    two = bool(_OTHER.search(_HALF.sub("", text))) or len(halves) > 1
    return bool(halves) and two and bool(_CLAIM.search(text))


@dataclass(frozen=True)
class Ending:
    """The last exception event of a run."""

    subject: str
    message: str
    traceback: str
    file: str | None
    line: int | None
    function: str | None
    step: int
    segment: int

    @property
    def in_backward(self) -> bool:
        """It was raised while autograd ran."""
        return "_engine_run_backward" in self.traceback or "run_backward(" in self.traceback


def ending(s: Signals) -> Ending | None:
    """The exception that ended the run; None when it ended without one."""
    rows = s.events[s.events["event"].eq("exception")]
    if rows.empty:
        return None
    row = rows.iloc[-1]

    def text(column: str) -> str | None:
        return None if pd.isna(row[column]) else str(row[column])

    return Ending(
        subject=text("subject") or "",
        message=(text("message") or "").rstrip("."),
        traceback=text("traceback") or "",
        file=text("file"),
        line=None if pd.isna(row["line"]) else int(row["line"]),
        function=text("function"),
        step=0 if pd.isna(row["step"]) else int(row["step"]),
        segment=0 if pd.isna(row["segment"]) else int(row["segment"]),
    )


def in_custom_backward(end: Ending) -> bool:
    """Whether the exception came out of the backward of a custom autograd.Function.

    torch calls it from `torch/autograd/function.py`, whose frame stands below `run_backward` in the traceback.
    """
    after = end.traceback.rpartition("run_backward(")[2]
    return end.in_backward and ("autograd/function.py" in after or "autograd\\function.py" in after)
