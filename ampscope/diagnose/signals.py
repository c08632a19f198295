"""The one typed view through which rules read a trace: cached frames, calls and facts about the machine.

Holds no threshold of a diagnosis and draws no conclusion; it bounds how much of a large trace is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import pandas as pd

from ampscope.diagnose.calls import SELECT, Call, read_calls, stretches_of
from ampscope.diagnose.finding import Basis, Evidence
from ampscope.diagnose.policy import POLICY, Policy
from ampscope.diagnose.scales import ScalePath, paths_of
from ampscope.diagnose.transitions import QUERY as TRANSITIONS
from ampscope.diagnose.transitions import Transition, read_transitions
from ampscope.diagnose.underflow import OPS_QUERY as UNDERFLOW
from ampscope.diagnose.underflow import Sample, from_ops, from_tensors
from ampscope.diagnose.windows import Breach, Window, breaches_of, common_factor, to_fixed_norm, windows_of
from ampscope.trace.integrity import Integrity
from ampscope.trace.records import RunInfo
from ampscope.trace.schema import TABLES

HALF = ("float16", "bfloat16")


class TraceView(Protocol):
    """What the diagnosis needs of an opened trace (`ampscope.trace.reader.Trace`)."""

    @property
    def info(self) -> RunInfo: ...

    @property
    def integrity(self) -> Integrity: ...

    def sql(self, query: str, params: Sequence[Any] | None = None) -> pd.DataFrame: ...


def quoted(text: str | None) -> str:
    """An SQL string literal, or NULL."""
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


class Signals:
    """Frames are loaded when first asked for and must not be changed by their readers.

    Every frame holds all documented columns and `rank`; rows are ordered by (rank, proc, segment) and then by
    what orders them within a segment, so that equal traces give equal findings.
    """

    def __init__(self, trace: TraceView, policy: Policy = POLICY) -> None:
        self.trace = trace
        self.policy = policy

    # -- tables --------------------------------------------------------------------------------------

    def frame(self, query: str) -> pd.DataFrame:
        """The rows of an SQL query over the tables of the trace."""
        return self.trace.sql(query)

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """Number of rows of every table."""
        parts = " UNION ALL ".join(f"SELECT '{name}' AS name, count(*) AS n FROM {name}" for name in TABLES)
        frame = self.frame(parts)
        return {str(name): int(n) for name, n in zip(frame["name"], frame["n"], strict=True)}

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Table steps, and `loss_known`: a NaN loss stays apart from one that was not seen."""
        return self.frame(
            "SELECT *, loss IS NOT NULL AS loss_known, root_sum IS NOT NULL AS root_known FROM steps "
            "ORDER BY rank, proc, segment"
        )

    @cached_property
    def scaler(self) -> pd.DataFrame:
        return self.frame("SELECT * FROM scaler ORDER BY rank, proc, segment, scaler, opt")

    @cached_property
    def params(self) -> pd.DataFrame:
        return self.frame("SELECT * FROM params ORDER BY rank, proc, segment, name")

    @cached_property
    def events(self) -> pd.DataFrame:
        return self.frame("SELECT * FROM events ORDER BY rank, proc, t, event")

    @cached_property
    def nonfinite(self) -> pd.DataFrame:
        return self.frame(
            'SELECT * FROM nonfinite ORDER BY rank, proc, segment, "order" NULLS LAST, role, name'
        )

    @cached_property
    def modules(self) -> pd.DataFrame:
        return self.frame('SELECT * FROM modules ORDER BY rank, proc, segment, "order", name')

    @cached_property
    def updates(self) -> pd.DataFrame:
        """Table updates, of evenly spread steps when there is too much of it."""
        return self._spread("updates", "TRUE", "name")

    def tensors(self, *roles: str) -> pd.DataFrame:
        """Rows of the table tensors with these roles, of evenly spread segments if there are too many."""
        return self._tensors(tuple(sorted(roles)))

    def _tensors(self, roles: tuple[str, ...]) -> pd.DataFrame:
        known = self._tensor_frames.get(roles)
        if known is None:
            chosen = f"role IN ({', '.join(quoted(r) for r in roles)})"
            known = self._tensor_frames[roles] = self._spread("tensors", chosen, 'role, "order", name, stage')
        return known

    @cached_property
    def _tensor_frames(self) -> dict[tuple[str, ...], pd.DataFrame]:
        return {}

    def _spread(self, table: str, chosen: str, order: str) -> pd.DataFrame:
        """Rows of `table` where `chosen` holds; of every k-th sampled segment if they are too many."""
        total = int(self.frame(f"SELECT count(*) AS n FROM {table} WHERE {chosen}")["n"].iloc[0])
        every = max(1, math.ceil(total / self.policy.max_tensor_rows))
        pick = ""
        if every > 1:
            sampled = f"SELECT DISTINCT rank, proc, segment FROM {table} WHERE {chosen}"
            numbered = (
                "SELECT rank, proc, segment, "
                f"row_number() OVER (PARTITION BY rank, proc ORDER BY segment) AS k FROM ({sampled})"
            )
            kept = f"SELECT (rank, proc, segment) FROM ({numbered}) WHERE k % {every} = 0"
            pick = f" AND (rank, proc, segment) IN ({kept})"
        return self.frame(f"SELECT * FROM {table} WHERE {chosen}{pick} ORDER BY rank, proc, segment, {order}")

    @cached_property
    def ops(self) -> pd.DataFrame:
        """Table ops in order of the calls; its start and its end when there are too many."""
        half = self.policy.max_op_rows // 2
        numbered = "SELECT *, row_number() OVER (ORDER BY rank, proc, segment, seq) AS place FROM ops"
        chosen = f"place <= {half} OR place > {self.rows['ops'] - half}"
        return self.frame(f"SELECT * EXCLUDE (place) FROM ({numbered}) WHERE {chosen} ORDER BY place")

    # -- calls ---------------------------------------------------------------------------------------

    @cached_property
    def streams(self) -> tuple[tuple[Call, ...], ...]:
        """The API calls of each process in order, a stream for each stretch without a counted segment, of which
        the calls are not known. Of a very long run its start and its end; the end begins after a step."""
        most = self.policy.max_calls
        place = (
            "row_number() OVER (PARTITION BY rank, proc ORDER BY seq) AS up, "
            "row_number() OVER (PARTITION BY rank, proc ORDER BY seq DESC) AS down"
        )
        numbered = f"FROM (SELECT *, {place} FROM calls)"
        head = read_calls(self.frame(SELECT.replace("FROM calls", f"{numbered} WHERE up <= {most}")))
        tail = read_calls(
            self.frame(SELECT.replace("FROM calls", f"{numbered} WHERE up > {most} AND down <= {most}"))
        )
        counted = self._counted
        return tuple(
            stretch
            for stream in head + [_after_first_step(calls) for calls in tail]
            if stream
            for stretch in stretches_of(stream, counted.get((stream[0].rank, stream[0].proc), ()))
        )

    @cached_property
    def histories(self) -> tuple[tuple[Call, ...], ...]:
        """The API calls of each process in order, whatever lies between them."""
        found: dict[tuple[int, int], list[Call]] = {}
        for stream in self.streams:
            calls = found.setdefault((stream[0].rank, stream[0].proc), [])
            calls += [replace(c, index=i) for i, c in enumerate(stream, start=len(calls))]
        return tuple(tuple(calls) for calls in found.values())

    @cached_property
    def _counted(self) -> Mapping[tuple[int, int], Sequence[int]]:
        """The segments that were only counted, in order, by (rank, proc)."""
        frame = self.frame(
            "SELECT rank, coalesce(proc, 0) AS proc, list(segment ORDER BY segment) AS segments FROM steps "
            "WHERE level = 'count' GROUP BY ALL"
        )
        keys = zip(frame["rank"].astype(int), frame["proc"].astype(int), strict=True)
        return dict(zip(keys, ([int(i) for i in v] for v in frame["segments"]), strict=True))

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The calls of all streams, one after the other."""
        return tuple(c for stream in self.streams for c in stream)

    def first_call(self, call: str, object: str | None = None) -> Call | None:
        """The first call of that name, on that object if one is given; None without one."""
        return next((c for c in self.calls if c.call == call and object in (None, c.object)), None)

    @cached_property
    def loss_scales(self) -> Mapping[tuple[int, int, int], float]:
        """(rank, proc, segment) to the scale by which a GradScaler last multiplied a loss there."""
        scaled = [c for c in self.calls if c.call == "scaler.scale"]
        return {(c.rank, c.proc, c.segment): c.value for c in scaled if c.value}

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Parameter name to the optimizer that holds it."""
        held = self.params[self.params["owner"].notna()]
        return dict(zip(held["name"].astype(str), held["owner"].astype(str), strict=True))

    @cached_property
    def stream_windows(self) -> tuple[tuple[Window, ...], ...]:
        """The windows of all optimizers, one tuple per stream. The first of each optimizer in a later stretch lacks
        what came before, and is left out."""
        found = []
        begun: set[tuple[int, int]] = set()
        for stream in self.streams:
            process = stream[0].rank, stream[0].proc
            windows = windows_of(stream, self.owners)
            found.append(tuple(w for w in windows if process not in begun or not w.first_of_optimizer))
            begun.add(process)
        return tuple(found)

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The windows of all optimizers of all streams."""
        return tuple(w for windows in self.stream_windows for w in windows)

    @cached_property
    def hand_unscaled(self) -> frozenset[str]:
        """Optimizers whose gradients the user divides by the loss scale by hand. Edits are noticed in census
        steps only, so one sighting speaks for the run."""
        return frozenset(w.opt for w in self.windows if w.hand_unscale(self.policy) is not None)

    @cached_property
    def fixed_norms(self) -> frozenset[tuple[str | None, int | None]]:
        """Lines whose edits bring all gradients of a step to one and the same norm by a common factor."""
        edits: dict[tuple[str | None, int | None], list[Call]] = {}
        for call in self.calls:
            if call.call == "grad_edit":
                edits.setdefault(call.place, []).append(call)
        spread = self.policy.same_factor
        return frozenset(place for place, here in edits.items() if to_fixed_norm(here, spread))

    @cached_property
    def scales_by_hand(self) -> bool:
        """Without a GradScaler, all gradients are multiplied by one small factor before the step: the user takes
        out a loss scale of his own."""
        policy = self.policy
        factors = (common_factor(c, policy.same_factor) for c in self.calls if c.call == "grad_edit")
        return any(f is not None and f <= 1.0 / policy.scale_matters for f in factors)

    @cached_property
    def breaches(self) -> tuple[Breach, ...]:
        """Scaler calls in an order that GradScaler forbids."""
        return tuple(b for stream in self.streams for b in breaches_of(stream))

    @cached_property
    def scale_paths(self) -> tuple[ScalePath, ...]:
        """What every GradScaler did to its scale."""
        return paths_of(self.scaler)

    @cached_property
    def transitions(self) -> tuple[Transition, ...]:
        """Ops that made non-finite values of finite ones, in order."""
        return read_transitions(self.frame(TRANSITIONS.format(limit=self.policy.max_transitions)))

    @cached_property
    def underflow(self) -> tuple[Sample, ...]:
        """What fp16 gradients lost to underflow in every sampled step; observed where an op was recomputed in
        float32, else estimated from histograms. Empty when no fp16 gradient was sampled."""
        observed = from_ops(self.frame(UNDERFLOW))
        seen = {(x.rank, x.proc, x.segment) for x in observed}
        estimated = from_tensors(self.tensors("activation_grad", "grad"))
        both = [*observed, *(x for x in estimated if (x.rank, x.proc, x.segment) not in seen)]
        return tuple(sorted(both, key=lambda x: (x.rank, x.proc, x.segment)))

    # -- facts ---------------------------------------------------------------------------------------

    @property
    def info(self) -> RunInfo:
        return self.trace.info

    @cached_property
    def device(self) -> str:
        """Device type that the training ran on: cuda, cpu, ..."""
        for frame, column in ((self.params, "device"), (self.steps, "autocast_device")):
            kinds = frame[column].dropna().astype(str)
            if len(kinds):
                return str(kinds.mode().iloc[0])
        return next((d.type for p in self.info.processes for d in p.devices), "cpu")

    @cached_property
    def bf16_native(self) -> bool:
        """The device computes bf16 matmuls in hardware: only then is bf16 good advice."""
        return bool(self.info.processes) and all(p.bf16_native for p in self.info.processes)

    @cached_property
    def half_autocast(self) -> frozenset[str]:
        """The half dtypes that enabled autocast contexts of the script chose. Empty: no autocast override can change
        what runs in half."""
        entered = {c.dtype for c in self.calls if c.call == "autocast.enter" and c.enabled is not False}
        entered.update(self.steps["autocast_dtype"].dropna().astype(str))
        return frozenset(dtype for dtype in HALF if dtype in entered)

    @cached_property
    def scaler_used(self) -> bool:
        """An enabled GradScaler took part."""
        return self.rows["scaler"] > 0 or any(
            c.call in ("scaler.scale", "scaler.step") and c.enabled is not False for c in self.calls
        )

    @cached_property
    def steps_taken(self) -> int:
        """Segments in which an optimizer stepped."""
        return int((self.steps["outcome"] == "stepped").sum())

    @cached_property
    def training_dtypes(self) -> frozenset[str]:
        """Autocast dtypes in force at backward-producing forwards, and dtypes of trainable parameters."""
        trained = self.steps[self.steps["n_backward"].fillna(0) > 0]
        cast = set(trained["autocast_dtype"].dropna().astype(str))
        trainable = self.params[self.params["requires_grad"].fillna(False).astype(bool)]
        return frozenset(cast | set(trainable["dtype"].dropna().astype(str)))

    def half_ops(self, dtype: str) -> bool:
        """Whether any recorded op gave an output of this dtype."""
        query = f"SELECT count(*) AS n FROM ops WHERE list_contains(out_dtypes, {quoted(dtype)})"
        return bool(self.frame(query)["n"].iloc[0])

    # -- evidence ------------------------------------------------------------------------------------

    def measure(self, metric: str, query: str, unit: str = "", basis: Basis = "observed") -> Evidence | None:
        """Evidence whose value is by construction the first cell of its own query; None when that is null."""
        frame = self.frame(query)
        value = None if frame.empty else plain(frame.iat[0, 0])
        return None if value is None else Evidence(metric, value, unit, basis, query)


def plain(value: object) -> float | int | str | bool | None:
    """A cell of a frame as a Python value; null and NaN, which a frame does not tell apart, as None."""
    item = getattr(value, "item", None)
    value = item() if callable(item) else value
    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return None
    return value if isinstance(value, float | int | str | bool) else str(value)


def _after_first_step(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    for i, c in enumerate(calls):
        if c.call in ("scaler.update", "optimizer.step", "scaler.step"):
            return calls[i + 1 :]
    return calls
