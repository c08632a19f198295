from __future__ import annotations

from dataclasses import replace

from ampscope.diagnose.finding import Evidence, Finding, Where
from ampscope.report.model import Column, Report, Table
from ampscope.report.redact import Redactor
from ampscope.report.redacted import redacted
from tests.report.handmade import CWD, SECRET, TRAIN, redactor


def test_strings_are_rewritten_by_what_they_hold(report: Report) -> None:
    clean = redacted(report, redactor())
    assert clean.run.command == (
        "~/env/bin/python",
        "train.py",
        "--lr",
        "1e-3",
        "--token",
        "<secret>",
        "--data=~/data/x.bin",
    )
    assert clean.run.script == "train.py"
    assert clean.findings[0].finding.where.file == "train.py"
    assert "file = 'train.py'" in clean.findings[0].finding.evidence[1].query
    assert clean.findings[0].exhibit.tables[0].rows[0][-1] == "train.py:29"
    assert clean.crash.splitlines()[1] == '  File "train.py", line 50, in <module>'
    assert clean.privacy.redacted
    kinds = {r.kind: r for r in clean.privacy.removed}
    assert set(kinds) == {"absolute path", "home path", "URL", "host name", "secret"}
    assert kinds["secret"].places == 1


def test_numbers_names_and_versions_stay(report: Report) -> None:
    clean = redacted(report, redactor())
    assert clean.timeline == report.timeline
    assert clean.skips == report.skips
    assert clean.gradients_by_tensor == report.gradients_by_tensor
    assert clean.run.processes[0].versions == report.run.processes[0].versions
    assert [t.rows for t in clean.tables] == [t.rows for t in report.tables]


def test_names_in_name_columns_stay_and_texts_do_not(report: Report) -> None:
    row = (CWD, TRAIN, f"token={SECRET}", 3e-8)
    columns = (Column("a", "name"), Column("b", "path"), Column("c", "text"), Column("d", "number"))
    odd = replace(report, tables=(Table("t", columns, (row,), 1),))
    assert redacted(odd, redactor()).tables[0].rows == ((CWD, "train.py", "token=<secret>", 3e-8),)


def test_an_evidence_value_that_is_a_text_is_rewritten(report: Report) -> None:
    finding = Finding("AMP1", "n", "info", Where(module="alice"), "c", "r", evidence=(Evidence("m", TRAIN),))
    odd = replace(report, findings=(replace(report.findings[0], finding=finding),))
    clean = redacted(odd, redactor()).findings[0].finding
    assert clean.evidence[0].value == "train.py"
    assert clean.where.module == "alice"


def test_a_disabled_redactor_changes_nothing(report: Report) -> None:
    assert redacted(report, Redactor(enabled=False)) is report
