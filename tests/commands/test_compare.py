from __future__ import annotations

import json
from pathlib import Path

import pytest

from ampscope.commands import main
from ampscope.trace.reader import open_trace
from tests.compare.traces import losses, make_trace, tensor

ENDLESS = """
import sys
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
print("lr", sys.argv[1:])
while True:
    opt.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    opt.step()
"""


def test_a_command_in_one_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(ENDLESS)
    monkeypatch.chdir(tmp_path)
    words = [
        "compare",
        "--precision",
        "bf16",
        "--steps",
        "20",
        "--json",
        "-o",
        "out",
        "--",
        "train.py",
        "--lr",
        "1",
    ]
    assert main(words) == 0
    shown = capsys.readouterr()
    (row,) = json.loads(shown.out)["rows"]
    assert (row["precision"], row["autocast_dtype"], row["ended"]) == ("bf16", "bfloat16", "")
    assert row["steps"] >= 20
    assert (tmp_path / "out" / "bf16" / "output.log").read_text().startswith("lr ['--lr', '1']")
    assert shown.err == "[ampscope] running in bf16\n"
    with open_trace(tmp_path / "out" / "bf16") as trace:
        assert trace.info.command[1:] == ("train.py", "--lr", "1")


def test_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, rms in (("one", 1.0), ("two", 2.0)):
        make_trace(tmp_path / name, {"steps": losses(1.0, rms), "tensors": [tensor("a", 1, rms)]}).close()
    runs = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert main(["compare", *runs]) == 0
    assert "First to diverge beyond rounding" in capsys.readouterr().out
    for words in ([*runs, "--json"], ["--json", *runs]):
        assert main(["compare", *words]) == 0
        assert json.loads(capsys.readouterr().out)["tensors"]["first"]["name"] == "a"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Name two runs, or precisions and a command"),
        (["one"], "Name two runs, or precisions and a command"),
        (["--precision", "fp8", "--", "x.py"], "must be of fp32, tf32, fp16, bf16"),
        (["--precision", ",", "--", "x.py"], "must be of fp32, tf32, fp16, bf16"),
        (["--precision", "fp32"], "There is no command to run."),
        (["--precision", "fp32", "--steps", "none", "x.py"], "must be a whole number from 1"),
        (["nowhere", "neither"], "nowhere does not exist"),
    ],
)
def test_words_that_do_not_fit(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *words]) == 2
    assert said in capsys.readouterr().err
