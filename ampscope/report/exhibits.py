"""What the trace shows about one finding: the calls around its line, the ops around its op, its tensor over steps.

Chooses by the place of the finding and the tables that its evidence reads; knows no code of the catalogue.
"""

from __future__ import annotations

import re

from ampscope.diagnose.finding import Finding
from ampscope.report.model import Chart, Column, Exhibit, Line, Table
from ampscope.report.query import Row, Stream, TraceView, fetch, first

POINTS = 160
LINES = 6
CALLS = 16
OPS = 8
LIMITS = ((65504.0, "largest float16"), (2.0**-14, "smallest normal float16"), (2.0**-24, "smallest float16"))

_CALL_COLUMNS = (
    Column("call", "name"),
    Column("on", "name"),
    Column("with", "name"),
    Column("gradients", "name"),
    Column("value", "number"),
    Column("place", "path"),
)
_OP_COLUMNS = (
    Column("op", "name"),
    Column("module", "name"),
    Column("types", "name"),
    Column("largest in", "number"),
    Column("largest out", "number"),
    Column("NaN or inf out", "number"),
    Column("largest out in float32", "number"),
    Column("place", "path"),
)


def exhibit(trace: TraceView, stream: Stream, finding: Finding) -> Exhibit:
    """Charts and tables for `finding`; empty where the trace holds nothing more about its place."""
    read = tables_read(finding)
    charts = (_tensor_history, _updates) if "updates" not in read else (_updates, _tensor_history)
    chart = next((c for make in charts if (c := make(trace, stream, finding)) is not None), None)
    tables = [t for t in (_calls(trace, stream, finding), _ops(trace, stream, finding)) if t is not None]
    return Exhibit(chart=chart, tables=tuple(t.without_blanks() for t in tables))


def tables_read(finding: Finding) -> frozenset[str]:
    """Names of the tables that the evidence of a finding reads."""
    queries = " ".join(e.query for e in finding.evidence)
    return frozenset(m.lower() for m in re.findall(r"\b(?:FROM|JOIN)\s+\"?(\w+)", queries, re.IGNORECASE))


def _calls(trace: TraceView, stream: Stream, finding: Finding) -> Table | None:
    where = finding.where
    if where.file is None or where.line is None:
        return None
    hit = first(
        trace,
        f"SELECT seq, step FROM calls WHERE {stream.where} AND file = $file AND line = $line "
        f"AND step >= $step ORDER BY seq LIMIT 1",
        {"file": where.file, "line": where.line, "step": where.steps[0] if where.steps else 0},
    )
    if not hit:
        return None
    rows = fetch(
        trace,
        f"SELECT * FROM (SELECT * FROM calls WHERE {stream.where} AND step = $step AND call NOT LIKE 'autocast%' "
        f"ORDER BY abs(seq - $seq), seq LIMIT {CALLS}) ORDER BY seq",
        {"step": hit["step"], "seq": hit["seq"]},
    )
    raised = any(r["error"] for r in rows)
    content = tuple(
        (r["call"], r["object"], r["target"] or r["dtype"], r["scaled"], r["value"])
        + ((r["error"],) if raised else ())
        + (_place(r),)
        for r in rows
    )
    columns = (*_CALL_COLUMNS[:-1], *([Column("raised", "name")] if raised else []), _CALL_COLUMNS[-1])
    return Table(f"Calls of step {hit['step']}, in order", columns, content, len(content))


def _ops(trace: TraceView, stream: Stream, finding: Finding) -> Table | None:
    where = finding.where
    if where.op is None:
        return None
    known: dict[str, object] = {
        "op": where.op,
        "module": where.module,
        "file": where.file,
        "line": where.line,
    }
    params = {name: value for name, value in known.items() if value is not None}
    condition = " AND ".join(f"{name} = ${name}" for name in params)
    low, high = where.steps or (0, 2**62)
    hit = first(
        trace,
        f"SELECT seq, step, segment FROM ops WHERE {stream.where} AND {condition} "
        f"ORDER BY NOT (coalesce(in_nonfinite, 0) = 0 AND coalesce(out_nonfinite, 0) > 0), "
        f"NOT (step BETWEEN {low} AND {high}), segment, seq LIMIT 1",
        params,
    )
    if not hit:
        return None
    rows = fetch(
        trace,
        f"SELECT * FROM (SELECT * FROM ops WHERE {stream.where} AND segment = $segment AND seq <= $seq + 12 "
        "AND (seq = $seq OR out_amax IS NOT NULL OR out_nonfinite IS NOT NULL) "
        f"ORDER BY seq > $seq + 4, seq DESC LIMIT {OPS}) ORDER BY seq",
        {"segment": hit["segment"], "seq": hit["seq"]},
    )
    content = tuple(_op(r) for r in rows)
    title = f"Ops up to it and shortly after, in order, at step {hit['step']}"
    return Table(title, _OP_COLUMNS, content, len(content))


def _op(row: Row) -> tuple[float | int | str | None, ...]:
    inputs = ", ".join(dict.fromkeys(row["in_dtypes"] or []))
    outputs = ", ".join(dict.fromkeys(row["out_dtypes"] or []))
    types = f"{inputs} → {outputs}" if inputs != outputs else inputs
    return (
        row["op"],
        row["module"],
        types,
        row["in_amax"],
        row["out_amax"],
        row["out_nonfinite"],
        row["shadow_amax"],
        _place(row),
    )


def _place(row: Row) -> str | None:
    return f"{row['file']}:{row['line']}" if row["file"] and row["line"] is not None else None


def _tensor_history(trace: TraceView, stream: Stream, finding: Finding) -> Chart | None:
    where = finding.where
    name = where.tensor or where.module
    if not name:
        return None
    condition = "name = $name OR name LIKE $name || ':%'" if where.tensor else "module = $name"
    rows = fetch(
        trace,
        "SELECT step, name, role, max(CASE WHEN nan + posinf + neginf > 0 THEN 'inf'::DOUBLE ELSE amax END) AS amax, "
        f"any_value(dtype) AS dtype FROM tensors WHERE {stream.where} AND ({condition}) "
        "GROUP BY step, name, role ORDER BY step, name, role",
        {"name": name},
    )
    series = [(r["step"], f"{r['name']} ({r['role']})", r["amax"]) for r in rows]
    marks = LIMITS if any(r["dtype"] == "float16" for r in rows) else LIMITS[:1]
    return _chart("largest |x| as stored", series, marks, log2=True)


def _updates(trace: TraceView, stream: Stream, finding: Finding) -> Chart | None:
    if "updates" not in tables_read(finding):
        return None
    where = finding.where
    condition = "true"
    params: dict[str, object] = {}
    if where.tensor:
        condition, params = "name = $name", {"name": where.tensor}
    elif where.module:
        condition, params = "module = $name", {"name": where.module}
    rows = fetch(
        trace,
        "SELECT step, name, CASE WHEN any_value(dtype) IN ('float16', 'bfloat16') "
        "THEN sum(unchanged) / nullif(sum(grad_nonzero), 0) "
        "ELSE sum(absorbed_bf16) / nullif(sum(moved), 0) END AS part "
        f"FROM updates WHERE {stream.where} AND {condition} GROUP BY step, name ORDER BY step, name",
        params,
    )
    worst: dict[str, float] = {}
    for r in rows:
        worst[r["name"]] = max(worst.get(r["name"], 0.0), r["part"] or 0.0)
    names = sorted(worst, key=lambda n: (-worst[n], n))[:LINES]
    series = [(r["step"], r["name"], r["part"]) for r in rows if r["name"] in names]
    return _chart("share of absorbed updates", series, (), log2=False)


def _chart(
    title: str,
    series: list[tuple[int, str, float | None]],
    marks: tuple[tuple[float, str], ...],
    log2: bool,
) -> Chart | None:
    if not series:
        return None
    all_steps = sorted({step for step, _, _ in series})
    stride = max(1, -(-len(all_steps) // POINTS))
    steps = tuple(all_steps[::stride])
    values: dict[str, dict[int, float | None]] = {}
    for step, name, value in series:
        values.setdefault(name, {})[step] = value
    names = sorted(values)[:LINES]
    lines = tuple(Line(name, tuple(values[name].get(step) for step in steps)) for name in names)
    known = [sum(v is not None for v in line.values) for line in lines]
    if max(known) < 2:
        return None
    return Chart(title, steps, lines, marks, log2=log2, bounds=None if log2 else (0.0, 1.0))
