from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from ampscope.diagnose.failing import groups, place_phrase, reach_phrase, severity_of, spoken, where_of
from ampscope.diagnose.origins import Kind
from ampscope.diagnose.signals import Signals
from tests.diagnose.opkit import op
from tests.support.recording import record


def outliers(steps: tuple[int, ...], total: int = 8) -> None:
    """Values beyond the half range in the batches of these steps."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(total):
        x = torch.randn(8, 4)
        if step in steps:
            x[0] = 1e6
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x).float(), (x[:, 0] > 0).long())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_groups_span_the_steps_and_severity_tells_if_it_lasts(tmp_path: Path) -> None:
    cases = {"info": (1,), "critical": tuple(range(8))}
    for expected, steps in cases.items():
        with record(tmp_path / expected, lambda steps=steps: outliers(steps)) as trace:  # type: ignore[misc]
            s = Signals(trace)
            (group,) = groups(s, lambda o: o.kind is Kind.CAST)
            assert severity_of(s, group) == expected
            where = where_of(group)
            assert where.op == "aten::_to_copy"
            assert where.steps is not None
            assert where.steps[0] == steps[0]


def test_phrases() -> None:
    inside = op(0, "exp_", (1,), (2,), module="decoder.norm")
    outside = op(0, "sum", (1,), (2,), function="dice")
    script = op(0, "sum", (1,), (2,), function="<module>")

    assert [place_phrase(o) for o in (inside, outside, script)] == [" in decoder.norm", " in dice", ""]
    assert spoken(inside) == "float16 exp"
    assert reach_phrase([]) == ""
