"""What Markdown and HTML say in the same words: captions, values, environment, privacy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath

from ampscope.diagnose.finding import Finding, Where
from ampscope.report import text
from ampscope.report.model import Coverage, Fact, Kind, Overhead, Privacy, Process, Report, Run, Value


def value(kind: Kind, content: Value) -> str:
    """A value of a table or fact as plain text, by the kind of its column."""
    if content is None or isinstance(content, str | bool):
        return text.number(content)
    if kind == "share":
        return text.share(float(content))
    if kind == "seconds":
        return text.seconds(float(content))
    if kind == "bytes":
        return text.size(float(content))
    if kind == "power":
        return text.power(float(content))
    return text.number(content)


def is_number(kind: Kind) -> bool:
    """Whether a column is set flush right."""
    return kind not in ("name", "text", "path")


def counts(report: Report) -> str:
    """`1 critical, 2 warnings, 1 info`, or `no finding`."""
    severities = [f.finding.severity for f in report.findings]
    said = [
        f"{severities.count('critical')} critical" if "critical" in severities else "",
        text.plural(severities.count("warning"), "warning") if "warning" in severities else "",
        f"{severities.count('info')} info" if "info" in severities else "",
    ]
    return ", ".join(part for part in said if part) or "no finding"


def title(report: Report) -> str:
    """Name of the report: the script that was run."""
    return f"ampscope report: {PurePath(report.run.script).name or 'recorded run'}"


def place(where: Where) -> list[tuple[str, str]]:
    """(label, content) of what is known of a place, without the steps."""
    file = f"{where.file}:{where.line}" if where.file and where.line is not None else where.file
    known = (("module", where.module), ("tensor", where.tensor), ("op", where.op), ("line", file))
    return [(name, content) for name, content in known if content]


def override(finding: Finding) -> str:
    """The command that tries the change without editing the script, or ""."""
    if not finding.change.set:
        return ""
    settings = " ".join(f"--set {shlex.quote(f'{k}={v}')}" for k, v in sorted(finding.change.set.items()))
    return f"ampscope run {settings} …"


def verification(outcome: str) -> str:
    """Whether the advice was tried."""
    return outcome or "not verified by a re-run"


def fact(item: Fact) -> tuple[str, str, str]:
    """(label, value, detail) of a fact; the detail says how it was obtained."""
    extra = ", ".join(part for part in (item.basis, item.detail) if part)
    return item.label, value(item.kind, item.value), extra


def coverage(found: Coverage) -> str:
    """The coverage line."""
    total = sum(map(len, (found.fired, found.clean, found.not_measurable, found.silenced)))
    parts = [
        f"{len(found.fired)} found",
        f"{len(found.clean)} clean",
        f"{len(found.not_measurable)} not measurable",
    ]
    if found.silenced:
        parts.append(f"{len(found.silenced)} silenced")
    return f"{total} diagnoses: {', '.join(parts)}."


def overhead(cost: Overhead) -> str:
    """What the recorder itself cost."""
    if cost.share is None:
        return "The recorder's own time was not measured."
    return (
        f"The recorder took {text.seconds(cost.own_s)} of {text.seconds(cost.wall_s)} recorded time "
        f"({text.share(cost.share)})."
    )


def privacy(state: Privacy) -> str:
    """What was taken out, in one sentence."""
    if not state.redacted:
        return "Not redacted: paths, names and command-line values are as they were recorded."
    if not state.removed:
        return "Redacted: nothing private was found to take out."
    parts = [f"{r.kind} ({text.plural(r.places, 'place')}, {r.distinct} different)" for r in state.removed]
    return f"Redacted before it left the machine: {', '.join(parts)}."


def command(words: Sequence[str]) -> str:
    """A command line as one types it; placeholders and `~` need no quotes to be read."""
    plain = re.compile(r"[\w@%+=:,./~<>-]+")
    return " ".join(w if plain.fullmatch(w) else shlex.quote(w) for w in words) or "not recorded"


def environment(run: Run) -> list[tuple[str, str]]:
    """(label, content) lines about the run and its machines; processes that are alike share a line."""
    rows = [
        ("command", command(run.command)),
        ("started", run.start or "not recorded"),
        ("ended", f"{run.end or 'not recorded'}, {run.exit}" if run.exit else run.end or "not recorded"),
        ("trace", f"{run.state.replace('_', ' ')}, schema {run.trace_schema}"),
        ("recorded by", f"ampscope {run.ampscope}" if run.ampscope else "not recorded"),
        ("settings", ", ".join(f"{k}={v}" for k, v in run.settings.items()) or "defaults"),
    ]
    groups: dict[tuple[tuple[str, str], ...], list[Process]] = {}
    for process in run.processes:
        groups.setdefault(tuple(_process(process)), []).append(process)
    for described, members in groups.items():
        if len(groups) > 1 or len(members) > 1:
            who = ", ".join(f"rank {p.rank} process {p.proc}" for p in members[:8])
            rows.append(("processes", who + (f" and {len(members) - 8} more" if len(members) > 8 else "")))
        rows += described
    return rows


def _process(process: Process) -> list[tuple[str, str]]:
    versions = ", ".join(f"{name} {version}" for name, version in process.versions.items())
    native = ", ".join(process.native) or "neither bfloat16 nor float16"
    return [
        ("device", "; ".join(process.devices) or "CPU only"),
        ("CPU", f"{process.cpu or 'not recorded'}, {text.plural(process.threads, 'thread')}"),
        ("native half types", native),
        ("platform", process.platform or "not recorded"),
        ("versions", versions or "not recorded"),
    ]
