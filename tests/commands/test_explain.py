from __future__ import annotations

import pytest

from ampscope.commands import main
from ampscope.diagnose.rule import all_rules


@pytest.mark.parametrize("word", ["AMP203", "amp203", "loss-scale-too-low"])
def test_the_page_of_a_code_or_a_name(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# AMP203 loss-scale-too-low (warning)\n")
    assert "## Fix" in out
    assert "```diff" in out


def test_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(all_rules())
    assert lines[0].split() == ["AMP101", "critical", "clip-before-unscale"]


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["AMP999"], "--all"),
        (["amp2003"], "AMP203"),
        (["loss-scale-to-low"], "loss-scale-too-low"),
        ([], "AMP203"),
    ],
)
def test_one_sentence_for_a_wrong_code(
    argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert hint in captured.err
