"""The path of the loss scale: leading search, growth and the answers to it, falls, where it settled.

Describes what every GradScaler did, update by update; whether that is a fault is for the rules to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import pandas as pd

from ampscope.diagnose.policy import Policy


class Update(NamedTuple):
    """One update of a scaler: the scale in force, the scale after it, and which optimizers found inf."""

    step: int
    segment: int
    scale: float
    scale_after: float
    found_inf: bool
    overflowed: tuple[str, ...]
    opts: tuple[str, ...]


@dataclass(frozen=True)
class ScalePath:
    """All updates of one scaler in one process, in order, with its policy (None where not recorded)."""

    rank: int
    proc: int
    scaler: str
    updates: tuple[Update, ...]
    init_scale: float | None
    growth_factor: float | None
    backoff_factor: float | None
    growth_interval: int | None

    @cached_property
    def skips(self) -> list[Update]:
        return [u for u in self.updates if u.found_inf]

    @cached_property
    def leading_skips(self) -> int:
        """How many updates from the first on found inf: the search for a scale that fits."""
        return next((i for i, u in enumerate(self.updates) if not u.found_inf), len(self.updates))

    @property
    def settled(self) -> tuple[Update, ...]:
        """The updates after the leading search."""
        return self.updates[self.leading_skips :]

    @property
    def settled_scale(self) -> float | None:
        """The scale in force at the first update that found no inf; None when there was none."""
        return self.settled[0].scale if self.settled else None

    def begun_too_high(self, policy: Policy) -> bool:
        """However long the leading search was, only the start is to blame: it began beyond any usual scale, came to one
        that is usual, and hardly fell from there."""
        settled = self.settled_scale
        return (
            settled is not None
            and self.updates[0].scale > policy.unbounded_scale
            and settled >= policy.tiny_scale
            and self.final_scale >= settled / 4.0
        )

    @property
    def final_scale(self) -> float:
        return self.updates[-1].scale_after

    @cached_property
    def deepest_fall(self) -> tuple[float, float, int]:
        """(from, to, step of its first skip) of the largest fall without a growth on the way, after the
        leading search; (scale, scale, step) when it never fell."""
        updates = self.settled or self.updates
        top, step = updates[0].scale, None
        worst, drop = (top, top, updates[0].step), 0.0
        for u in updates:
            if u.found_inf and step is None:
                step = u.step
            if u.scale_after > u.scale:
                top, step = u.scale_after, None
            fall = math.log2(top / u.scale_after) if u.scale_after > 0.0 < top else math.inf
            if step is not None and fall > drop:
                worst, drop = (top, u.scale_after, step), fall
        return worst

    @cached_property
    def growths(self) -> list[int]:
        """Indices of the updates after which the scale had grown."""
        return [i for i, u in enumerate(self.updates) if u.scale_after > u.scale]

    def after_growth(self, slack: int) -> list[int]:
        """Indices of the skips that came at most `slack` updates after the scale had grown."""
        near = {i for g in self.growths for i in range(g + 1, g + 1 + slack)}
        return [i for i, u in enumerate(self.updates) if u.found_inf and i in near]

    def unexplained_skips(self, slack: int) -> list[int]:
        """Indices of skips that belong to no search: neither leading, nor after a growth, nor in the unbroken
        row of skips that such a one began."""
        searching = set(range(self.leading_skips)) | set(self.after_growth(slack))
        out: list[int] = []
        for i, u in enumerate(self.updates):
            if not u.found_inf or i in searching:
                continue
            if i - 1 in searching and self.updates[i - 1].found_inf:
                searching.add(i)
            else:
                out.append(i)
        return out


_SHARED = ("scale", "scale_after", "growth_tracker")
_COLUMNS = ("step", "segment", "opt", "found_inf", *_SHARED)


def paths_of(frame: pd.DataFrame) -> tuple[ScalePath, ...]:
    """One path per (rank, proc, scaler) of a frame of the table scaler ordered by segment."""
    frame = frame[frame["scale"].notna()]
    frame = frame.assign(
        proc=frame["proc"].fillna(0).astype(int), scaler=frame["scaler"].astype(object).fillna("")
    )
    paths = []
    for key, rows in frame.groupby(["rank", "proc", "scaler"], sort=True):
        rank, proc, scaler = cast(tuple[int, int, str], key)
        interval = _first(rows["growth_interval"])
        paths.append(
            ScalePath(
                rank=int(rank),
                proc=int(proc),
                scaler=str(scaler),
                updates=tuple(_updates(rows)),
                init_scale=_first(rows["init_scale"]),
                growth_factor=_first(rows["growth_factor"]),
                backoff_factor=_first(rows["backoff_factor"]),
                growth_interval=None if interval is None else int(interval),
            )
        )
    return tuple(paths)


def _updates(rows: pd.DataFrame) -> Iterator[Update]:
    """One update per group of rows that one update() closed: a scaler may step several optimizers before it."""
    pending: list[dict[str, Any]] = []
    columns = ([None if pd.isna(v) else v for v in rows[c].tolist()] for c in _COLUMNS)
    for values in zip(*columns, strict=True):
        row = dict(zip(_COLUMNS, values, strict=True))
        if pending and not _same_update(pending, row):
            yield _update(pending)
            pending = []
        pending.append(row)
    if pending:
        yield _update(pending)


def _same_update(pending: list[dict[str, Any]], row: dict[str, Any]) -> bool:
    """Each optimizer once, and what update() left behind is the same on all of its rows."""
    last = pending[-1]
    return all(row[c] == last[c] for c in _SHARED) and row["opt"] not in {p["opt"] for p in pending}


def _update(rows: list[dict[str, Any]]) -> Update:
    last = rows[-1]
    bad = tuple(str(r["opt"]) for r in rows if r["found_inf"])
    after = last["scale_after"]
    return Update(
        step=int(last["step"]),
        segment=int(last["segment"]),
        scale=float(last["scale"]),
        scale_after=float(last["scale"] if after is None else after),
        found_inf=bool(bad),
        overflowed=bad,
        opts=tuple(str(r["opt"]) for r in rows),
    )


def _first(column: pd.Series[Any]) -> float | None:
    known = column.dropna()
    return float(known.iloc[0]) if len(known) else None
