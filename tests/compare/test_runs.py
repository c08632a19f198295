from __future__ import annotations

from pathlib import Path

from ampscope.compare.runs import compare_runs
from tests.compare.traces import losses, make_trace, tensor


def test_two_runs(tmp_path: Path) -> None:
    one = make_trace(tmp_path / "one", {"steps": losses(1.0, 0.5), "tensors": [tensor("a", 1, 1.0)]})
    call = {"call": "deprecated", "object": "torch.cuda.amp.autocast", "file": "/x/t.py", "line": 3}
    two = make_trace(
        tmp_path / "two",
        {"steps": losses(1.0, 0.9), "tensors": [tensor("a", 1, 2.0)], "calls": [{"seq": 0, **call}]},
    )
    with one, two:
        found = compare_runs(one, two)
    assert found.apart == 1
    assert found.joined.first is not None
    assert [f.code for f in found.only_two] == ["AMP119"]
    assert found.only_one == ()
    assert [h.last_loss for h in found.headlines] == [0.75, 0.95]
    assert found.names == (str(tmp_path / "one"), str(tmp_path / "two"))
