"""A diagnosis on a terminal: readable at 80 columns, plain when it is piped. Renders, decides nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ampscope.diagnose.diagnosis import Coverage, Diagnosis, RunSummary
from ampscope.diagnose.finding import Evidence, Finding, Where
from ampscope.diagnose.text import count, listed, sci, steps_phrase

STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "bold cyan"}


def render(diagnosis: Diagnosis, root: str = "") -> Iterator[RenderableType]:
    """The parts of the screen from top to bottom. `root` is cut from the front of file names."""
    yield Text(diagnosis.verdict, style="bold")
    yield Text(_run_line(diagnosis.run), style="dim")
    for finding in diagnosis.findings:
        yield Text()
        yield _finding(finding, root)
    for symptom in diagnosis.symptoms:
        yield Text()
        yield Text(f"Not explained: {symptom}")
    yield Text()
    yield from _coverage(diagnosis.coverage)


def as_text(diagnosis: Diagnosis, root: str = "", width: int = 80, color: bool = False) -> str:
    """The screen as text of at most `width` columns, with no space at the end of a line."""
    console = Console(
        width=width, force_terminal=color, no_color=not color, color_system="standard" if color else None
    )
    with console.capture() as capture:
        for part in render(diagnosis, root):
            console.print(part, highlight=False)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines()) + "\n"


def _run_line(run: RunSummary) -> str:
    command = " ".join(os.path.basename(word) if i == 0 else word for i, word in enumerate(run.command))
    parts = [
        command[:60],
        f"{count(run.steps, 'step')}, {run.skipped} skipped",
        f"torch {run.torch}" if run.torch else "",
        run.device,
        {"cut_off": "cut off", "live": "still running"}.get(run.state, ""),
    ]
    return " · ".join(p for p in parts if p)


def _finding(finding: Finding, root: str) -> RenderableType:
    style = STYLES[finding.severity]
    head = Text.assemble((finding.severity.upper(), style), " ", (f"{finding.code} {finding.name}", "bold"))
    place = _place(finding.where, root)
    body: list[RenderableType] = [Text(place, style="dim")] if place else []
    body.append(Text(finding.claim))
    body.append(Text.assemble(("Do: ", "bold green"), finding.recommendation))
    body += [Text(f"  {line}", style=_diff_style(line)) for line in finding.change.diff.splitlines()]
    for key, value in finding.change.set.items():
        body.append(Text(f"Try: ampscope run --set {key}={value} …", style="green"))
    if finding.evidence:
        body.append(_evidence(finding.evidence))
    if finding.falsifier:
        body.append(Text.assemble(("Wrong if: ", "dim"), (finding.falsifier, "dim")))
    if finding.symptoms:
        body.append(Text("It explains:", style="dim"))
        body += [Padding(Text(s, style="dim"), (0, 0, 0, 2)) for s in finding.symptoms]
    return Group(head, Padding(Group(*body), (0, 0, 0, 2)))


def _diff_style(line: str) -> str:
    return {"+": "green", "-": "red"}.get(line[:1], "dim")


def _place(where: Where, root: str) -> str:
    parts = []
    if where.file:
        file = where.file.removeprefix(root.rstrip("/") + "/") if root else where.file
        parts.append(f"{file}:{where.line}" if where.line else file)
    parts += [f"{kind} {name}" for kind, name in (("module", where.module), ("tensor", where.tensor)) if name]
    parts += [where.op] if where.op else []
    parts += [steps_phrase(*where.steps)] if where.steps is not None else []
    return ", ".join(parts)


def _evidence(evidence: tuple[Evidence, ...]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(overflow="fold")
    table.add_column(justify="right", overflow="fold")
    table.add_column(overflow="fold")
    for e in evidence:
        number = isinstance(e.value, int | float) and not isinstance(e.value, bool)
        value = sci(e.value) if number and not isinstance(e.value, str) else str(e.value)
        table.add_row(e.metric, f"{value} {e.unit}".strip(), e.basis, style="dim")
    return table


def _coverage(coverage: Coverage) -> Iterator[RenderableType]:
    yield Text(f"Checked and clean: {len(coverage.clean)}. {' '.join(coverage.clean)}".strip(), style="dim")
    reasons: Counter[str] = Counter(n.why for n in coverage.not_measurable)
    if reasons:
        yield Text(f"Not measurable: {len(coverage.not_measurable)}, because", style="dim")
    for why, n in reasons.most_common():
        codes = [m.code for m in coverage.not_measurable if m.why == why]
        yield Padding(
            Text(f"{why} ({listed(codes, 4) if n < 5 else f'{n} rules'})", style="dim"), (0, 0, 0, 2)
        )
    for s in coverage.silenced:
        yield Text(f"Silenced: {s.code}, {s.reason}", style="dim")
