from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from ampscope.diagnose.finding import Evidence
from ampscope.report import bundle, html, json, markdown
from ampscope.report.model import Report
from ampscope.report.redact import Redactor
from ampscope.report.redacted import redacted
from ampscope.trace.reader import Trace, open_trace
from tests.report.handmade import SECRET, TRAIN, redactor

PRIVATE = (b"/home/alice", b"alice", SECRET.encode(), b"gpu-07", b"proj x", b"corp.example")


def write(report: Report, trace: Trace, chosen: Redactor) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(bundle.write(redacted(report, chosen), trace, chosen)))


def test_the_trace_inside_opens_and_gives_the_same_numbers(
    report: Report, trace: Trace, tmp_path: Path
) -> None:
    archive = write(report, trace, redactor())
    archive.extractall(tmp_path)
    with open_trace(tmp_path / "trace") as inside:
        assert inside.integrity.sound
        assert inside.info.state == "complete"
        for table in ("steps", "tensors", "updates", "scaler", "nonfinite"):
            query = f"SELECT * FROM {table} ORDER BY ALL"
            pd.testing.assert_frame_equal(inside.sql(query), trace.sql(query))
        assert inside.sql("SELECT count(*) AS n FROM steps WHERE loss IS NULL")["n"][0] == 0
        assert inside.sql("SELECT count(*) FILTER (isnan(loss)) AS n FROM steps")["n"][0] == 1


def test_evidence_is_tried_on_the_rows_inside(report: Report, trace: Trace) -> None:
    found = report.findings[0]
    evidence = (
        Evidence("calls", 16, query="SELECT count(*) FROM calls"),
        Evidence(
            "by place", 51234.0, query=f"SELECT max(value) FROM calls WHERE file = '{TRAIN}' AND line = 31"
        ),
        Evidence("place", TRAIN, query="SELECT max(file) FROM calls"),
        Evidence("nothing", None, query="SELECT step FROM steps WHERE false"),
        Evidence("changed", 3, query="SELECT 4"),
        Evidence("broken", 3, query="SELECT x FROM nowhere"),
        Evidence("no query", 3),
    )
    odd = replace(report, findings=(replace(found, finding=replace(found.finding, evidence=evidence)),))
    said = write(odd, trace, redactor()).read("README.txt").decode()
    assert "4 of 6 evidence queries give the same number" in said
    assert "differs: AMP101 changed" in said
    assert "differs: AMP101 broken" in said


def test_nothing_private_is_in_any_file(report: Report, trace: Trace) -> None:
    archive = write(report, trace, redactor())
    for name in archive.namelist():
        data = archive.read(name)
        for private in PRIVATE:
            assert private not in data, (name, private)
    assert '"pid": 0' in archive.read("trace/processes/rank=0-proc=0.json").decode()


def test_equal_input_gives_equal_bytes(report: Report, trace: Trace) -> None:
    first, second = redactor(), redactor()
    assert bundle.write(redacted(report, first), trace, first) == bundle.write(
        redacted(report, second), trace, second
    )


def test_the_reports_inside_are_the_reports(report: Report, trace: Trace) -> None:
    archive = write(report, trace, Redactor(enabled=False))
    assert archive.read("report.md").decode() == markdown.render(report)
    assert archive.read("report.html").decode() == html.render(report)
    assert archive.read("report.json").decode() == json.render(report)
    assert TRAIN in archive.read("trace/run.json").decode()


def test_large_tables_are_thinned_and_it_says_so(
    report: Report, trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "SMALL", 20)
    monkeypatch.setattr(bundle, "LARGE", 60)
    archive = write(report, trace, redactor())
    said = archive.read("README.txt").decode()
    assert "tensors: none of its 120 rows; no evidence reads it" in said
    assert "steps: " in said
    assert "tensors" not in "".join(archive.namelist())
    archive.extractall(tmp_path)
    with open_trace(tmp_path / "trace") as inside:
        kept = set(inside.sql("SELECT step FROM steps")["step"])
    assert {0, 1, 2, 3, 4, 5, 116} <= kept
    assert len(kept) < 120
