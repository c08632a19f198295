"""What came into the first failing step from outside the model, and was not finite."""

from __future__ import annotations

import pandas as pd

from ampscope.diagnose.origins import origins_of
from ampscope.diagnose.signals import HALF, Signals
from ampscope.diagnose.troubles import Key, troubles_of


def first_trouble(s: Signals) -> Key | None:
    """The first segment whose forward went wrong."""
    return next((t.key for t in troubles_of(s).values() if t.bad_forward), None)


def bad_inputs(s: Signals) -> pd.DataFrame:
    """Non-finite inputs in that segment: of the root that the step calls first, and of ops of the graph. Those of
    later roots may be results of earlier ones."""
    rows = s.nonfinite[s.nonfinite["role"].eq("input")]
    begun = first_trouble(s)
    if begun is None:
        return rows.iloc[:0]
    if any(o.forward and o.trouble.key[:2] == begun[:2] for o in origins_of(s)):
        # What is not finite was computed: what ops of the first step read may be results of ops without gradient.
        return rows.iloc[:0]
    rows = rows[rows["segment"].eq(begun[2]) & rows["rank"].eq(begun[0])]
    entering = rows[rows["module"].isin(_entrances(s)) & ~rows["name"].str.startswith("graph:")]
    if len(entering):
        return entering  # the graph of the same step reads the same values again
    return rows[rows["name"].str.startswith("graph:") | _of_graph(s, begun, rows)]


def half_inputs(s: Signals) -> pd.DataFrame:
    """Of these, half tensors with infinities and no NaN, in a segment without any other: made by a cast."""
    rows = bad_inputs(s)
    cast = rows["dtype"].isin(HALF) & rows["nan"].fillna(0).eq(0) & rows["posinf"].notna()
    return rows[cast & rows["dtype"].eq("float16")] if cast.all() else rows.iloc[:0]


def outside_inputs(s: Signals) -> pd.DataFrame:
    """Of these, what cannot have been made by a cast."""
    rows = bad_inputs(s)
    return rows[~(rows["dtype"].isin(HALF) & rows["nan"].fillna(0).eq(0))]


def _entrances(s: Signals) -> set[str]:
    """Roots that are called first in a sampled step."""
    roots = s.modules[s.modules["is_root"].fillna(False).astype(bool)]
    if roots.empty:
        return set()
    first = roots.sort_values("order").groupby(["rank", "segment"], sort=True)["name"].first()
    return set(first.astype(str))


def _of_graph(s: Signals, begun: Key, rows: pd.DataFrame) -> pd.Series[bool]:
    """Rows that were read from the autograd graph: what an op got from outside it is no result of the step."""
    levels = s.steps[s.steps["segment"].eq(begun[2]) & s.steps["rank"].eq(begun[0])]["level"]
    graph = bool(len(levels)) and str(levels.iloc[0]) not in ("census", "watch") and bool(s.rows["ops"])
    leaf = ~rows["module"].isin(
        set(s.modules[s.modules["is_root"].fillna(False).astype(bool)]["name"].astype(str))
    )
    return leaf & graph
