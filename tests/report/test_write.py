from __future__ import annotations

import json
from pathlib import Path

import pytest

from ampscope.report.write import FORMATS, make, to_bytes
from ampscope.trace.reader import Trace, open_trace
from ampscope.verify.outcome import Outcome, write_outcomes
from tests.report.handmade import SECRET, make_diagnosis, make_run


@pytest.mark.parametrize("chosen", FORMATS)
def test_every_format_can_be_made_and_is_redacted(trace: Trace, chosen: str) -> None:
    made = make(trace, make_diagnosis())
    data = to_bytes(made, trace, chosen)
    assert len(data) > 1000
    assert SECRET.encode() not in data
    assert made.report.privacy.redacted


def test_it_says_who_wrote_it_and_names_the_rules(trace: Trace) -> None:
    said = json.loads(to_bytes(make(trace, make_diagnosis(), redact=False), trace, "json"))
    assert said["generator"].startswith("ampscope ")
    assert said["coverage"]["names"]["AMP101"] == "clip-before-unscale"
    assert said["privacy"] == {"redacted": False, "removed": []}
    assert SECRET in said["run"]["command"]


def test_outcomes_kept_with_the_run_are_in_every_report(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    diagnosis = make_diagnosis()
    first = diagnosis.findings[0]
    write_outcomes(
        tmp_path / "run", [Outcome(first.code, first.where, "refuted", "set", "refuted: it is still there.")]
    )
    with open_trace(tmp_path / "run") as trace:
        made = make(trace, diagnosis)
        for chosen in ("md", "html", "json"):
            assert b"refuted: it is still there." in to_bytes(made, trace, chosen)


def test_an_unknown_format(trace: Trace) -> None:
    with pytest.raises(KeyError):
        to_bytes(make(trace, make_diagnosis()), trace, "pdf")
