"""Numbers and foreign strings as plain text for every renderer. Knows no markup; rounds no number to zero."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

NONE = "–"
"""What stands for a value that was not measured."""

SPARKS = "▁▂▃▄▅▆▇█"

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]")
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def clean(text: str) -> str:
    """`text` on one line, without terminal escapes, control, bidirectional or unpaired surrogate characters.

    Such characters can hide or reorder what a reader sees, or cannot be encoded at all: each becomes U+FFFD.
    """
    if text.isascii() and text.isprintable():
        return text.strip()
    return " ".join(_harmless(_ANSI.sub("", text).replace("\t", " ")).splitlines()).strip()


def clean_block(text: str, max_lines: int = 60, max_line: int = 400) -> str:
    """The same for text of several lines: line ends and tabs stay, long lines and long texts are cut."""
    lines = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    kept = [shorten(_harmless(line.replace("\t", "    ")), max_line) for line in lines[:max_lines]]
    if len(lines) > max_lines:
        kept.append(f"… {len(lines) - max_lines} more lines")
    return "\n".join(kept)


def _harmless(text: str) -> str:
    return "".join(
        c if c == "\n" or unicodedata.category(c) not in _UNSAFE_CATEGORIES else "\ufffd" for c in text
    )


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters; the middle goes, because names differ at both ends."""
    if len(text) <= limit:
        return text
    head = limit // 2
    tail = limit - 1 - head
    return f"{text[:head]}…{text[len(text) - tail :] if tail else ''}"


def number(value: float | int | str | bool | None) -> str:
    """A number to four significant digits; scientific notation outside 1e-3 … 1e6, so nothing reads 0.000."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int) and abs(value) < 10**15:
        return str(value)
    return _float(float(value))


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(value)
    if size == 0.0:
        return "0"
    if value.is_integer() and size < 1e7:
        return str(int(value))
    if 1e-3 <= size < 1e6:
        text = f"{value:.4g}"
        return text if "e" not in text else str(round(value))
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def share(value: float | None) -> str:
    """A share of 0 … 1 as a percentage; a share that is not zero never reads 0 %."""
    if value is None:
        return NONE
    percent = 100.0 * value
    if not math.isfinite(percent) or percent == 0.0:
        return f"{number(percent)} %"
    if 0.01 <= percent < 99.995:
        return f"{percent:.3g} %"
    if percent >= 99.995:
        return "100 %" if value >= 1.0 else "> 99.99 %"
    return f"{number(percent)} %"


def seconds(value: float | None) -> str:
    """A duration in the unit that leaves one to four digits before the point."""
    if value is None or not math.isfinite(value):
        return number(value)
    size = abs(value)
    if size >= 7200:
        return f"{value / 3600:.3g} h"
    if size >= 120:
        return f"{value / 60:.3g} min"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if size * scale >= 1.0:
            return f"{value * scale:.3g} {unit}"
    return f"{number(value)} s"


def size(value: float | None) -> str:
    """Bytes with a binary unit."""
    if value is None:
        return NONE
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024.0:
            return f"{amount:.4g} {unit}"
        amount /= 1024.0
    return f"{amount:.4g} TiB"


def power(value: float | None) -> str:
    """A number, with its power of two where it is one: 65536 (2^16)."""
    if value is None or not math.isfinite(value) or value <= 0:
        return number(value)
    mantissa, exponent = math.frexp(value)
    if mantissa == 0.5 and abs(exponent - 1) > 3:
        return f"{number(value)} (2^{exponent - 1})"
    return number(value)


def steps(span: tuple[int, int] | None) -> str:
    """`step 3` or `steps 3–9`."""
    if span is None:
        return ""
    return f"step {span[0]}" if span[0] == span[1] else f"steps {span[0]}–{span[1]}"


def plural(count: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def sparkline(values: Sequence[float | None]) -> str:
    """One block character per value between the smallest and the largest; `×` where a value is not finite."""
    finite = [v for v in values if v is not None and math.isfinite(v)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    flat = high == low
    return "".join(
        " "
        if v is None
        else "×"
        if not math.isfinite(v)
        else SPARKS[3 if flat else min(7, int(8 * ((v - low) / span)))]
        for v in values
    )
