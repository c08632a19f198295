"""The committed traces are whole, small, free of machine paths, and are diagnosed as their README says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ampscope.diagnose.engine import diagnose
from ampscope.trace.reader import open_trace

SAMPLES = Path(__file__).parents[2] / "sample_traces"
EXPECTED = {
    "healthy-fp16-gpt": None,
    "gradient-underflow": "AMP203",
    "half-reduction-overflow": "AMP403",
    "bf16-absorbed-updates": "AMP501",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_is_diagnosed_as_documented(name: str) -> None:
    with open_trace(SAMPLES / name) as trace:
        diagnosis = diagnose(trace)
        assert trace.integrity.sound
        assert trace.info.state == "complete"

    alarms = [finding.code for finding in diagnosis.at_or_above("warning")]
    assert alarms == ([] if EXPECTED[name] is None else [EXPECTED[name]])


@pytest.mark.parametrize("name", EXPECTED)
def test_is_small_and_names_no_place_of_the_machine(name: str) -> None:
    files = [path for path in (SAMPLES / name).rglob("*") if path.is_file()]

    assert sum(path.stat().st_size for path in files) < 300_000
    for path in files:
        assert not re.search(rb"/(home|root|work|tmp|Users)/", path.read_bytes()), path


def test_the_readme_lists_every_trace() -> None:
    text = (SAMPLES / "README.md").read_text()

    assert {path.parent.name for path in SAMPLES.glob("*/run.json")} == set(EXPECTED)
    assert all(f"`{name}`" in text for name in EXPECTED)
