"""Floating-point formats as data, and rounding to them: to nearest, ties to even, with subnormals.

One row of FORMATS is one format; everything else follows from its fields. Rounding here is the reference that
the recipes and what-if use; it is checked value by value against torch casts and ml_dtypes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray

Overflow = Literal["inf", "nan", "saturate", "keep"]


@dataclass(frozen=True)
class Format:
    """One binary floating-point format.

    precision: significant bits, the implicit one included (ulp of 1 is 2^(1 - precision)); emin, emax:
    exponents of the smallest and largest normal binade; largest: largest finite value. overflow says what
    becomes of a value that rounds beyond it: inf, nan, saturate (largest), or keep (tf32: only the mantissa
    of an input is cut, its range is float32's). convention names the cast that this follows, where casts of
    the same format differ. Formats without `signed` have no zero and no negative values (e8m0).
    """

    name: str
    precision: int
    emin: int
    emax: int
    largest: float
    overflow: Overflow
    convention: str
    signed: bool = True
    subnormals: bool = True
    aliases: tuple[str, ...] = ()

    @property
    def min_normal(self) -> float:
        """Smallest positive normal value, 2^emin."""
        return math.ldexp(1.0, self.emin)

    @property
    def min_subnormal(self) -> float:
        """Smallest positive value: 2^(emin - precision + 1), or min_normal where there are no subnormals."""
        return math.ldexp(1.0, self.emin - self.precision + 1) if self.subnormals else self.min_normal

    @property
    def flush_threshold(self) -> float:
        """Largest magnitude that rounds to zero: half of min_subnormal (a tie, and zero is even). 0 where
        nothing does (e8m0, which has no zero, and tf32, of which only the mantissa counts)."""
        return self.min_subnormal / 2 if self.signed and self.overflow != "keep" else 0.0

    @property
    def overflow_threshold(self) -> float:
        """Smallest magnitude that does not stay finite and in range: the midpoint between the largest value
        and the next one that the format would have. Whether the midpoint itself overflows is
        `overflow_at_threshold`. Infinite for tf32."""
        if self.overflow == "keep":
            return math.inf
        return self.largest + self.ulp(self.largest) / 2

    @property
    def overflow_at_threshold(self) -> bool:
        """Whether a tie at overflow_threshold rounds away from the largest value (its last bit is odd)."""
        return round(self.largest / self.ulp(self.largest)) % 2 == 1

    @property
    def smallest_overflow(self) -> float:
        """Smallest float64 magnitude that overflows: 65520 for fp16, nextafter(464) for e4m3fn."""
        at = self.overflow_threshold
        return at if self.overflow_at_threshold or math.isinf(at) else math.nextafter(at, math.inf)

    def ulp(self, x: float) -> float:
        """Spacing of the format's values in the binade of |x| (subnormal spacing below min_normal)."""
        e = math.frexp(x)[1] - 1 if x else self.emin
        return math.ldexp(1.0, (e if self.overflow == "keep" else max(e, self.emin)) - self.precision + 1)


_IEEE = "IEEE 754-2019"
_OFP8 = "OCP OFP8 1.0"
_MX = "OCP MX 1.0"


def _max(precision: int, emax: int) -> float:
    """Largest value of a format that uses every code of its last binade."""
    return (2 - math.ldexp(1.0, 1 - precision)) * math.ldexp(1.0, emax)


_TABLE = (
    Format("fp32", 24, -126, 127, _max(24, 127), "inf", _IEEE, aliases=("float32",)),
    Format("fp16", 11, -14, 15, 65504.0, "inf", _IEEE, aliases=("float16", "half")),
    Format("bf16", 8, -126, 127, _max(8, 127), "inf", "as torch casts", aliases=("bfloat16",)),
    Format(
        "tf32", 11, -126, 127, _max(11, 127), "keep", "mantissa of matmul inputs on Ampere and later",
        subnormals=False,
    ),
    Format(
        "fp8_e4m3fn", 4, -6, 8, 448.0, "saturate", f"{_OFP8}, saturating as torch 2.13 (ml_dtypes gives NaN)",
        aliases=("float8_e4m3fn", "e4m3fn", "fp8_e4m3", "e4m3"),
    ),
    Format(
        "fp8_e4m3fnuz", 4, -7, 7, 240.0, "nan", "as torch and ml_dtypes casts",
        aliases=("float8_e4m3fnuz", "e4m3fnuz"),
    ),
    Format("fp8_e5m2", 3, -14, 15, 57344.0, "inf", f"{_OFP8}, not saturating", aliases=("float8_e5m2", "e5m2")),
    Format(
        "fp8_e5m2fnuz", 3, -15, 15, 57344.0, "nan", "as torch and ml_dtypes casts",
        aliases=("float8_e5m2fnuz", "e5m2fnuz"),
    ),
    Format("fp6_e2m3", 4, 0, 2, 7.5, "saturate", _MX, aliases=("float6_e2m3fn", "e2m3")),
    Format("fp6_e3m2", 3, -2, 4, 28.0, "saturate", _MX, aliases=("float6_e3m2fn", "e3m2")),
    Format(
        "fp4_e2m1", 2, 0, 2, 6.0, "saturate", _MX,
        aliases=("float4_e2m1fn", "float4_e2m1fn_x2", "e2m1", "fp4"),
    ),
    Format(
        "e8m0", 1, -127, 127, 2.0**127, "nan", f"{_MX} block scale; zero and negatives are NaN (ml_dtypes)",
        signed=False, subnormals=False, aliases=("float8_e8m0fnu",),
    ),
)  # fmt: skip

FORMATS: dict[str, Format] = {key: f for f in _TABLE for key in (f.name, *f.aliases)}
"""Every format by its name and by its aliases, torch's and ml_dtypes' dtype names among them."""


def of_dtype(name: str | torch.dtype | Format) -> Format:
    """The format of a name, alias or torch dtype. Raises ValueError for what is not a format here."""
    if isinstance(name, Format):
        return name
    key = str(name).removeprefix("torch.")
    if key not in FORMATS:
        known = ", ".join(f.name for f in _TABLE)
        raise ValueError(f"{key!r} is not a number format that ampscope knows; known are {known}.")
    return FORMATS[key]


@overload
def round_to(x: torch.Tensor, fmt: str | torch.dtype | Format) -> torch.Tensor: ...
@overload
def round_to(x: NDArray[np.floating], fmt: str | torch.dtype | Format) -> NDArray[np.float64]: ...
@overload
def round_to(x: float, fmt: str | torch.dtype | Format) -> float: ...
def round_to(
    x: torch.Tensor | NDArray[np.floating] | float, fmt: str | torch.dtype | Format
) -> torch.Tensor | NDArray[np.float64] | float:
    """Every element rounded to the nearest value of the format, ties to even (IEEE 754-2019, 4.3.1).

    Computed in float64 with one rounding from the input, whatever its dtype. Returns float64 of the same kind
    (tensor on its device, array, or number): every format here is exact in float64. Beyond the largest value
    the format's `overflow` rule holds; infinities saturate where the format does; NaN stays NaN.
    """
    f = of_dtype(fmt)
    if isinstance(x, torch.Tensor):
        return _round(x.detach().to(torch.float64), f)
    array = np.array(x, dtype=np.float64)
    rounded: NDArray[np.float64] = (
        _round(torch.from_numpy(np.atleast_1d(array)), f).numpy().reshape(array.shape)
    )
    return rounded if isinstance(x, np.ndarray) else float(rounded)


def _round(x: torch.Tensor, f: Format) -> torch.Tensor:
    exponent = (x.view(torch.int64) >> 52 & 0x7FF) - 1023
    # Below emin the spacing stays that of the last binade: subnormals, or none at all where only the mantissa counts.
    floor = -1022 + f.precision if f.overflow == "keep" else f.emin
    u = exponent.clamp(min=floor, max=1000) - (f.precision - 1)
    y = torch.round(x * power_of_two(-u)) * power_of_two(u)
    size = y.abs()
    if not f.signed:
        y = torch.where(x > 0, y.clamp(min=f.min_normal), math.nan)
    beyond = size > f.largest
    if f.overflow == "inf":
        y = torch.where(beyond, torch.copysign(torch.full_like(x, math.inf), x), y)
    elif f.overflow == "nan":
        y = torch.where(beyond, math.nan, y)
    elif f.overflow == "saturate":
        y = torch.where(beyond | x.isinf(), torch.copysign(torch.full_like(x, f.largest), x), y)
    return torch.where(x.isnan(), x, y)


def power_of_two(e: torch.Tensor) -> torch.Tensor:
    """float64 2^e of an int64 tensor with -1022 <= e <= 1023. By bits: exp2 and pow need not be exact, and
    torch.ldexp goes through the default dtype."""
    return ((e + 1023) << 52).view(torch.float64)
