from __future__ import annotations

import re
from pathlib import Path

import pytest

from ampscope.commands import main
from ampscope.diagnose import pages
from ampscope.diagnose.rule import all_rules

FOLDER = Path(__file__).parents[2] / "docs" / "rules"


def test_the_committed_pages_are_those_of_the_rules() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    made = pages.pages()
    stale = sorted(n for n in committed.keys() | made.keys() if committed.get(n) != made.get(n))
    assert stale == [], "run: scripts/rule_pages"


def test_the_table_names_every_rule_in_one_row_and_links_to_its_page() -> None:
    rows = [line for line in pages.pages()[pages.INDEX].splitlines() if line.startswith("| [")]
    linked = [
        re.match(r"\| \[(AMP\d{3})\]\(([^)]+)\) \| \S+ \| (?:critical|warning|info) \| .+ \|$", r)
        for r in rows
    ]
    assert [m.group(1) for m in linked if m] == [r.code for r in all_rules()]
    assert all((FOLDER / m.group(2)).is_file() for m in linked if m)


def test_a_page_is_what_explain_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "AMP203"]) == 0
    assert capsys.readouterr().out == pages.pages()["AMP203-loss-scale-too-low.md"]


def test_pages_of_rules_that_are_gone_go(tmp_path: Path) -> None:
    (tmp_path / "AMP000-gone.md").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    pages.main(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {*pages.pages(), "notes.txt"}
