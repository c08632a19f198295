"""One command in several precisions: a recorded run of each, and a row of numbers for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ampscope.compare.headline import Headline, headline
from ampscope.compare.losses import curves
from ampscope.diagnose.diagnosis import Diagnosis
from ampscope.diagnose.engine import diagnose
from ampscope.diagnose.signals import TraceView
from ampscope.hooks.settings import Settings
from ampscope.launch.options import overrides
from ampscope.rerun.prefix import Prefix
from ampscope.rerun.trial import Recorder, Trial, record
from ampscope.trace.reader import open_trace

SAME_START = 0.05
"""The losses of the first step come from the same weights and data in a seeded script: what precision does to
them is below this."""


@dataclass(frozen=True)
class Row:
    """One precision. `distance` is that of its loss curve to the first precision's, relative; `verdict` is short;
    `ended` says how the command ended when it did not end well. `headline` is None where nothing was recorded."""

    precision: str
    run_dir: str
    headline: Headline | None
    distance: float | None
    verdict: str
    ended: str = ""


@dataclass(frozen=True)
class Table:
    """A row for each precision, the first being what the others are compared with, and what cannot be compared."""

    command: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def speed(self, row: Row) -> float | None:
        """How many times as many steps per second as the first row; None where not measured."""
        first, this = self.rows[0].headline, row.headline
        if first is None or this is None or not first.step_s or not this.step_s:
            return None
        return first.step_s / this.step_s


def compare_precisions(
    argv: Sequence[str],
    precisions: Sequence[str],
    folder: Path,
    cwd: Path,
    steps: int | None = None,
    recorder: Recorder = record,
    progress: Callable[[str, int], None] = lambda precision, taken: None,
) -> Table:
    """Run `argv` once in each precision, one after the other, into `folder/PRECISION`.

    `steps` ends each run after so many optimizer steps. `progress` is told the precision and the steps taken.
    Raises AmpscopeError when the command cannot be started.
    """
    trials = [_run(p, argv, folder, cwd, steps, recorder, progress) for p in precisions]
    traces = [open_trace(trial.run_dir) for trial in trials]
    # A run that is ended from outside takes some steps more than it was asked for: all are cut to the same.
    views: list[TraceView] = [Prefix(t, steps) if steps is not None else t for t in traces]
    try:
        rows = [
            _row(p, trial, view, views[0]) for p, trial, view in zip(precisions, trials, views, strict=True)
        ]
        return Table(tuple(argv), tuple(rows), tuple(_notes(precisions, rows, views)))
    finally:
        for trace in traces:
            trace.close()


def _run(
    precision: str,
    argv: Sequence[str],
    folder: Path,
    cwd: Path,
    steps: int | None,
    recorder: Recorder,
    progress: Callable[[str, int], None],
) -> Trial:
    run_dir = folder / precision
    # The default budget: what is read must not change what is timed.
    settings = Settings(
        run_dir=str(run_dir.absolute()), overrides=overrides((), precision), quiet=True, flush_seconds=1.0
    )
    return recorder(argv, run_dir, settings, cwd, steps, lambda taken: progress(precision, taken))


def _row(precision: str, trial: Trial, trace: TraceView, first: TraceView) -> Row:
    ended = ""
    if trial.failed:
        how = (
            f"signal {trial.ended.signal}"
            if trial.ended.signal is not None
            else f"exit status {trial.ended.status}"
        )
        ended = f"{how}{last_line(trial.log)}"
    if not _has_steps(trace):
        return Row(precision, str(trial.run_dir), None, None, "nothing recorded", ended)
    distance = None if trace is first else curves(first, trace).distance
    return Row(
        precision, str(trial.run_dir), headline(trace), distance, short_verdict(diagnose(trace)), ended
    )


def short_verdict(diagnosis: Diagnosis) -> str:
    """`healthy`, or the first finding and how many more."""
    serious = [f for f in diagnosis.findings if f.severity != "info"]
    if not serious:
        return "unexplained symptoms" if diagnosis.symptoms else "healthy"
    more = f" +{len(serious) - 1}" if len(serious) > 1 else ""
    return f"{serious[0].code} {serious[0].name}{more}"


def last_line(log: Path) -> str:
    """`: ` and the last line that was printed; "" when there is none."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f": {lines[-1][:160]}" if lines else ""


def _notes(precisions: Sequence[str], rows: Sequence[Row], traces: Sequence[TraceView]) -> list[str]:
    """What the reader of the table must know."""
    seen = [(p, t) for p, t in zip(precisions, traces, strict=True) if _has_steps(t)]
    if not seen:
        return ["No run recorded a training step: the log of each says why."]
    half = [p for p, _ in seen if p in ("fp16", "bf16")]
    notes = []
    if half and not any(_count(t, "call = 'autocast.enter' AND file IS NOT NULL") for _, t in seen):
        notes.append(
            f"The script enters no autocast context: {' and '.join(half)} ran with one round each root module; "
            "what it computes outside of them stayed in float32."
        )
    if "fp16" in half and not any(_count(t, "call IN ('scaler.init', 'scaler.scale')") for _, t in seen):
        notes.append("The script has no GradScaler: fp16 ran without loss scaling.")
    stored = sorted({d for _, t in seen for d in _half_parameters(t)})
    if stored:
        notes.append(f"Parameters are stored in {' and '.join(stored)} by the script itself, in every row.")
    notes += _start_note(seen)
    counts = {row.headline.steps for row in rows if row.headline is not None}
    if len(counts) > 1:
        notes.append("The runs took different numbers of steps; losses are compared at those that both have.")
    if rows[0].headline is not None and not rows[0].headline.on_device:
        notes.append("Memory is the resident memory of the process: activations are only part of it.")
    return notes


def _start_note(seen: Sequence[tuple[str, TraceView]]) -> list[str]:
    first = seen[0][1]
    for precision, trace in seen[1:]:
        both = curves(first, trace)
        if both.steps and both.steps[0] == 0:
            a, b = both.at(0)
            if math.isfinite(a) and math.isfinite(b) and abs(a - b) > SAME_START * max(abs(a), abs(b)):
                return [
                    f"The loss of step 0 already differs between {seen[0][0]} and {precision}: the script seems "
                    "not to be seeded, so the loss curves show chance as well as precision."
                ]
    return []


def _has_steps(trace: TraceView) -> bool:
    return bool(trace.sql("SELECT count(*) AS n FROM steps")["n"].iloc[0])


def _count(trace: TraceView, condition: str) -> int:
    return int(trace.sql(f"SELECT count(*) AS n FROM calls WHERE {condition}")["n"].iloc[0])


def _half_parameters(trace: TraceView) -> list[str]:
    query = "SELECT DISTINCT dtype FROM params WHERE requires_grad AND dtype IN ('float16', 'bfloat16')"
    return [str(d) for d in trace.sql(query)["dtype"]]
