from __future__ import annotations

import json

from ampscope.compare.jsonable import precisions_json, runs_json
from tests.compare.handmade import make_comparison, make_table


def test_precisions() -> None:
    said = json.loads(json.dumps(precisions_json(make_table()), allow_nan=False))
    assert said["schema"] == 1
    assert said["command"] == ["python", "train.py"]
    fp32, fp16, bf16 = said["rows"]
    assert (fp32["precision"], fp32["step_s"], fp32["speed"], fp32["distance"]) == ("fp32", 0.002, 1.0, None)
    assert (fp16["speed"], fp16["skipped"], fp16["memory"]) == (4.0, 7, 900_000_000)
    assert "step_s" not in bf16
    assert len(said["notes"]) == 1


def test_runs() -> None:
    said = json.loads(json.dumps(runs_json(make_comparison()), allow_nan=False))
    assert [r["path"] for r in said["runs"]] == ["runs/a", "runs/b"]
    assert said["losses"]["two"] == [1.0, "inf"]
    assert said["losses"]["first_apart"] == 1
    assert said["tensors"]["first"]["name"] == "head.weight"
    assert said["only_in_second"][0]["code"] == "AMP403"
    assert said["settings"][0]["name"] == "command"
