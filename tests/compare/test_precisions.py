from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ampscope.compare.precisions import Table, compare_precisions, last_line
from tests.support.forked_recorder import ForkedRecorder
from tests.support.forkserver import ForkServer

PLAIN = """
import sys
import torch
torch.set_num_threads(1)
{seed}
model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(64, 16)
for step in range(12):
    opt.zero_grad()
    loss = model(x).float().square().mean()
    loss.backward()
    opt.step()
if model(x).dtype == torch.float16:
    sys.exit("no half please")
"""


def table(
    tmp_path: Path,
    server: ForkServer,
    source: str,
    precisions: str,
    told: list[str] | None = None,
    steps: int | None = None,
) -> Table:
    script = tmp_path / "train.py"
    script.write_text(source)
    argv = [sys.executable, str(script)]

    def progress(precision: str, taken: int) -> None:
        if told is not None:
            told.append(precision)

    recorder = ForkedRecorder(server)
    return compare_precisions(
        argv, precisions.split(","), tmp_path / "runs", tmp_path, steps, recorder, progress
    )


def test_a_script_without_amp_in_three_precisions(tmp_path: Path, fork_server: ForkServer) -> None:
    told: list[str] = []
    found = table(tmp_path, fork_server, PLAIN.format(seed="torch.manual_seed(0)"), "fp32,bf16,fp16", told)
    fp32, bf16, fp16 = found.rows
    assert told == ["fp32", "bf16", "fp16"]
    assert [r.headline.autocast_dtype if r.headline else "" for r in found.rows] == [
        None,
        "bfloat16",
        "float16",
    ]
    assert fp32.distance is None
    assert bf16.distance is not None
    assert fp16.distance is not None
    assert 0 < fp16.distance < bf16.distance < 0.05
    assert (fp32.verdict, fp32.ended, bf16.verdict) == ("healthy", "", "healthy")
    assert fp16.ended == "exit status 1: no half please"
    assert found.speed(fp32) == 1.0
    assert Path(fp16.run_dir) == tmp_path / "runs" / "fp16"
    assert [note.split(":")[0] for note in found.notes] == [
        "The script enters no autocast context",
        "The script has no GradScaler",
        "Memory is the resident memory of the process",
    ]


def test_a_script_that_is_not_seeded_is_told(tmp_path: Path, fork_server: ForkServer) -> None:
    runs = "runs = open(__file__ + '.runs', 'a+'); runs.write('x'); torch.manual_seed(4 + runs.tell())"
    source = PLAIN.format(seed=runs)  # another start each time, and none like another by chance
    found = table(tmp_path, fork_server, source, "fp32,bf16", steps=5)
    assert [row.headline.steps for row in found.rows if row.headline] == [5, 5]
    assert any("not to be seeded" in note for note in found.notes)


def test_a_script_that_does_not_train(tmp_path: Path, fork_server: ForkServer) -> None:
    found = table(tmp_path, fork_server, "import torch", "fp32")
    (row,) = found.rows
    assert (row.headline, row.verdict, found.speed(row)) == (None, "nothing recorded", None)
    assert found.notes == ("No run recorded a training step: the log of each says why.",)


@pytest.mark.parametrize(("text", "line"), [("", ""), ("\n\n", ""), ("a\n b \n\n", ": b")])
def test_the_last_line_of_a_log(tmp_path: Path, text: str, line: str) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    assert last_line(log) == line
