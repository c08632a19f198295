from __future__ import annotations

import json
from pathlib import Path

import pytest

from ampscope.diagnose.finding import Finding, Where
from ampscope.verify.outcome import Measure, Outcome, outcome_sentence, read_outcomes, write_outcomes

WHERE = Where(module="head", file="/home/me/train.py", line=3, steps=(0, 9))


def outcome(verdict: str = "verified", how: str = "set", where: Where = WHERE) -> Outcome:
    return Outcome(
        "AMP403",
        where,
        verdict,  # type: ignore[arg-type]
        how,  # type: ignore[arg-type]
        f"{verdict}: so it is.",
        20,
        {"module.fp32": "head"},
        (Measure("loss", None, 1.5), Measure("skipped steps", 3, 0, "steps")),
        "2026-11-29T11:02:04.908Z",
        "0.1.0",
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_outcomes(tmp_path) == ()
    write_outcomes(tmp_path, [outcome(), outcome(how="patch")])
    assert read_outcomes(tmp_path) == (outcome(), outcome(how="patch"))
    assert [p.name for p in tmp_path.iterdir()] == ["verification.json"]


def test_another_try_takes_the_place_of_the_first(tmp_path: Path) -> None:
    other = Where(module="tail")
    write_outcomes(tmp_path, [outcome(), outcome(where=other)])
    write_outcomes(tmp_path, [outcome("refuted", where=Where(**{**vars(WHERE), "steps": (1, 2)}))])
    assert [(o.where.module, o.verdict) for o in read_outcomes(tmp_path)] == [
        ("tail", "verified"),
        ("head", "refuted"),
    ]


def test_the_sentence_for_a_finding() -> None:
    finding = Finding("AMP403", "", "critical", Where(**{**vars(WHERE), "steps": None}), "", "")
    kept = [outcome(), outcome("refuted", "patch"), outcome(where=Where())]
    assert outcome_sentence(kept, finding) == "verified: so it is. refuted: so it is."
    assert outcome_sentence([], finding) == ""


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"outcomes": 3}', '{"outcomes": [3, {"code": "AMP101"}]}']
)
def test_a_file_that_cannot_be_used_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "verification.json").write_text(content)
    assert read_outcomes(tmp_path) == ()


def test_an_outcome_of_a_later_version_is_left_out(tmp_path: Path) -> None:
    write_outcomes(tmp_path, [outcome(), outcome(how="patch")])
    raw = json.loads((tmp_path / "verification.json").read_text())
    raw["outcomes"][0]["verdict"] = "believed"
    (tmp_path / "verification.json").write_text(json.dumps(raw))
    assert read_outcomes(tmp_path) == (outcome(how="patch"),)
