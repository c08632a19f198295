"""What a credential looks like: the name in front of it, a known prefix, or a long random string."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from itertools import pairwise

_STRONG = frozenset(
    {"password", "passwd", "passphrase", "pwd", "secret", "secrets", "apikey", "credential", "credentials"}
)
_KEYED_TEXT = """
api access private secret auth account session signing encryption ssh wandb openai hf hub comet neptune aws azure gcp
license
"""
_KEYED = frozenset(_KEYED_TEXT.split())
"""What comes before `key` in names of credentials, but not in `query_key` or `key_dim`."""

_MODEL_TOKENS_TEXT = """
pad eos bos unk mask sep cls special image next per prompt stop start end fill num max min n new first
last prev vocab audio video separator class distill
"""
_MODEL_TOKENS = frozenset(_MODEL_TOKENS_TEXT.split())
"""What comes before `token` in names that have nothing to do with credentials."""

_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"
    r"|glpat-[A-Za-z0-9_-]{16,}|xox[abeoprs]-[A-Za-z0-9-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}"
    r"|nvapi-[A-Za-z0-9_-]{20,}|pypi-[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{30,}|local-[0-9a-f]{40}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)?"
    r")(?![A-Za-z0-9])"
)
_BEARER = re.compile(r"\b(bearer|basic)(\s+)([A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_VALUE = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s'\"`,;&)\]}]+"
_ASSIGNED = re.compile(rf"(?<![\w.])(-{{0,2}}[A-Za-z_][\w.-]*)([\"']?\s?[=:]\s?)({_VALUE})")
_OPTION = re.compile(rf"(?<!\S)(--?[A-Za-z][\w-]*)(\s+)({_VALUE})")
_HEX = re.compile(r"(?<![\w.+-])(?=[0-9a-fA-F]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{32,}(?![\w.])")
_UUID = re.compile(r"(?<![\w-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![\w-])")
_RANDOM = re.compile(r"(?<![\w./+=-])[A-Za-z0-9_+/=-]{32,}(?![\w./])")
_MIN_CHANGES = 0.35
"""Least share of neighbours of different class (lower, upper, digit, sign) in a random string: base64 has 0.6
on average, camel-case names about 0.25."""

_SWITCHES = re.compile(
    r"(?:OMP|MKL|OPENBLAS|KMP|DNNL|ONEDNN|CUDA|CUBLAS|CUDNN|NCCL|NVIDIA|PYTORCH|TORCH|TORCHINDUCTOR|ATEN|XLA|ROCM|HIP)_\w+"
    r"|(?:WORLD_SIZE|RANK|LOCAL_RANK|LOCAL_WORLD_SIZE|PYTHONHASHSEED|CUDA_VISIBLE_DEVICES)"
)
_PLAIN_VALUE = re.compile(
    r"[A-Za-z]{0,12}|[\d.,:eE+-]{1,32}|[a-z_]{1,32}:[A-Za-z0-9]{1,12}(?:,[a-z_]{1,32}:[A-Za-z0-9]{1,12})*"
)
_NUMBER = re.compile(r"[-+]?[\d._]+(?:[eE][-+]?\d+)?%?|None|True|False|null|true|false")


def is_secret_name(name: str) -> bool:
    """Whether a variable or option of this name holds a credential. `--max_tokens` and `pad_token` do not."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.lstrip("-"))
    parts = [p for p in re.split(r"[^A-Za-z0-9]+", spaced.lower()) if p]
    if any(p in _STRONG for p in parts):
        return True
    pairs = set(pairwise(parts))
    if any(a in _KEYED and b in ("key", "keys", "header") for a, b in pairs):
        return True
    if not parts or parts[-1] not in ("token", "auth", "cookie", "dsn", "webhook"):
        return False
    return len(parts) == 1 or parts[-2] not in _MODEL_TOKENS


def is_public_switch(name: str, value: str) -> bool:
    """Whether a variable is a switch of the numerics or threads whose plain value the reader needs."""
    return bool(_SWITCHES.fullmatch(name) and _PLAIN_VALUE.fullmatch(value) and not is_secret_name(name))


def replace(text: str, hide: Callable[[str], str], keep: Collection[str] = ()) -> str:
    """`text` with every credential replaced by `hide(credential)`; the value of a name in `keep` stays."""
    text = _PEM.sub(lambda m: hide(m[0]), text)
    text = _BEARER.sub(lambda m: f"{m[1]}{m[2]}{hide(m[3])}", text)
    for pattern in (_ASSIGNED, _OPTION):
        text = pattern.sub(lambda m: m[0] if m[1] in keep else _hide_value(m, hide), text)
    for pattern in (_PREFIXED, _UUID, _HEX):
        text = pattern.sub(lambda m: hide(m[0]), text)
    return _RANDOM.sub(lambda m: hide(m[0]) if _looks_random(m[0]) else m[0], text)


def _hide_value(match: re.Match[str], hide: Callable[[str], str]) -> str:
    name, between, value = match[1], match[2], match[3]
    bare = value.strip("\"'")
    if not bare or not is_secret_name(name):
        return match[0]
    if _NUMBER.fullmatch(bare) and not any(p in name.lower() for p in ("passw", "pwd", "secret", "key")):
        return match[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{between}{quote}{hide(bare)}{quote}"


def _looks_random(word: str) -> bool:
    core = word.rstrip("=")
    if not (any(c.isdigit() for c in core) and any(c.isalpha() for c in core)):
        return False
    if not (any(c.isupper() for c in core) and any(c.islower() for c in core)):
        return False
    kinds = ["d" if c.isdigit() else "u" if c.isupper() else "l" if c.islower() else "s" for c in core]
    changes = sum(a != b for a, b in pairwise(kinds))
    return changes / max(1, len(kinds) - 1) >= _MIN_CHANGES
