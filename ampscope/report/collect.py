"""Collects a report once from an opened trace and its diagnosis. Draws no conclusion and formats nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ampscope.diagnose.diagnosis import Coverage as Checked
from ampscope.diagnose.diagnosis import Diagnosis
from ampscope.report import collect_gradients, collect_steps, collect_tables
from ampscope.report.exhibits import exhibit
from ampscope.report.model import (
    Column,
    Coverage,
    FindingReport,
    Overhead,
    Process,
    Report,
    Run,
    Table,
)
from ampscope.report.query import Stream, TraceView, fetch, first, main_stream
from ampscope.trace.integrity import Integrity
from ampscope.trace.records import ProcessInfo, RunInfo
from ampscope.verify.outcome import Outcome, outcome_sentence

EVENTS = 30


class Source(TraceView, Protocol):
    """An opened trace, as `ampscope.trace.reader.Trace` is."""

    @property
    def path(self) -> Path: ...

    @property
    def integrity(self) -> Integrity: ...


def collect(
    trace: Source,
    diagnosis: Diagnosis,
    names: Mapping[str, str] | None = None,
    generator: str = "ampscope",
    outcomes: Sequence[Outcome] = (),
) -> Report:
    """The report of `trace`. `names` are the names of the rules by code, for the coverage; `generator` says
    which program wrote it; `outcomes` are those of `ampscope verify`."""
    stream = main_stream(trace)
    gradients = collect_gradients.read(trace, stream)
    skips, skipped_total = collect_steps.skips(trace, stream)
    flushed = collect_gradients.fact(gradients)
    table = collect_gradients.table(gradients)
    return Report(
        run=_run(trace.info),
        verdict=diagnosis.verdict,
        findings=tuple(
            FindingReport(f, exhibit(trace, stream, f), outcome_sentence(outcomes, f))
            for f in diagnosis.findings
        ),
        facts=(*([flushed] if flushed else []), *collect_tables.facts(trace, stream)),
        timeline=collect_steps.timeline(trace, stream),
        skips=skips,
        skipped_total=skipped_total,
        gradients_over_steps=collect_gradients.over_steps(gradients),
        gradients_by_tensor=collect_gradients.by_tensor(gradients),
        tables=(*([table] if table else []), *collect_tables.tables(trace, stream)),
        coverage=_coverage(diagnosis.coverage, names or {}),
        symptoms=diagnosis.symptoms,
        integrity=_integrity(trace),
        overhead=_overhead(trace, stream),
        events=_events(trace),
        crash=_crash(trace),
        generator=generator,
    )


def _run(info: RunInfo) -> Run:
    settings = {
        key: str(value)
        for key, value in sorted(info.settings.items())
        if key != "run_dir" and value not in (None, {}, [], "", False)
    }
    named = [*(p.script for p in info.processes), *(w for w in info.command if w.endswith(".py"))]
    script = next((s for s in named if s), "")
    return Run(
        command=info.command,
        script=script,
        cwd=info.cwd,
        start=info.start,
        end=info.end,
        state=info.state,
        exit=_exit(info),
        ampscope=info.version,
        trace_schema=".".join(map(str, info.schema)),
        settings=settings,
        processes=tuple(_process(p) for p in info.processes),
    )


def _exit(info: RunInfo) -> str:
    if info.exit_signal is not None:
        return f"ended by signal {info.exit_signal}"
    if info.exit_status is not None:
        return f"exit status {info.exit_status}"
    return {"live": "still running", "cut_off": "cut off: it did not end by itself"}.get(info.state, "")


def _process(info: ProcessInfo) -> Process:
    devices = tuple(
        f"{d.name or d.type}" + (f" (capability {d.capability})" if d.capability else "")
        for d in info.devices
    )
    native = [name for name, has in (("bfloat16", info.bf16_native), ("float16", info.fp16_native)) if has]
    main = {"python": info.python, "torch": info.torch}
    versions = {k: v for k, v in {**main, **dict(sorted(info.versions.items()))}.items() if v}
    cpu = info.cpu_model + (f" ({info.cpu_capability})" if info.cpu_capability else "")
    return Process(
        rank=info.rank,
        proc=info.proc,
        state=info.state,
        devices=devices,
        cpu=cpu,
        platform=info.platform,
        threads=info.num_threads,
        native=tuple(native),
        versions=versions,
    )


def _coverage(found: Checked, names: Mapping[str, str]) -> Coverage:
    return Coverage(
        fired=found.fired,
        clean=found.clean,
        not_measurable=tuple((n.code, n.why) for n in found.not_measurable),
        silenced=tuple((s.code, s.reason) for s in found.silenced),
        names=dict(names),
    )


def _integrity(trace: Source) -> tuple[str, ...]:
    found = trace.integrity
    lines = [found.sentence]
    if trace.info.state == "cut_off":
        lines.append("The run was cut off: what came after the last flush is missing.")
    if trace.info.state == "live":
        lines.append("The run was still being recorded when this was written.")
    lines += [f"Left out: {d.path}: {d.why}" for d in found.damaged[:10]]
    lines += [f"Missing: {path}" for path in found.missing[:10]]
    return tuple(lines)


def _overhead(trace: TraceView, stream: Stream) -> Overhead:
    steps = first(trace, f"SELECT sum(own_s) AS own, sum(duration_s) AS wall FROM steps WHERE {stream.where}")
    collectors = fetch(
        trace,
        f"SELECT collector, sum(host_s) AS host FROM ledger WHERE {stream.where} AND host_s IS NOT NULL "
        "GROUP BY collector ORDER BY host DESC, collector LIMIT 12",
    )
    why = fetch(
        trace,
        f"SELECT why, max(segment) AS latest FROM ledger WHERE {stream.where} AND why <> '' "
        "GROUP BY why ORDER BY latest DESC NULLS LAST, why LIMIT 2",
    )
    own = steps.get("own")
    if own is None and collectors:
        own = sum(r["host"] for r in collectors)
    return Overhead(
        own_s=own,
        wall_s=steps.get("wall"),
        collectors=tuple((r["collector"], r["host"]) for r in collectors),
        notes=tuple(f"Latest choice of the budget: {r['why']}." for r in why),
    )


def _events(trace: TraceView) -> Table | None:
    rows = fetch(
        trace,
        "SELECT step, event, level, subject, message, file, line FROM events "
        "WHERE level IN ('warning', 'error') OR event IN ('exception', 'watch_caught', 'signal') "
        f"ORDER BY t, rank, proc LIMIT {EVENTS}",
    )
    if not rows:
        return None
    columns = (
        Column("step", "number"),
        Column("event", "name"),
        Column("of", "name"),
        Column("message", "text"),
        Column("place", "path"),
    )
    content = tuple(
        (r["step"], r["event"], r["subject"], r["message"], f"{r['file']}:{r['line']}" if r["file"] else None)
        for r in rows
    )
    return Table("Events of the run and of the recorder", columns, content, len(content))


def _crash(trace: TraceView) -> str:
    row = first(
        trace,
        "SELECT traceback FROM events WHERE event = 'exception' AND traceback IS NOT NULL "
        "ORDER BY t DESC, rank, proc LIMIT 1",
    )
    return (row.get("traceback") or "").rstrip()
