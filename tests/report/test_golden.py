"""The reports of the hand-made run, byte for byte. Rewrite them with AMPSCOPE_UPDATE_GOLDEN=1 and look at the diff."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ampscope.report import html, json, markdown
from ampscope.report.model import Report
from ampscope.report.redacted import redacted
from tests.report.handmade import redactor

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("suffix", ["md", "html", "json"])
def test_golden(report: Report, suffix: str) -> None:
    render = {"md": markdown.render, "html": html.render, "json": json.render}[suffix]
    # How the reader words its state is its own affair.
    said = render(redacted(replace(report, integrity=("The trace is whole.",)), redactor()))
    path = GOLDEN / f"report.{suffix}"
    if os.environ.get("AMPSCOPE_UPDATE_GOLDEN"):
        path.write_text(said, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == said
