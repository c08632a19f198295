"""Which segments of a run went wrong: a loss or an output that is not finite, a step skipped outside the normal search
for the loss scale, gradients that the user threw away. Says nothing of causes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from ampscope.diagnose.frames import records
from ampscope.diagnose.signals import Signals

Key = tuple[int, int, int]
"""(rank, proc, segment)."""


@dataclass(frozen=True)
class Trouble:
    """One segment that did not end in an ordinary step.

    `bad_forward`: its loss, or its output where no loss is known, is not finite. `skipped`: a scaler found
    non-finite gradients. `searching`: that skip belongs to the search for the loss scale. `poisoned`: its step was
    taken and made weights non-finite, although its loss was finite: its gradients were not.
    """

    key: Key
    step: int
    outcome: str
    bad_forward: bool
    skipped: bool
    searching: bool
    scale: float | None
    poisoned: bool = False


_cache: WeakKeyDictionary[Signals, Mapping[Key, Trouble]] = WeakKeyDictionary()


def troubles_of(s: Signals) -> Mapping[Key, Trouble]:
    """The segments in trouble, in order."""
    known = _cache.get(s)
    if known is None:
        known = _cache[s] = _troubles(s)
    return known


_READ = (
    "rank",
    "proc",
    "segment",
    "step",
    "loss_known",
    "root_known",
    "loss",
    "root_sum",
    "outcome",
    "scale",
)


def _troubles(s: Signals) -> Mapping[Key, Trouble]:
    search = _searching(s)
    poisoned = _poisoned(s)
    found: dict[Key, Trouble] = {}
    for row in records(s.steps[list(_READ)]):
        key = (int(row["rank"]), _int(row["proc"]), int(row["segment"]))
        loss_known, root_known = bool(row["loss_known"]), bool(row["root_known"])
        bad = not _finite(row["loss"]) if loss_known else root_known and not _finite(row["root_sum"])
        outcome = str(row["outcome"])
        if bad or key in poisoned or outcome in ("skipped", "abandoned", "cut_off"):
            found[key] = Trouble(
                key=key,
                step=int(row["step"]),
                outcome=outcome,
                bad_forward=bad,
                skipped=outcome == "skipped",
                searching=outcome == "skipped" and key in search,
                scale=float(row["scale"]) if _finite(row["scale"]) else None,
                poisoned=key in poisoned and not bad,
            )
    return found


def _poisoned(s: Signals) -> frozenset[Key]:
    """The step of each process after which a sample of the weights was first not finite."""
    rows = s.updates[s.updates["nonfinite_after"].fillna(0).gt(0)]
    rows = rows.sort_values("segment").drop_duplicates(["rank", "proc"])
    return frozenset(
        (int(rank), _int(proc), int(segment))
        for rank, proc, segment in zip(rows["rank"], rows["proc"], rows["segment"], strict=True)
    )


def _searching(s: Signals) -> frozenset[Key]:
    """Segments whose skip is the scaler looking for its scale: the leading ones and the answers to a growth."""
    found: set[Key] = set()
    for path in s.scale_paths:
        stray = set(path.unexplained_skips(s.policy.growth_skip_slack))
        if path.leading_skips > s.policy.warmup_skips:
            stray |= set(range(path.leading_skips))
        for i, u in enumerate(path.updates):
            if u.found_inf and i not in stray:
                found.add((path.rank, path.proc, u.segment))
    return frozenset(found)


def lasting(s: Signals, after: Key) -> bool:
    """Whether the run was still in trouble at its end: no ordinary step with a finite loss came after `after`."""
    steps = s.steps[s.steps["rank"].eq(after[0]) & s.steps["proc"].fillna(0).eq(after[1])]
    later = steps[steps["segment"].gt(after[2]) & steps["outcome"].eq("stepped")]
    good = later[~later["loss_known"] | np.isfinite(later["loss"].astype(float))]
    return good.empty


def _int(value: object) -> int:
    return 0 if value is None or value != value else int(float(str(value)))


def _finite(value: object) -> bool:
    try:
        return bool(np.isfinite(float(str(value))))
    except ValueError:
        return False
