"""Number formats as the browser's what-if needs them: edges in log2. Standard library only, because the formats of
`ampscope.numerics` bring torch along; a test holds the two equal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class BrowserFormat:
    """`flush_log2`: |x| up to 2^this rounds to zero. `overflow`: |x| from this on becomes inf, NaN or, clamped,
    `largest`: `becomes` is inf, nan or saturate."""

    name: str
    label: str
    flush_log2: int
    min_normal_log2: int
    largest: float
    overflow: float
    becomes: str = "inf"


FORMATS = (
    BrowserFormat("fp16", "float16", -25, -14, 65504.0, 65520.0),
    BrowserFormat("bf16", "bfloat16", -134, -126, 3.3895313892515355e38, 3.39617752923046e38),
    BrowserFormat("fp8_e4m3fn", "float8 e4m3fn", -10, -6, 448.0, 464.0, becomes="saturate"),
    BrowserFormat("fp8_e5m2", "float8 e5m2", -17, -14, 57344.0, 61440.0),
    BrowserFormat("fp8_e4m3fnuz", "float8 e4m3fnuz", -11, -7, 240.0, 248.0, becomes="nan"),
    BrowserFormat("fp8_e5m2fnuz", "float8 e5m2fnuz", -18, -15, 57344.0, 61440.0, becomes="nan"),
    BrowserFormat("fp6_e3m2", "float6 e3m2", -5, -2, 28.0, 30.0, becomes="saturate"),
    BrowserFormat("fp6_e2m3", "float6 e2m3", -4, 0, 7.5, 7.75, becomes="saturate"),
    BrowserFormat("fp4_e2m1", "float4 e2m1", -2, 0, 6.0, 7.0, becomes="saturate"),
)


def as_json() -> list[dict[str, Any]]:
    return [asdict(f) for f in FORMATS]


def options() -> tuple[tuple[str, str], ...]:
    """(value, label) for a control."""
    return tuple((f.name, f.label) for f in FORMATS)
