"""Parameters that are stored and stepped in half precision, and whether their optimizer makes up for the rounding."""

from __future__ import annotations

import pandas as pd

from ampscope.diagnose.signals import HALF, Signals

_OWN_COPY = (
    "master",
    "fp32",
    "float32",
    "comp",
    "kahan",
    "shift",
    "residual",
    "error",
    "correction",
    "lost",
    "carry",
    "remainder",
)
"""Words in the names of optimizer state that hold a float32 copy or what rounding lost. Kahan called it c."""


def half_updates(s: Signals) -> pd.DataFrame:
    """Rows of the table updates for parameters in half precision, at steps with a learning rate above zero."""
    rows = s.updates
    return rows[rows["dtype"].isin(HALF) & ~rows["lr"].fillna(1.0).eq(0.0)]


def state_of(s: Signals, dtype: str | None = None) -> dict[str, dict[str, str]]:
    """Per parameter (in `dtype`, if given) the dtypes of its optimizer state, by name; the last row seen counts."""
    rows = s.params if dtype is None else s.params[s.params["dtype"].eq(dtype)]
    state: dict[str, dict[str, str]] = {}
    for name, entries in zip(rows["name"].astype(str), rows["state_dtypes"], strict=True):
        listed = list(entries) if entries is not None and not isinstance(entries, float) else []
        if listed:
            state[name] = dict(str(e).split("=", 1) for e in listed)
    return state


def compensated(s: Signals, dtype: str) -> bool:
    """Whether the optimizer of these parameters keeps a float32 copy, or what rounding lost, beside them."""
    for entries in state_of(s, dtype).values():
        if any(key == "c" or any(word in key.lower() for word in _OWN_COPY) for key in entries):
            return True
    return False
