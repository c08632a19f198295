"""Verifies the advice of one finding: two runs, the one that was recorded and one with the advice followed."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ampscope.diagnose.diagnosis import Diagnosis
from ampscope.diagnose.engine import diagnose
from ampscope.diagnose.finding import Evidence, Finding
from ampscope.diagnose.signals import plain
from ampscope.diagnose.text import count, sci
from ampscope.launch.options import overrides
from ampscope.patch.overlay import Overlay, make_overlay
from ampscope.patch.plan import plan
from ampscope.patch.project import Project
from ampscope.patch.refused import Refused
from ampscope.patch.sources import changed_sources
from ampscope.rerun.prefix import Prefix
from ampscope.rerun.trial import Recorder, Trial, record, steps_taken, trial_settings
from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.records import RunInfo
from ampscope.trace.runinfo import utc_now
from ampscope.verify.enough import steps_to_decide
from ampscope.verify.health import Health, health_of
from ampscope.verify.judge import Judgement, Side, judge
from ampscope.verify.outcome import How, Measure, Outcome

MOST_MEASURES = 4


@dataclass(frozen=True)
class Plan:
    """What to run: the command, where, with which overrides; `overlay` where the source is a patched copy."""

    argv: tuple[str, ...]
    cwd: Path
    overrides: dict[str, list[str]]
    overlay: Overlay | None = None


def verify(
    trace: Trace,
    finding: Finding,
    how: How,
    folder: Path,
    steps: int | None = None,
    recorder: Recorder = record,
    progress: Callable[[int, int], None] = lambda taken, wanted: None,
) -> Outcome:
    """Follow the advice of `finding` in a new run below the empty directory `folder`, and judge it.

    `steps` is how many optimizer steps to take (default: enough to decide); `progress` is told the steps taken
    and wanted. What cannot be tried is undecidable. Raises AmpscopeError when the command cannot be started.
    """
    total = steps_taken(trace)
    wanted = steps or steps_to_decide(trace, finding, total)
    try:
        todo = _plan(trace, finding, how, folder)
        trial = recorder(
            list(todo.argv),
            folder / "run",
            trial_settings(folder / "run", todo.overrides, bool(trace.info.settings.get("watch"))),
            todo.cwd,
            wanted,
            lambda taken: progress(taken, wanted),
        )
    except Refused as why:
        return _outcome(trace.info, finding, how, Judgement("undecidable", str(why)))
    if not _recorded(trial):
        found = Judgement("undecidable", f"the run with the change recorded no step{_last_words(trial)}")
        return _outcome(trace.info, finding, how, found)
    with open_trace(trial.run_dir) as second:
        return _compare(trace, second, finding, how, trial, todo, total, wanted)


def _plan(trace: Trace, finding: Finding, how: How, folder: Path) -> Plan:
    """Raises Refused for a run that cannot be run again as it was."""
    info = trace.info
    cwd = Path(info.cwd)
    _check_command(info, cwd)
    own = _own_overrides(info)
    if how == "set":
        if not finding.change.set:
            raise Refused(
                f"the advice of {finding.code} is no override; try its patch: ampscope verify --patched"
            )
        changed = changed_sources(info)
        if changed:
            raise Refused(f"{changed[0]} changed since the run: record it again")
        pairs = [f"{key}={value}" for key, value in finding.change.set.items()]
        return Plan(info.command, cwd, {**own, **overrides(pairs)})
    made = plan(Project.of(trace), [finding])
    if made.refused:
        raise Refused(f"there is no patch: {made.refused[0][1]}")
    copy = folder / "source"
    copy.mkdir(parents=True)
    overlay = make_overlay(copy, cwd, made.patches, info.command)
    return Plan(tuple(overlay.argv(info.command, cwd)), overlay.cwd(cwd), own, overlay)


def _check_command(info: RunInfo, cwd: Path) -> None:
    if info.settings.get("recorder"):
        raise Refused(
            "the run was recorded by ampscope.Recorder in the script: record it with `ampscope run`"
        )
    if info.state == "live":
        raise Refused("the run is still going on")
    if not info.command or not cwd.is_dir():
        raise Refused(f"the command ran in {info.cwd or 'a directory that was not recorded'}, which is gone")
    if "-" in info.command[1:2]:
        raise Refused("the script came from standard input")


def _own_overrides(info: RunInfo) -> dict[str, list[str]]:
    """The `--set` values that the recorded run itself had."""
    raw = info.settings.get("overrides")
    return {str(k): [str(x) for x in v] for k, v in raw.items()} if isinstance(raw, dict) else {}


def _recorded(trial: Trial) -> bool:
    with open_trace(trial.run_dir) as trace:
        return trace.has("steps") or trace.has("events")


def _last_words(trial: Trial) -> str:
    """The last line that a failed command printed."""
    if not trial.failed:
        return ""
    lines = [line.strip() for line in trial.log.read_text(errors="replace").splitlines() if line.strip()]
    return f": {lines[-1][:200]}" if lines else ""


def _compare(
    trace: Trace,
    second: Trace,
    finding: Finding,
    how: How,
    trial: Trial,
    todo: Plan,
    total: int,
    wanted: int,
) -> Outcome:
    taken = steps_taken(second)
    before_view, after_view = Prefix(trace, max(1, min(total, wanted))), Prefix(second, wanted)
    common = max(1, min(total, taken, wanted))
    before = Side(
        diagnose(before_view),
        health_of(before_view),
        _losses(trace, common),
    )
    failed = None if trial.stopped else trial.failed
    after = Side(
        _as_original(diagnose(after_view), todo.overlay),
        health_of(after_view, failed),
        _losses(second, common),
    )
    if taken == 0 and trial.failed and not second.has("events"):
        verdict = Judgement("undecidable", f"the command failed before its first step{_last_words(trial)}")
    else:
        # A command that ends by itself, and well, has taken all the steps that there are.
        needed = wanted if trial.stopped or trial.failed else max(1, min(wanted, taken))
        verdict = judge(finding, before, after, needed)
        if verdict.verdict == "refuted" and after.health.crashed and not before.health.crashed:
            verdict = replace(verdict, why=verdict.why + _last_words(trial))
    measures = _measures(finding, Prefix(trace, common), Prefix(second, common), before.health, after.health)
    return _outcome(trace.info, finding, how, verdict, min(taken, wanted), measures)


def _as_original(diagnosis: Diagnosis, overlay: Overlay | None) -> Diagnosis:
    """The findings with the user's files and lines in the place of those of a patched copy."""
    if overlay is None:
        return diagnosis
    findings = []
    for f in diagnosis.findings:
        where = f.where
        if where.file is not None:
            file, line = overlay.original(where.file, where.line)
            where = replace(where, file=file, line=line)
        findings.append(replace(f, where=where))
    return replace(diagnosis, findings=tuple(findings))


def _losses(trace: Trace, steps: int) -> tuple[float, ...]:
    """The losses of the first steps, NaN, which equals nothing, as inf; none when hardly any is finite."""
    frame = trace.sql(
        "SELECT loss FROM steps WHERE step < ? AND loss IS NOT NULL ORDER BY rank, proc, segment", [steps]
    )
    losses = tuple(math.inf if math.isnan(x) else float(x) for x in frame["loss"])
    return losses if len({x for x in losses if math.isfinite(x)}) > 1 else ()


def _measures(
    finding: Finding, before: Prefix, after: Prefix, was: Health, now: Health
) -> tuple[Measure, ...]:
    """The finding's own evidence in both runs, then how the runs went."""
    own = [_again(item, before, after) for item in finding.evidence if item.query]
    changed = [m for m in own if m is not None and m.after is not None and m.before != m.after]
    general = (
        Measure("skipped steps", was.skipped, now.skipped),
        Measure("non-finite losses", was.bad_losses, now.bad_losses),
        Measure("loss", was.last_loss, now.last_loss),
    )
    names = {m.metric for m in general}
    return (*[m for m in changed if m.metric not in names][:MOST_MEASURES], *general)


def _again(item: Evidence, before: Prefix, after: Prefix) -> Measure | None:
    """A number of the evidence, measured in both runs by its own query."""
    values = []
    for view in (before, after):
        try:
            frame = view.sql(item.query)
        except Exception:
            return None
        value = None if frame.empty else plain(frame.iat[0, 0])
        values.append(float(value) if isinstance(value, int | float) else None)
    return None if values[0] is None else Measure(item.metric, values[0], values[1], item.unit)


def _outcome(
    info: RunInfo,
    finding: Finding,
    how: How,
    found: Judgement,
    steps: int = 0,
    measures: Sequence[Measure] = (),
) -> Outcome:
    change = dict(finding.change.set) if how == "set" else {}
    return Outcome(
        code=finding.code,
        where=finding.where,
        verdict=found.verdict,
        how=how,
        sentence=_sentence(found, how, change, steps, measures),
        steps=steps,
        change=change,
        measures=tuple(measures),
        when=utc_now(),
        version=info.version,
    )


def _sentence(
    found: Judgement, how: How, change: dict[str, str], steps: int, measures: Sequence[Measure]
) -> str:
    tried = (
        " ".join(f"--set {shlex.quote(f'{k}={v}')}" for k, v in change.items())
        if how == "set"
        else "the patch"
    )
    run = f" after {count(steps, 'step')} with {tried}" if steps and tried else ""
    told = [m for m in measures if m.before is not None or m.after is not None]
    told = [m for m in told if m.before != m.after or m.metric == "loss"]
    numbers = ", ".join(f"{m.metric} {_number(m.before)} → {_number(m.after)}" for m in told)
    return f"{found.verdict}: {found.why}{run}" + (f" ({numbers})." if numbers else ".")


def _number(value: float | None) -> str:
    return "none" if value is None else sci(value)
