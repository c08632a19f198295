"""Values of `--steps`, `--set` and `--precision`: parsed, checked and normalised. Applies none of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ampscope.errors import AmpscopeError

DTYPES = {
    "float16": "float16", "fp16": "float16", "half": "float16",
    "bfloat16": "bfloat16", "bf16": "bfloat16",
}  # fmt: skip
BOOLS = {
    "true": "true", "1": "true", "on": "true", "yes": "true",
    "false": "false", "0": "false", "off": "false", "no": "false",
}  # fmt: skip
MATMUL = {"highest": "highest", "fp32": "highest", "high": "high", "tf32": "high", "medium": "medium"}

PRECISIONS: dict[str, dict[str, str]] = {
    "fp32": {"autocast.enabled": "false", "scaler.enabled": "false", "matmul.precision": "highest"},
    "tf32": {"autocast.enabled": "false", "scaler.enabled": "false", "matmul.precision": "high"},
    "fp16": {"autocast.enabled": "true", "autocast.dtype": "float16", "scaler.enabled": "true"},
    "bf16": {"autocast.enabled": "true", "autocast.dtype": "bfloat16", "scaler.enabled": "false"},
}
"""What each `--precision` stands for, as `--set` keys."""


def _choice(words: dict[str, str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"one of {', '.join(dict.fromkeys(words.values()))}")
        return words[text.lower()]

    return parse


def _number(wanted: str, holds: Callable[[float], bool]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(wanted) from None
        if not holds(value):
            raise ValueError(wanted)
        return repr(value)

    return parse


def _count(text: str) -> str:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError("a whole number from 1")
    return str(int(text))


def _pattern(text: str) -> str:
    if not text:
        raise ValueError("a module name or a pattern such as decoder.*")
    return text


_INF = float("inf")

KEYS: dict[str, Callable[[str], str]] = {
    "autocast.dtype": _choice(DTYPES),
    "autocast.enabled": _choice(BOOLS),
    "scaler.enabled": _choice(BOOLS),
    "scaler.init_scale": _number("a number above 0, for example 65536", lambda x: 0 < x < _INF),
    "scaler.growth_interval": _count,
    "scaler.backoff_factor": _number("a number between 0 and 1, for example 0.5", lambda x: 0 < x < 1),
    "matmul.precision": _choice(MATMUL),
    "module.fp32": _pattern,
    "optimizer.eps": _number("a number from 0, for example 1e-8", lambda x: 0 <= x < _INF),
}
"""Every key of `--set`, with the function that checks and normalises its value."""

REPEATABLE = ("module.fp32",)
"""These keep all their values in order; of every other key the last value counts."""


def overrides(pairs: Sequence[str], precision: str | None = None) -> dict[str, list[str]]:
    """`Settings.overrides` for `--precision` and the `--set K=V` pairs; a pair wins over the preset.

    Raises AmpscopeError for an unknown key or a value that the key cannot take.
    """
    result = {key: [value] for key, value in (PRECISIONS[precision] if precision else {}).items()}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if key not in KEYS:
            raise AmpscopeError(f"--set does not know {key!r}. Keys: {', '.join(KEYS)}.")
        if not equals:
            raise AmpscopeError(f"--set {key} needs a value: `--set {key}=VALUE`.")
        try:
            value = KEYS[key](text.strip())
        except ValueError as wanted:
            raise AmpscopeError(f"--set {key}={text}: the value must be {wanted}.") from None
        if key in REPEATABLE and key in result:
            result[key].append(value)
        else:
            result[key] = [value]
    return result


def step_range(text: str) -> tuple[int, int | None]:
    """`A:B` as (first, last), first <= step < last; `A:` has no end, `:B` starts at 0.

    Raises AmpscopeError for anything else, and for an empty range.
    """
    first, colon, last = text.partition(":")
    numbers = all(part == "" or (part.isascii() and part.isdigit()) for part in (first, last))
    if not colon or not numbers or text == ":":
        raise AmpscopeError(f"--steps {text}: write A:B, for example 100:200, 100: or :200.")
    start, end = int(first or 0), int(last) if last else None
    if end is not None and end <= start:
        raise AmpscopeError(f"--steps {text}: the range is empty; B must be above A.")
    return start, end
