"""Run: command, environment, settings, integrity of the trace, what ampscope cost, events, downloads."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dash import html

from ampscope.app import tables
from ampscope.app.blocks import chips, code, facts, notice
from ampscope.app.downloads import FILES, REPORTS, File, link
from ampscope.app.page import Page, Part
from ampscope.app.queries import runlog, timing
from ampscope.app.runs import Context
from ampscope.report.text import number, plural, seconds, size
from ampscope.trace.records import ProcessInfo


def _command(context: Context) -> Any:
    info = context.run.trace.info
    ended = "still running"
    if info.state != "live":
        ended = "not recorded: the run was cut off"
        if info.end:
            ended = _clock(info.end) + _took(info.start, info.end)
    status = number(info.exit_status) if info.exit_signal is None else f"killed by signal {info.exit_signal}"
    return [
        code(shlex.join(info.command) or "(not recorded)"),
        facts(
            [
                ("directory", str(context.run.trace.path)),
                ("started in", info.cwd),
                ("started", _clock(info.start)),
                ("ended", ended),
                ("exit status", status),
                ("recorded by", f"ampscope {info.version}" if info.version else "unknown"),
                ("trace schema", ".".join(map(str, info.schema))),
            ]
        ),
    ]


def _clock(stamp: str) -> str:
    """`2026-11-29 15:22:01 UTC`; what is no such stamp stays as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z", stamp)
    return f"{found[1]} {found[2]} UTC" if found else stamp


def _took(start: str, end: str) -> str:
    """`, after 12.2 s`; nothing where one of the two is no stamp."""
    try:
        spent = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    except (ValueError, TypeError):
        return ""
    return f", after {seconds(spent.total_seconds())}"


def _settings(context: Context) -> Any:
    rows = [
        (k, _setting(v))
        for k, v in sorted(context.run.trace.info.settings.items())
        if v not in (None, "", {}, [])
    ]
    return facts(rows) if rows else notice("No settings were recorded")


def _setting(value: object) -> str:
    return number(value) if isinstance(value, int | float | str | bool) else repr(value)


def _process(context: Context) -> Any:
    found = [
        p
        for p in context.run.trace.info.processes
        if (p.rank, p.proc) == (context.src.rank, context.src.proc)
    ]
    if not found:
        return notice("Nothing is known of the process", "Its record is missing.")
    return facts(_environment(found[0]))


def _environment(p: ProcessInfo) -> list[tuple[str, Any]]:
    devices = [f"{d.name} ({d.type}, capability {d.capability}, {size(d.memory)})" for d in p.devices]
    return [
        ("process", f"rank {p.rank}, pid {p.pid}, {p.state}"),
        ("script", p.script),
        ("torch", p.torch),
        ("platform", p.platform),
        ("processor", f"{p.cpu_model} ({p.cpu_capability})" if p.cpu_capability else p.cpu_model),
        ("threads", number(p.num_threads)),
        ("devices", chips(devices) if devices else "no accelerator"),
        ("native bfloat16", number(p.bf16_native)),
        ("native float16", number(p.fp16_native)),
        ("versions", chips([f"{k} {v}" for k, v in sorted(p.versions.items())])),
    ]


def _integrity(context: Context) -> Any:
    found = context.run.trace.integrity
    counts = {k: n for k, n in runlog.row_counts(context.src).items() if n}
    pieces: list[Any] = []
    if not found.sound:
        lost = [f"{d.path}: {d.why}" for d in found.damaged] + [f"{m}: missing" for m in found.missing]
        pieces.append(
            notice("Part of this trace is lost; everything else is shown", "\n".join(lost[:40]), "warning")
        )
    whole = " All of them are whole." if found.sound else ""
    text = f"{plural(found.parts, 'part file')}, {found.rows:,} rows, {size(found.bytes)}.{whole}"
    pieces.append(html.P(text, className="subtitle"))
    pieces.append(
        chips([f"{name}: {n:,} {'row' if n == 1 else 'rows'}" for name, n in counts.items()] or ["no rows"])
    )
    return pieces


def _ledger(context: Context) -> Any:
    rows = timing.ledger(context.src)
    if rows.empty:
        return notice("No cost was recorded")
    columns = [
        tables.Col("collector", "collector", width=150),
        tables.Col("calls", "calls", "count", 95),
        tables.Col("host_s", "host time", "seconds", 105),
        tables.Col("device_s", "device time", "seconds", 120),
        tables.Col("elements", "elements read", "count", 130),
        tables.Col("rows", "rows", "count", 90),
        tables.Col("why", "what the budget chose, and why"),
    ]
    return tables.grid(rows, columns, "What each collector cost")


def _events(context: Context) -> Any:
    rows = runlog.events(context.src)
    if rows.empty:
        return notice("Nothing out of the ordinary happened")
    columns = [
        tables.Col("t", "time", "seconds", 95),
        tables.Col("step", "step", "count", 80),
        tables.Col("event", "event", width=140),
        tables.Col("level", "level", width=85),
        tables.Col("subject", "subject", width=140),
        tables.Col("message", "message"),
        tables.Col("place", "line", width=150),
    ]
    return tables.grid(rows, columns, "Events of the run")


def _parameters(context: Context) -> Any:
    rows = runlog.parameters(context.src)
    if rows.empty:
        return notice("No parameter was recorded")
    columns = [
        tables.Col("dtype", "stored as", width=110),
        tables.Col("parameters", "parameters", "count", 110),
        tables.Col("elements", "elements", "count", 120),
        tables.Col("trainable", "trainable", "count", 100),
        tables.Col("optimizers", "optimizers"),
    ]
    return tables.grid(rows, columns, "Parameters by stored dtype")


def _downloads(context: Context) -> Any:
    return [
        html.P("Report for a ticket, redacted", className="subtitle"),
        _links(context, REPORTS),
        html.P("Data, not redacted", className="subtitle"),
        _links(context, FILES),
    ]


def _links(context: Context, files: Sequence[File]) -> Any:
    return html.Ul([html.Li([link(context, f), f" {f.about}"]) for f in files], className="downloads")


def _parts(context: Context) -> list[Part]:
    return [
        Part("command", _command, "Command", width=6, height=240),
        Part("process", _process, "Environment", width=6, height=240),
        Part("integrity", _integrity, "Trace", width=4, height=140),
        Part("settings", _settings, "Settings", width=4, height=140),
        Part("downloads", _downloads, "Downloads", width=4, height=140),
        Part("ledger", _ledger, "What ampscope cost", height=200),
        Part("parameters", _parameters, "Parameters", height=120),
        Part("events", _events, "Events", height=200),
    ]


PAGE = Page(slug="run", title="Run", icon="run", parts=_parts)
