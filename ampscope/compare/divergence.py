"""Where two runs part: the first tensor, in step order and then in the order of the computation, that differs by
more than rounding explains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ampscope.compare.rounding import relative, tolerance
from ampscope.diagnose.signals import TraceView, quoted

ROLES = ("activation", "activation_grad", "grad", "update", "weight")
"""In the order in which a step computes them; weights are what the step leaves behind."""

COMMON = 64
"""Most sampled steps that are compared; of more, the first ones and evenly spread others."""

AMAX_SLACK = 4.0
"""The largest element is one number, not a mean over many: it may lie this much further apart."""

ZERO_SHARE = 0.01
"""A difference of one element in a hundred being exactly zero is flushing, not rounding."""

_STATS = """
SELECT role, name, any_value(module) AS module, step, min("order") AS place,
       sqrt(sum(sumsq / power(coalesce(nullif(scale, 0), 1), 2)) / nullif(sum(numel), 0)) AS rms,
       max(amax / coalesce(nullif(scale, 0), 1)) AS amax,
       sum(nan + posinf + neginf) / greatest(sum(numel), 1) AS bad,
       sum(zeros) / greatest(sum(numel), 1) AS zeros,
       any_value(dtype) AS dtype
FROM tensors
WHERE step IN ({steps}) AND role IN ({roles}) AND coalesce(stage, 'pre_unscale') IN ('pre_unscale', 'pre_clip')
GROUP BY role, name, step
"""


@dataclass(frozen=True)
class Divergence:
    """One tensor at one step in both runs, true values (the loss scale taken out). `why` says what differs."""

    step: int
    role: str
    name: str
    module: str | None
    dtype_one: str
    dtype_two: str
    rms_one: float
    rms_two: float
    why: str


@dataclass(frozen=True)
class Joined:
    """How the tensors of two runs compare. `first` is the first that diverges and `more` what else does at that
    step, in order; `tensors` and `steps` were compared; `only_one` and `only_two` count names that the other run
    lacks."""

    first: Divergence | None
    more: tuple[Divergence, ...]
    tensors: int
    steps: int
    only_one: int
    only_two: int
    tolerance: float


def join(one: TraceView, two: TraceView) -> Joined:
    """Compare the sampled tensors of two traces by role, name and step."""
    limit = tolerance(_dtypes(one) | _dtypes(two))
    at = common_steps(one, two)
    a, b = _stats(one, at), _stats(two, at)
    names_one, names_two = _names(a), _names(b)
    both = a.merge(b, on=["role", "name", "step"], suffixes=("_one", "_two"))
    rank = {role: i for i, role in enumerate(ROLES)}
    both = both.assign(rank=both["role"].map(rank)).sort_values(
        ["step", "rank", "place_one", "name"], kind="stable"
    )
    found: list[Divergence] = []
    for row in both.to_dict("records"):
        if found and row["step"] != found[0].step:
            break
        why = _difference(row, limit)
        if why:
            found.append(_divergence(row, why))
    return Joined(
        first=found[0] if found else None,
        more=tuple(found[1:]),
        tensors=len(names_one & names_two),
        steps=len(at),
        only_one=len(names_one - names_two),
        only_two=len(names_two - names_one),
        tolerance=limit,
    )


def common_steps(one: TraceView, two: TraceView) -> list[int]:
    """The steps whose tensors both runs sampled, at most COMMON."""
    query = "SELECT DISTINCT step FROM tensors WHERE step IS NOT NULL"
    both = sorted(set(one.sql(query)["step"]) & set(two.sql(query)["step"]))
    if len(both) <= COMMON:
        return [int(step) for step in both]
    half = COMMON // 2
    rest = both[half:]
    return [int(step) for step in [*both[:half], *rest[:: -(-len(rest) // half)]]]


def _dtypes(trace: TraceView) -> set[str]:
    """The precisions in which a run computes."""
    frame = trace.sql(
        "SELECT DISTINCT autocast_dtype AS dtype FROM steps UNION SELECT DISTINCT dtype FROM params "
        "UNION SELECT DISTINCT dtype FROM tensors WHERE role = 'activation'"
    )
    overrides = trace.info.settings.get("overrides")
    tf32 = isinstance(overrides, dict) and overrides.get("matmul.precision", ["highest"])[-1] != "highest"
    return {*(str(d) for d in frame["dtype"].dropna()), *(["tf32"] if tf32 else [])}


def _stats(trace: TraceView, at: list[int]) -> pd.DataFrame:
    steps = ", ".join(map(str, at)) or "NULL"
    return trace.sql(_STATS.format(steps=steps, roles=", ".join(map(quoted, ROLES))))


def _names(frame: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(frame["role"], frame["name"], strict=True))


def _difference(row: Mapping[Any, Any], limit: float) -> str:
    """What differs by more than rounding; "" when nothing does."""
    bad = _pair(row, "bad")
    if (bad[0] > 0) != (bad[1] > 0):
        return f"NaN or inf in {'the first' if bad[0] > 0 else 'the second'} run only"
    zeros = _pair(row, "zeros")
    if abs(zeros[0] - zeros[1]) > ZERO_SHARE:
        return f"exact zeros {100 * zeros[0]:.3g} % and {100 * zeros[1]:.3g} %"
    rms = relative(*_pair(row, "rms"))
    if rms > limit:
        return f"root mean square differs by {100 * rms:.3g} %"
    amax = relative(*_pair(row, "amax"))
    if amax > AMAX_SLACK * limit:
        return f"largest element differs by {100 * amax:.3g} %"
    return ""


def _pair(row: Mapping[Any, Any], key: str) -> tuple[float, float]:
    return _float(row[f"{key}_one"]), _float(row[f"{key}_two"])


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _divergence(row: Mapping[Any, Any], why: str) -> Divergence:
    module = row["module_one"]
    return Divergence(
        step=int(_float(row["step"])),
        role=str(row["role"]),
        name=str(row["name"]),
        module=module if isinstance(module, str) else None,
        dtype_one=str(row["dtype_one"]),
        dtype_two=str(row["dtype_two"]),
        rms_one=_pair(row, "rms")[0],
        rms_two=_pair(row, "rms")[1],
        why=why,
    )
