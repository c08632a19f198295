"""Numbers and names as people read them in a claim: scientific to the end, never a false 0.000."""

from __future__ import annotations

import math
from collections.abc import Sequence


def sci(value: float | int | None) -> str:
    """Three significant digits: `3e-08`, `0.0123`, `1.31e+05`, `nan`; "unknown" for None.

    >>> sci(3e-8), sci(65536), sci(0.25)
    ('3e-08', '65536', '0.25')
    """
    if value is None:
        return "unknown"
    value = float(value)
    if value == int(value) if math.isfinite(value) else False:
        return str(int(value)) if abs(value) < 1e7 else f"{value:.3g}"
    return f"{value:.3g}"


def percent(share: float | None) -> str:
    """A share of 1 in percent, small shares scientific: `31 %`, `2.5 %`, `3e-05 %`."""
    if share is None or math.isnan(share):
        return "unknown"
    value = 100 * share
    if value >= 10:
        return f"{value:.0f} %"
    return f"{value:.2g} %"


def pow2(value: float | None) -> str:
    """A loss scale: `2^16` for a power of two, else its digits.

    >>> pow2(65536.0), pow2(1000.0), pow2(1.0)
    ('2^16', '1000', '1')
    """
    if value is None or not math.isfinite(value) or value <= 0:
        return sci(value)
    mantissa, exponent = math.frexp(value)
    if mantissa == 0.5 and not 1 <= value < 1024:
        return f"2^{exponent - 1}"
    return sci(value)


def count(n: int, thing: str, things: str | None = None) -> str:
    """`1 step`, `3 steps`."""
    return f"{n} {thing if n == 1 else things or thing + 's'}"


def at_module(name: str) -> str:
    """A module in running text: `blocks.0.mlp`; `module 2` for a name that would read as a number.

    >>> at_module("blocks.0"), at_module("2"), at_module("0.1")
    ('blocks.0', 'module 2', 'module 0.1')
    """
    return f"module {name}" if name.replace(".", "").isdigit() else name


def listed(names: Sequence[str], most: int = 3) -> str:
    """`a, b and c`; of a longer list the first ones and how many more."""
    names = [str(n) for n in names]
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    if len(names) <= 1:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def steps_phrase(first: int, last: int) -> str:
    """`step 3`, or `steps 3 to 9`."""
    return f"step {first}" if first == last else f"steps {first} to {last}"
