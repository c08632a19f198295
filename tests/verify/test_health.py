from __future__ import annotations

import math
from pathlib import Path

import pytest

from ampscope.rerun.prefix import Prefix
from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.runinfo import create_run, finish_run
from ampscope.trace.writer import TraceWriter
from ampscope.verify.health import health_of

Row = dict[str, object]


def health(
    run: Path, steps: list[Row], events: tuple[Row, ...] = (), nonfinite: tuple[Row, ...] = ()
) -> tuple[str, ...]:
    create_run(run, ["train.py"], {})
    writer = TraceWriter(run)
    writer.add(
        "steps",
        [
            {"step": i, "segment": i, "proc": 0, "outcome": "stepped", "loss": 1.0, **s}
            for i, s in enumerate(steps)
        ],
    )
    writer.add("events", [{"proc": 0, "t": 0.0, **e} for e in events])
    writer.add("nonfinite", [{"step": 0, "segment": 0, "proc": 0, **n} for n in nonfinite])
    writer.close()
    finish_run(run, 0)
    with open_trace(run) as trace:
        return health_of(trace).ills


@pytest.mark.parametrize(
    ("steps", "events", "nonfinite", "ills"),
    [
        ([{}] * 8, (), (), ()),
        ([{"outcome": "skipped"}] * 4 + [{}] * 4, (), (), ()),
        ([{}] * 4 + [{"outcome": "skipped"}] * 4, (), (), ("most steps are skipped",)),
        ([{"loss": math.inf}] * 4 + [{}] * 4, (), (), ()),
        ([{}] * 7 + [{"loss": math.nan}], (), (), ("the loss is NaN or inf",)),
        ([{}] * 8, ({"event": "exception", "subject": "RuntimeError"},), (), ("it ends with an error",)),
        ([{}] * 8, ({"event": "exception", "subject": "KeyboardInterrupt"},), (), ()),
        ([{}] * 8, (), ({"name": "w", "role": "weight"},), ("weights hold NaN or inf",)),
        ([{}] * 8, (), ({"name": "w", "role": "grad"},), ()),
        ([], (), (), ()),
    ],
)  # fmt: skip
def test_what_makes_a_run_ill(
    tmp_path: Path,
    steps: list[Row],
    events: tuple[Row, ...],
    nonfinite: tuple[Row, ...],
    ills: tuple[str, ...],
) -> None:
    assert health(tmp_path / "run", steps, events, nonfinite) == ills


def test_the_numbers_of_a_run(sawtooth: Trace) -> None:
    found = health_of(Prefix(sawtooth, 40))
    assert found.steps == 40
    assert 5 <= found.skipped <= 20
    assert found.last_loss is not None
    assert found.bad_losses == 0
    assert health_of(sawtooth, failed=True).ills == ("it ends with an error",)
