"""Findings as cards, lines and pages: the text of a trace stays text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ampscope.app import finding_view
from ampscope.app.callbacks import context_of, fill_part
from ampscope.app.runs import Context, RunStore
from ampscope.app.state import View
from ampscope.diagnose.diagnosis import Coverage, Diagnosis, NotMeasurable, RunSummary, Silenced
from ampscope.diagnose.finding import Change, Evidence, Finding, Where
from ampscope.verify.outcome import Outcome
from tests.app import walk

HOSTILE = "<img src=x onerror=alert(1)>"


def finding(code: str = "AMP203", **more: Any) -> Finding:
    given: dict[str, Any] = {
        "code": code,
        "name": "loss-scale-too-low",
        "severity": "warning",
        "where": Where(
            module="blocks.0.mlp",
            tensor="blocks.0.mlp.weight",
            file="/home/me/train.py",
            line=41,
            steps=(3, 9),
        ),
        "claim": f"31 % of the gradients flush at `scale` 1 in {HOSTILE}.",
        "recommendation": "Raise the scale to `2^14`.",
        "change": Change(
            set={"scaler.init_scale": "16384"}, diff="-GradScaler()\n+GradScaler(init_scale=2**14)"
        ),
        "evidence": (
            Evidence("flushed share", 3e-8, query="SELECT step, loss FROM steps WHERE step < 3"),
            Evidence("a query that is wrong", 1.0, query="SELECT nothing FROM nowhere"),
        ),
        "falsifier": "the share stays the same at `2^14`",
        "symptoms": ("the loss stands still",),
    }
    return Finding(**{**given, **more})


def diagnosis(*findings: Finding) -> Diagnosis:
    run = RunSummary(("train.py",), "", "complete", 0, None, 40, 3, 1, "2.13.0", "cpu", False, "0.1.0")
    coverage = Coverage(
        ("AMP203",),
        ("AMP101", "AMP105"),
        (NotMeasurable("AMP601", "no CUDA device"),),
        (Silenced("AMP119", "old code"),),
    )
    return Diagnosis(run, "The scale is too low.", findings, coverage)


@pytest.fixture
def context(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> Context:
    found = diagnosis(
        finding(), finding(claim="Another place."), finding("AMP301", evidence=(), change=Change())
    )
    context = context_of(store, View.parse("/findings/AMP203", "run=first"))
    monkeypatch.setattr(context.run.judge, "_known", found)
    return context


def test_keys_number_the_second_of_a_code() -> None:
    assert finding_view.keys(diagnosis(finding(), finding(), finding("AMP301"))) == [
        "AMP203",
        "AMP203.2",
        "AMP301",
    ]


def test_the_place_names_what_is_known() -> None:
    assert finding_view.place(finding().where) == "blocks.0.mlp.weight, train.py:41, steps 3–9"
    assert finding_view.place(Where()) == ""
    assert finding_view.place(Where(file="C:\\me\\train.py")) == "train.py"


def test_the_shortest_change() -> None:
    assert finding_view.change_sentence(finding()) == "ampscope run --set scaler.init_scale=16384 …"
    assert finding_view.change_sentence(finding(change=Change(diff="+++ b\n-x\n+ y = 1"))) == "y = 1"
    assert finding_view.change_sentence(finding(change=Change())) == ""


def test_a_card_says_claim_change_and_leads_to_the_evidence(context: Context) -> None:
    shown = context.run.diagnosis()
    card = finding_view.card(context, shown, shown.findings[1])
    words = walk.text(card)
    assert "warning" in words
    assert "Another place." in words
    assert "--set scaler.init_scale=16384" in words
    links = [node["props"]["href"] for node in walk.nodes(card) if node["type"] == "Link"]
    assert links == ["/findings/AMP203.2?run=first"]


def test_hostile_text_is_text(store: RunStore, context: Context) -> None:
    for part in ("claim", "change", "evidence"):
        content = fill_part(store, context.view, f"findings/{part}")
        assert "allow_html" not in str(walk.tree(content))
        assert "Markdown" not in walk.kinds(content)
    assert HOSTILE in walk.text(fill_part(store, context.view, "findings/claim"))


def test_the_page_of_a_finding(store: RunStore, context: Context) -> None:
    claim = walk.text(fill_part(store, context.view, "findings/claim"))
    assert "the loss stands still" in claim
    assert "/home/me/train.py:41" in claim
    change = walk.text(fill_part(store, context.view, "findings/change"))
    assert "+GradScaler(init_scale=2**14)" in change
    assert "ampscope run --set scaler.init_scale=16384" in change
    assert "It would be wrong if:" in change
    evidence = fill_part(store, context.view, "findings/evidence")
    assert "3e-8" in walk.text(evidence)
    assert "could not be run here" in walk.text(evidence)
    grid = next(node for node in walk.nodes(evidence) if node["type"] == "AgGrid")
    assert [row["step"] for row in grid["props"]["rowData"]] == [0, 1, 2]
    explained = next(
        n for n in walk.nodes(fill_part(store, context.view, "findings/explain")) if n["type"] == "Markdown"
    )
    assert explained["props"]["dangerously_allow_html"] is False


def test_a_trial_is_offered_until_there_is_an_outcome(
    store: RunStore, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = walk.text(fill_part(store, context.view, "findings/change"))
    assert f"ampscope verify {context.run.trace.path} AMP203" in shown
    assert "ampscope run --set scaler.init_scale=16384 train.py --lr 3e-4" in shown
    outcome = Outcome(
        "AMP203", finding().where, "verified", "set", "verified: flushed 31 % before, 0 % after."
    )
    monkeypatch.setattr("ampscope.app.pages.findings.read_outcomes", lambda path: (outcome,))
    shown = walk.text(fill_part(store, context.view, "findings/change"))
    assert "verified: flushed 31 % before, 0 % after." in shown
    assert "ampscope verify" not in shown


def test_a_finding_without_numbers(store: RunStore, context: Context) -> None:
    view = View.parse("/findings/AMP301", "run=first")
    assert "order of calls" in walk.text(fill_part(store, view, "findings/evidence"))


def test_the_first_screen_shows_four_cards_at_most(
    store: RunStore, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context.run.judge, "_known", diagnosis(*(finding() for _ in range(6))))
    content = fill_part(store, View.parse("/", "run=first"), "/verdict")
    assert sum(node["type"] == "Article" for node in walk.nodes(content)) == 4
    assert "2 more findings" in walk.text(content)


def test_the_coverage_names_every_rule(context: Context) -> None:
    words = walk.text(finding_view.coverage_line(context, context.run.diagnosis()))
    assert "Checked 3 of 5 diagnoses: 1 found, 2 clean, 1 not measurable" in words
    assert "AMP101, AMP105" in words
    assert "not measurable AMP601: no CUDA device" in words
    assert "silenced: old code" in words


def test_a_reason_that_several_share_is_said_once() -> None:
    missing = tuple(NotMeasurable(code, "no CUDA device in this run") for code in ("AMP601", "AMP701"))
    words = walk.text(finding_view.coverage_body(Coverage((), (), missing)))
    assert words == "not measurable AMP601, AMP701: no CUDA device in this run"


def test_what_a_finding_explains_is_not_counted_as_found(context: Context) -> None:
    found = diagnosis(finding())
    found = replace(found, coverage=replace(found.coverage, fired=(finding().code, "AMP301")))
    assert "1 found (1 more explained by it)" in walk.text(finding_view.coverage_line(context, found))


def test_notes_have_no_card_and_make_no_run_unhealthy(
    store: RunStore, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = finding("AMP801", name="fp16-ready", severity="info")
    monkeypatch.setattr(context.run.judge, "_known", diagnosis(note))
    content = fill_part(store, View.parse("/", "run=first"), "/verdict")
    assert "Article" not in walk.kinds(content)
    words = walk.text(content)
    assert "✓ healthy" in words
    assert "Worth knowing: AMP801 fp16-ready" in words
    links = [node["props"]["href"] for node in walk.nodes(content) if node["type"] == "Link"]
    assert links == ["/findings/AMP801?run=first"]


def test_symptoms_that_nothing_explains_are_not_health(
    store: RunStore, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replace(diagnosis(), symptoms=("3 steps were skipped",))
    monkeypatch.setattr(context.run.judge, "_known", found)
    assert "unexplained" in walk.text(fill_part(store, View.parse("/", "run=first"), "/verdict"))
