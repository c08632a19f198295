from __future__ import annotations

from pathlib import Path

from ampscope.compare.config import differences
from tests.compare.traces import make_trace


def test_only_what_differs(tmp_path: Path) -> None:
    param = {"name": "w", "dtype": "float32", "owner": "AdamW#0", "eps": 1e-8, "device": "cpu"}
    step = {
        "outcome": "stepped",
        "n_backward": 1,
        "lr": 0.1,
        "autocast_dtype": "float16",
        "autocast_device": "cuda",
    }
    one = make_trace(tmp_path / "one", {"params": [param], "steps": [step]})
    two = make_trace(
        tmp_path / "two",
        {"params": [{**param, "eps": 1e-4}], "steps": [{**step, "autocast_dtype": None, "lr": 0.2}]},
        {"overrides": {"autocast.enabled": ["false"]}},
    )
    with one, two:
        found = {s.name: (s.one, s.two) for s in differences(one, two)}
        assert differences(one, one) == ()
    assert found == {
        "command": ("python train.py one", "python train.py two"),
        "overrides": ("none", "autocast.enabled=false"),
        "autocast": ("cuda float16", "off"),
        "optimizer": ("AdamW#0 eps 1e-08", "AdamW#0 eps 0.0001"),
        "first learning rate": ("0.1", "0.2"),
    }
