"""Where in the user's code the training loop's calls stand, as the run recorded them. Knows no syntax."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from ampscope.trace.records import RunInfo

MOST_CALLS = 60_000
"""Calls read per process: faults of call order repeat in every step."""

_SITES = f"""
SELECT call, object, target, file, line, function, scaled, dtype, enabled,
       any_value(next_step) AS next_step,
       bool_or(coalesce(contains(detail, 'via_scaler') OR contains(detail, 'inside_step'), false)) AS inner,
       count(*) AS n, first(params) AS params, min((rank, proc, seq)) AS earliest
FROM (SELECT *, first_value(CASE WHEN call = 'scaler.step' THEN target END IGNORE NULLS) OVER (
          PARTITION BY rank, proc ORDER BY seq ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS next_step
      FROM calls WHERE seq <= {MOST_CALLS})
WHERE file IS NOT NULL AND line IS NOT NULL GROUP BY ALL ORDER BY earliest
"""

_FACTS = """
SELECT (SELECT max(n_backward) FROM steps WHERE outcome <> 'cut_off') AS micro,
       (SELECT mode(autocast_dtype) FROM steps) AS autocast_dtype,
       coalesce((SELECT mode(device) FROM params), (SELECT mode(autocast_device) FROM steps), 'cpu') AS device,
       (SELECT count(*) FROM params WHERE requires_grad AND dtype = 'float16') AS half_params
"""

_OVERFLOWS = """
SELECT DISTINCT op, file, line FROM ops
WHERE in_nonfinite = 0 AND out_nonfinite > 0 AND file IS NOT NULL AND line IS NOT NULL ORDER BY ALL LIMIT 200
"""


@dataclass(frozen=True)
class Site:
    """One call at one line. `inner`: made by scaler.step, not by the user. `n` is how often it ran; `scaled`
    and `params` as in the table `calls`; `next_step` is the optimizer that a scaler steps next."""

    call: str
    file: str
    line: int
    object: str | None = None
    target: str | None = None
    function: str | None = None
    scaled: str | None = None
    dtype: str | None = None
    enabled: bool | None = None
    inner: bool = False
    n: int = 1
    params: tuple[str, ...] = ()
    next_step: str | None = None


@dataclass(frozen=True)
class Facts:
    """What the edits need to know of a run. `micro` is the most backward calls of one step; `half_params`
    counts trainable float16 parameters."""

    device: str = "cpu"
    autocast_dtype: str | None = None
    micro: int = 1
    half_params: int = 0
    bf16_native: bool = False
    owners: tuple[tuple[str, str], ...] = ()
    """(parameter, optimizer that holds it)"""
    overflows: tuple[tuple[str, str, int], ...] = ()
    """(op, file, line) of the recorded calls that made non-finite values of finite ones"""


class TraceView(Protocol):
    """What is needed of an opened trace."""

    @property
    def info(self) -> RunInfo: ...

    def sql(self, query: str, params: Sequence[Any] | None = None) -> pd.DataFrame: ...


def read_sites(trace: TraceView) -> tuple[Site, ...]:
    """Every recorded call site, in order of its first call."""
    return tuple(
        Site(
            call=str(row["call"]),
            file=str(row["file"]),
            line=int(row["line"]),
            object=_text(row["object"]),
            target=_text(row["target"]),
            function=_text(row["function"]),
            scaled=_text(row["scaled"]),
            dtype=_text(row["dtype"]),
            enabled=None if _text(row["enabled"]) is None else bool(row["enabled"]),
            inner=bool(row["inner"]),
            n=int(row["n"]),
            params=() if row["params"] is None else tuple(map(str, row["params"])),
            next_step=_text(row["next_step"]),
        )
        for row in trace.sql(_SITES).to_dict("records")
    )


def read_facts(trace: TraceView) -> Facts:
    """What the edits need to know of the run."""
    row = trace.sql(_FACTS).iloc[0]
    owners = trace.sql("SELECT DISTINCT name, owner FROM params WHERE owner IS NOT NULL ORDER BY name")
    bad = trace.sql(_OVERFLOWS)
    processes = trace.info.processes
    return Facts(
        device=str(row["device"]),
        autocast_dtype=_text(row["autocast_dtype"]),
        micro=1 if pd.isna(row["micro"]) else int(row["micro"]),
        half_params=int(row["half_params"]),
        bf16_native=bool(processes) and all(p.bf16_native for p in processes),
        owners=tuple(zip(owners["name"].astype(str), owners["owner"].astype(str), strict=True)),
        overflows=tuple((str(op), str(file), int(line)) for op, file, line in bad.itertuples(index=False)),
    )


def of_kind(sites: Iterable[Site], *calls: str) -> list[Site]:
    """The sites of these calls that the user's own code makes."""
    return [site for site in sites if site.call in calls and not site.inner]


def _text(value: object) -> str | None:
    return None if value is None or value is pd.NA or value != value else str(value)
