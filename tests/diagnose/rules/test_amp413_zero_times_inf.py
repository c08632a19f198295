from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


def train(unused: int, as_float: bool = False, factor: float = 0.0) -> None:
    """A head that takes no part in the loss is kept in the graph by a factor of zero."""
    body, used, idle = nn.Linear(16, 32), nn.Linear(32, 4), nn.Linear(32, unused)
    with torch.no_grad():
        idle.bias.fill_(40.0)
    parameters = [*body.parameters(), *used.parameters(), *idle.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for _ in range(6):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            h = torch.relu(body(x))
            rest = idle(h)
            keep = (rest.float() if as_float else rest).sum()
            loss = F.cross_entropy(used(h).float(), y) + factor * keep
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_a_term_that_is_switched_off(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(unused=256))
    assert serious(found) == ["AMP413"]
    finding = only(found, "AMP413")
    assert finding.where.line == line_of(train, "factor * keep")
    assert any("AMP403" in s for s in finding.symptoms)


def test_a_term_that_counts_is_an_overflow(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(unused=256, factor=1e-3)))[0] == "AMP403"


@pytest.mark.parametrize(("unused", "as_float"), [(8, False), (256, True)])
def test_silent(tmp_path: Path, unused: int, as_float: bool) -> None:
    assert serious(judge(tmp_path, lambda: train(unused, as_float))) == []


def padded(hidden: bool) -> None:
    """Rows of padding lie far out; what they sum to is multiplied by zero, or half of them are not."""
    body = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(body.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for _ in range(6):
        x, y = labelled()
        far = (torch.arange(len(x)) % 4 == 0).unsqueeze(1)
        shown = far & (torch.arange(len(x)) % 8 == 0).unsqueeze(1)
        keep = (~far | shown).float() if not hidden else (~far).float()
        place = torch.where(far, 3000.0, x[:, :3]).half()
        optimizer.zero_grad()
        with half():
            out = body(x)
            spread = 0.01 * place.square().sum(1, keepdim=True)
            logits = (out + spread) * keep.half()
        loss = F.cross_entropy(logits.float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_padding_that_overflows_on_the_way_to_its_mask(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: padded(hidden=True))
    assert serious(found) == ["AMP413"]
    assert only(found, "AMP413").where.line == line_of(padded, "* keep.half()")


def test_an_overflow_that_no_mask_hides(tmp_path: Path) -> None:
    assert "AMP413" not in serious(judge(tmp_path, lambda: padded(hidden=False)))
