from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from ampscope.diagnose import Diagnosis
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, key, scaler, step, write
from tests.diagnose.judging import checked, classifier, judge, labelled, only, serious


def train(path: Path, spoil: int | None, every: int = 1) -> Diagnosis:
    """Plain float32 training; the weights are overwritten by hand after step `spoil`."""

    def run() -> None:
        model = classifier()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for i in range(10):
            x, y = labelled()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if i == spoil:
                model[2].weight.grad.fill_(float("inf"))  # type: ignore[union-attr, operator]
            optimizer.step()

    return judge(path, run, every=every)


def test_gradients_that_were_applied_although_they_are_not_finite(tmp_path: Path) -> None:
    finding = only(train(tmp_path, spoil=4), "AMP505")
    assert finding.severity == "critical"
    assert finding.where.tensor == "2.weight"
    assert finding.where.steps is not None
    assert finding.where.steps[0] == 4
    assert "its gradients held NaN or inf" in finding.claim
    assert any("The loss is NaN" in s for s in finding.symptoms)


def test_silent_on_finite_weights(tmp_path: Path) -> None:
    assert serious(train(tmp_path, spoil=None)) == []


def bad_weight(segment: int, **columns: object) -> Row:
    return {
        **key(segment),
        "name": "w",
        "role": "weight",
        "numel": 4,
        "nan": 4,
        "posinf": 0,
        "neginf": 0,
        **columns,
    }


def test_a_loss_scale_of_zero_is_named(tmp_path: Path) -> None:
    tables = {
        "steps": [step(i, scale=0.0 if i else 1.0) for i in range(3)],
        "scaler": [scaler(i, 0.0 if i else 1.0, 0.0) for i in range(3)],
        "nonfinite": [bad_weight(2)],
    }
    with open_trace(write(tmp_path, tables)) as trace:
        assert "1/0" in only(checked(trace), "AMP505").claim


def test_finite_gradients_point_at_the_optimizer(tmp_path: Path) -> None:
    grad = {
        **key(1),
        "name": "w",
        "role": "grad",
        "stage": "post_clip",
        "numel": 4,
        "nan": 0,
        "posinf": 0,
        "neginf": 0,
    }
    tables = {
        "steps": [step(i) for i in range(3)],
        "updates": [{**key(1), "name": "w", "dtype": "float32", "nonfinite_after": 2, "lr": 0.1}],
        "tensors": [grad],
    }
    with open_trace(write(tmp_path, tables)) as trace:
        finding = only(checked(trace), "AMP505")
    assert "finite, so the optimizer's own arithmetic" in finding.claim
    assert finding.where.steps == (1, 1)
