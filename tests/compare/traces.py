"""Small runs made by hand, to be compared."""

from __future__ import annotations

from pathlib import Path

from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.records import ProcessInfo
from ampscope.trace.runinfo import claim_process, create_run, finish_run
from ampscope.trace.writer import TraceWriter

Row = dict[str, object]


def make_trace(run: Path, tables: dict[str, list[Row]], settings: dict[str, object] | None = None) -> Trace:
    """A recorded run that holds these rows; step and segment are the row's number where it gives none."""
    create_run(run, ["python", "train.py", run.name], settings or {})
    claim_process(run, 0, ProcessInfo(torch="2.13.0", num_threads=1))
    writer = TraceWriter(run)
    for table, rows in tables.items():
        writer.add(table, [{"step": i, "segment": i, "proc": 0, **row} for i, row in enumerate(rows)])
    writer.close()
    finish_run(run, 0)
    return open_trace(run)


def tensor(name: str, step: int, rms: float, **more: object) -> Row:
    """A tensor of 100 elements."""
    stats = {
        "numel": 100,
        "sumsq": 100 * rms * rms,
        "amax": 3 * rms,
        "zeros": 0,
        "nan": 0,
        "posinf": 0,
        "neginf": 0,
    }
    return {
        "name": name,
        "step": step,
        "segment": step,
        "role": "activation",
        "dtype": "float32",
        "module": name,
        **stats,
        **more,
    }


def losses(*values: float) -> list[Row]:
    return [{"loss": value, "outcome": "stepped", "level": "pulse", "duration_s": 0.01} for value in values]
