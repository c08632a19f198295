from __future__ import annotations

import dataclasses

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ampscope.report import markdown
from ampscope.report.model import Report, Timeline
from ampscope.report.redacted import redacted
from tests.report.handmade import SECRET, redactor
from tests.report.hostile import HOSTILE, hostile

GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])
FOLDED = {"<details><summary>SQL behind the evidence</summary>", "</details>"}


def flat(tokens: list[Token]) -> list[Token]:
    return [t for token in tokens for t in (token, *flat(token.children or []))]


def test_it_says_everything_that_a_ticket_needs(report: Report) -> None:
    said = markdown.render(report)
    for needed in (
        "AMP101 clip-before-unscale",
        "**1 critical, 1 warning**; steps 0–119, 4 of them skipped; exit status 1.",
        "| clip calls on scaled gradients | **4** | calls | observed |",
        "+    scaler.unscale_(optimizer)",
        "ampscope run --set module.fp32=blocks.1.norm …",
        "**Wrong if:** a norm that does not fall when the scale is lowered",
        "- Updates are 3e-8 of the weights.",
        "- The loss was NaN at step 1.",
        "xychart-beta",
        "| 60 | 8192 (2^13) | 4096 (2^12) | `head.weight` | 5 | 2 |",
        "| `embed.weight` | 16.5 % | 80.3 % |",
        "4 diagnoses: 2 found, 1 clean, 1 not measurable.",
        "| AMP701 | no CUDA device took part |",
        "torch 2.13.0",
        "Example GPU (capability 9.0)",
        "The recorder took 12 ms of 1.2 s recorded time (1 %).",
        "not verified by a re-run",
        "every 5 steps: 0.9 % of wall time",
        "RuntimeError: no",
        "ampscope 9.9 (test)",
    ):
        assert needed in said


def test_it_is_well_formed(report: Report) -> None:
    tokens = flat(GFM.parse(markdown.render(report)))
    kinds = [t.type for t in tokens]
    assert kinds.count("table_open") == kinds.count("table_close") >= 8
    assert {t.content.strip() for t in tokens if t.type == "html_block"} == FOLDED
    assert "html_inline" not in kinds
    assert "link_open" not in kinds
    assert "image" not in kinds


def test_hostile_strings_stay_text(report: Report) -> None:
    plain = flat(GFM.parse(markdown.render(report)))
    broken = flat(GFM.parse(markdown.render(hostile(report))))
    for kind in ("heading_open", "table_open", "tr_open", "td_open", "fence", "hr"):
        assert [t.type for t in broken].count(kind) == [t.type for t in plain].count(kind), kind
    for token in broken:
        assert token.type not in ("html_inline", "link_open", "image", "em_open", "s_open", "code_block")
        assert token.type != "html_block" or token.content.strip() in FOLDED


def test_hostile_strings_ping_nobody_and_link_nothing(report: Report) -> None:
    said = markdown.render(hostile(report))
    texts = "".join(t.content for t in flat(GFM.parse(said)) if t.type == "text")
    for risky in ("@octocat", "#1", ":boom:", "http://", "$x$", "<"):
        assert risky not in texts
    assert "\u202e" not in said
    assert "\x1b" not in said
    said.encode("utf-8")


def test_redacted_report_holds_nothing_private(report: Report) -> None:
    said = markdown.render(redacted(report, redactor()))
    for private in ("/home/alice", "alice", SECRET, "gpu-07", "corp.example", "proj x"):
        assert private not in said
    assert "Redacted before it left the machine: absolute path" in said
    assert "clip_grad_norm_" in said
    assert "`train.py:31`" in said
    assert "Not redacted" in markdown.render(report)


@pytest.mark.parametrize("limit", [60_000, 20_000, 9_000, 5_000])
def test_it_never_exceeds_the_limit_and_says_what_it_left_out(report: Report, limit: int) -> None:
    first = report.findings[0]
    many = dataclasses.replace(report, findings=tuple(first for _ in range(300)))
    said = markdown.render(many, limit)
    assert len(said) <= limit
    assert "AMP101 clip-before-unscale" in said
    assert "Left out" in said or "Cut here" in said
    kinds = [t.type for t in GFM.parse(said)]
    assert kinds[-1] != "fence" or said.rstrip().endswith("```")


def test_a_monstrous_report_still_fits(report: Report) -> None:
    monster = hostile(
        dataclasses.replace(
            report,
            findings=report.findings * 400,
            symptoms=tuple("x_y " * 2000 for _ in range(500)),
            integrity=tuple(HOSTILE * 200),
            skips=report.skips * 10,
            tables=report.tables * 6,
        )
    )
    said = markdown.render(monster)
    assert len(said) <= markdown.LIMIT
    assert "## What was checked" in said


def test_a_short_report_leaves_nothing_out(report: Report) -> None:
    assert "Left out" not in markdown.render(report)


def test_a_run_of_which_nothing_is_known(report: Report) -> None:
    empty = dataclasses.replace(
        report,
        findings=(),
        facts=(),
        timeline=Timeline(),
        skips=(),
        skipped_total=0,
        gradients_over_steps=None,
        gradients_by_tensor=None,
        tables=(),
        events=None,
        symptoms=(),
        crash="",
        run=dataclasses.replace(report.run, processes=(), command=(), script=""),
    )
    said = markdown.render(empty)
    assert "# ampscope report: recorded run" in said
    assert "**no finding**; no step recorded" in said
    assert "None. What was checked is listed below." in said
