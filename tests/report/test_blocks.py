from __future__ import annotations

from dataclasses import replace

from ampscope.diagnose.finding import Change, Where
from ampscope.report import blocks
from ampscope.report.model import Coverage, Fact, Overhead, Privacy, RemovedText, Report


def test_values_by_kind() -> None:
    assert blocks.value("share", 0.25) == "25 %"
    assert blocks.value("seconds", 0.25) == "250 ms"
    assert blocks.value("bytes", 2048) == "2 KiB"
    assert blocks.value("power", 1024.0) == "1024 (2^10)"
    assert blocks.value("number", 3e-8) == "3e-8"
    assert blocks.value("number", None) == "–"
    assert blocks.value("name", "a") == "a"


def test_counts(report: Report) -> None:
    assert blocks.counts(report) == "1 critical, 1 warning"
    assert blocks.counts(replace(report, findings=())) == "no finding"


def test_title_names_the_script_only(report: Report) -> None:
    assert blocks.title(report) == "ampscope report: train.py"
    assert (
        blocks.title(replace(report, run=replace(report.run, script=""))) == "ampscope report: recorded run"
    )


def test_place() -> None:
    assert blocks.place(Where(module="m", file="a.py", line=3)) == [("module", "m"), ("line", "a.py:3")]
    assert blocks.place(Where(file="a.py")) == [("line", "a.py")]
    assert blocks.place(Where()) == []


def test_override_is_quoted_for_the_shell(report: Report) -> None:
    finding = replace(report.findings[0].finding, change=Change(set={"module.fp32": "a b;c", "a": "1"}))
    assert blocks.override(finding) == "ampscope run --set a=1 --set 'module.fp32=a b;c' …"
    assert blocks.override(report.findings[0].finding) == ""


def test_command_is_quoted_only_where_it_must_be() -> None:
    assert (
        blocks.command(("~/python", "t.py", "--x=<secret>", "a b", "$c"))
        == "~/python t.py --x=<secret> 'a b' '$c'"
    )
    assert blocks.command(()) == "not recorded"


def test_sentences() -> None:
    assert blocks.fact(Fact("l", 0.5, "share", "of x", "observed")) == ("l", "50 %", "observed, of x")
    assert blocks.coverage(Coverage(("A",), ("B", "C"), (), (("D", "r"),))) == (
        "4 diagnoses: 1 found, 2 clean, 0 not measurable, 1 silenced."
    )
    assert blocks.overhead(Overhead(0.02, 2.0)) == "The recorder took 20 ms of 2 s recorded time (1 %)."
    assert blocks.overhead(Overhead(None, 2.0)) == "The recorder's own time was not measured."
    assert blocks.privacy(Privacy(True, (RemovedText("secret", 2, 1),))).endswith(
        ": secret (2 places, 1 different)."
    )
    assert blocks.privacy(Privacy(True)).startswith("Redacted: nothing private")
    assert blocks.verification("verified: …") == "verified: …"


def test_processes_that_are_alike_share_a_line(report: Report) -> None:
    one = report.run.processes[0]
    ranks = tuple(replace(one, rank=rank) for rank in range(12))
    shown = blocks.environment(replace(report.run, processes=ranks))
    assert [content for name, content in shown if name == "device"] == ["Example GPU (capability 9.0)"]
    (who,) = [content for name, content in shown if name == "processes"]
    assert who.endswith("rank 7 process 0 and 4 more")
    other = replace(one, rank=1, devices=("Other GPU",))
    shown = blocks.environment(replace(report.run, processes=(one, other)))
    assert [name for name, _ in shown].count("device") == 2
