from __future__ import annotations

import json

import pytest

from ampscope.report.write import FORMATS, make, to_bytes
from ampscope.trace.reader import Trace
from tests.report.handmade import SECRET, make_diagnosis


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


def test_an_unknown_format(trace: Trace) -> None:
    with pytest.raises(KeyError):
        to_bytes(make(trace, make_diagnosis()), trace, "pdf")
