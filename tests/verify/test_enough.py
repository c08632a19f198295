from __future__ import annotations

from dataclasses import replace

from ampscope.diagnose.engine import diagnose
from ampscope.trace.reader import Trace
from ampscope.verify.enough import LEAST, MARGIN, first_seen, steps_to_decide


def test_the_finding_shows_before_the_end(sawtooth: Trace) -> None:
    finding = next(f for f in diagnose(sawtooth).findings if f.code == "AMP202")
    seen = first_seen(sawtooth, finding, 60)
    assert seen in (16, 32)
    assert steps_to_decide(sawtooth, finding, 60) == max(LEAST, MARGIN * seen)


def test_a_finding_that_never_shows_takes_the_whole_run(sawtooth: Trace) -> None:
    finding = next(f for f in diagnose(sawtooth).findings if f.code == "AMP202")
    assert first_seen(sawtooth, replace(finding, code="AMP501"), 60) == 60
    assert first_seen(sawtooth, replace(finding, code="AMP999"), 60) == 60
    assert steps_to_decide(sawtooth, replace(finding, code="AMP999"), 2) == LEAST
