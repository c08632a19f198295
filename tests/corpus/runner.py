"""Runs one script of the corpus recorded, and plain where asked, each in a process of its own; diagnoses the trace."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from ampscope.diagnose.diagnosis import Diagnosis
from ampscope.diagnose.engine import diagnose
from ampscope.diagnose.finding import Finding
from ampscope.hooks.settings import Settings
from ampscope.trace.reader import open_trace
from ampscope.trace.runinfo import create_run, finish_run
from tests.support.forkserver import ForkServer, Outcome

CASES = Path(__file__).with_name("cases")
TIMES = re.compile(r"\d+(\.\d+)? ms|slowdown x\d+(\.\d+)?")
"""A few scripts print how long they took: the only part of stdout that may differ between two runs."""


@dataclass(frozen=True)
class Case:
    """One script and what is known of it. `expect`: any of these is right as the first finding; `also`: true
    as well, and no false alarm. Both are empty for a healthy script. `status` is the exit status."""

    file: str
    expect: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    status: int = 0

    @property
    def path(self) -> Path:
        return CASES / self.file

    @property
    def healthy(self) -> bool:
        return not self.expect


@dataclass(frozen=True)
class Result:
    """`plain` is None where only the recorded run was asked for."""

    plain: Outcome | None
    recorded: Outcome
    diagnosis: Diagnosis


@dataclass(frozen=True)
class Mark:
    """How a diagnosis compares with what is known: rank of the first right finding (1 is the first finding of
    all; None: missed or healthy) and the warnings and criticals that nothing justifies."""

    rank: int | None
    false_alarms: tuple[str, ...]


def load_cases() -> list[Case]:
    """Every script: the faults, their repaired twins and the healthy controls, in file order."""
    cases = []
    for entry in [
        *json.loads((CASES / "cases.json").read_text()),
        *json.loads((CASES / "more.json").read_text()),
    ]:
        cases.append(Case(entry["file"], tuple(entry["expect"]), tuple(entry["also"]), entry["exit"]))
        if entry.get("fixed"):
            cases.append(Case(entry["fixed"]))
    return cases


def run_case(case: Case, server: ForkServer, run_dir: Path, plain: bool) -> Result:
    """Record `case` and diagnose it, after a run without ampscope if `plain`; the trace stays in `run_dir`."""
    without = server.run(case.path, cwd=CASES) if plain else None
    settings = Settings(run_dir=str(run_dir), quiet=True, strict=True)
    env: dict[str, str] = {}
    settings.to_env(env)
    create_run(run_dir, ["python", case.file], {"level": settings.level, "every": None})
    recorded = server.run(case.path, env=env, cwd=CASES)
    finish_run(run_dir, max(recorded.status, 0), -recorded.status if recorded.status < 0 else None)
    with open_trace(run_dir) as trace:
        return Result(without, recorded, diagnose(trace))


def mark(case: Case, findings: tuple[Finding, ...]) -> Mark:
    """Compare findings, best first, with what is known of the case."""
    rank = next((i for i, f in enumerate(findings, 1) if f.code in case.expect), None)
    known = {*case.expect, *case.also}
    alarms = tuple(f.code for f in findings if f.severity != "info" and f.code not in known)
    return Mark(rank, alarms)


def same_behaviour(case: Case, result: Result) -> list[str]:
    """What recording changed that a user would see: sentences, empty when nothing did."""
    plain, recorded = result.plain, result.recorded
    wrong = []
    if plain is None:
        if recorded.status != case.status:
            wrong.append(f"exit status {recorded.status}, not {case.status}: {recorded.stderr[-500:]}")
        return wrong
    if plain.status != case.status:
        wrong.append(f"plain python exits with {plain.status}, not with {case.status}: {plain.stderr[-500:]}")
    if recorded.status != plain.status:
        wrong.append(f"exit status {recorded.status} where plain python has {plain.status}")
    if TIMES.sub("TIME", recorded.stdout) != TIMES.sub("TIME", plain.stdout):
        wrong.append(f"stdout differs:\n{recorded.stdout}\n-- plain --\n{plain.stdout}")
    if recorded.stderr != plain.stderr:
        wrong.append(f"stderr differs:\n{recorded.stderr}\n-- plain --\n{plain.stderr}")
    return wrong


def row(case: Case, result: Result, marked: Mark) -> dict[str, str]:
    """One line of the table that the test session prints."""
    named = [f"{f.code}{'' if f.severity != 'info' else ' (info)'}" for f in result.diagnosis.findings]
    return {
        "file": case.file,
        "expect": " or ".join(case.expect) or "-",
        "found": ", ".join(named) or "-",
        "rank": "" if case.healthy else str(marked.rank or "missed"),
        "false_alarms": " ".join(marked.false_alarms),
        "healthy": "1" if case.healthy else "",
    }
