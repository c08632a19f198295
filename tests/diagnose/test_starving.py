from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.diagnose.signals import Signals
from ampscope.diagnose.starving import (
    flush_evidence,
    lost_phrase,
    room_phrase,
    scale_for,
    severity_of,
    span,
    starving,
    where_lost,
)
from ampscope.trace.reader import Trace, open_trace
from tests.diagnose.handmade import op, step, write


def trace_of(path: Path, flushed: int, sqnr: float, amax: float = 2.0**-20, scale: float = 1.0) -> Trace:
    """Two sampled steps whose one fp16 op has 64 elements in float32."""
    rows = [
        op(
            i, 1, "mm", "float16", phase="backward", module="m", out_zeros=flushed, shadow_flushed=flushed,
            shadow_sqnr_db=sqnr, out_amax=amax,
        )
        for i in range(2)
    ]  # fmt: skip
    return open_trace(write(path, {"ops": rows, "steps": [step(i, scale=scale) for i in range(2)]}))


@pytest.mark.parametrize(
    ("flushed", "sqnr", "severity"),
    [(3, 10.0, None), (16, 10.0, "warning"), (60, 10.0, "critical"), (60, 70.0, None)],
)
def test_share_and_energy_decide_together(
    tmp_path: Path, flushed: int, sqnr: float, severity: str | None
) -> None:
    with trace_of(tmp_path, flushed, sqnr) as trace:
        s = Signals(trace)
        sample = starving(s, 1.0)
        assert (sample is not None) == (severity is not None)
        if sample is not None:
            assert severity_of(s, sample) == severity
            assert sample == starving(s, None, worst=True)


def test_words_and_evidence(tmp_path: Path) -> None:
    with trace_of(tmp_path, 16, 10.0) as trace:
        s = Signals(trace)
        sample = starving(s, 1.0)
        assert sample is not None
        assert lost_phrase(sample) == "25 % of the fp16 gradient elements become zero"
        assert room_phrase(sample) == "the largest is 9.54e-07, 36.0 binades below 65504"
        assert span(s) == (0, 1)
        assert where_lost(s, sample.worst).module == "m"
        assert where_lost(s, None).module is None
        values = [e.value for e in flush_evidence(s, sample) if e is not None]
    assert values == [0.25, 16, 10.0, 2.0**-20]


@pytest.mark.parametrize(
    ("amax", "scale", "expected"), [(2.0**-20, 1.0, 65536.0), (256.0, 4.0, 4.0 * 2**4), (0.0, 1.0, 65536.0)]
)
def test_the_advised_scale_leaves_room(tmp_path: Path, amax: float, scale: float, expected: float) -> None:
    with trace_of(tmp_path, 60, 1.0, amax, scale) as trace:
        sample = Signals(trace).underflow[0]
    assert scale_for(sample, 3.0, 65536.0) == expected
    assert "binades" in room_phrase(sample) or "zero" in room_phrase(sample)
