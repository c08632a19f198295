from __future__ import annotations

import threading
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def wrong_device() -> None:
    warnings.simplefilter("ignore")
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        x, y = labelled()
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


def worker_thread(enter_inside: bool) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        x, y = labelled()
        out: list[torch.Tensor] = []

        def work(x: torch.Tensor = x, out: list[torch.Tensor] = out) -> None:
            if enter_inside:
                with half(torch.bfloat16):
                    out.append(model(x))
            else:
                out.append(model(x))

        optimizer.zero_grad()
        with half(torch.bfloat16):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        F.cross_entropy(out[0].float(), y).backward()
        optimizer.step()


def too_early() -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        with half(torch.bfloat16):
            x, y = labelled()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def inside_forward() -> None:
    class Inner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = classifier()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with half(torch.bfloat16):
                out: torch.Tensor = self.net(x)
            return out.float()

    model = Inner()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        x, y = labelled()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def only_evaluation() -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        x, y = labelled()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        with torch.no_grad(), half(torch.bfloat16):
            model(x)


def test_context_for_another_device(tmp_path: Path) -> None:
    found = judge(tmp_path, wrong_device)
    finding = only(found, "AMP120")
    assert finding.where.line == line_of(wrong_device, "torch.autocast(")
    assert "cuda" in finding.claim


def test_context_that_ends_before_the_forward(tmp_path: Path) -> None:
    found = judge(tmp_path, too_early)
    assert serious(found) == ["AMP120"]
    assert only(found, "AMP120").where.line == line_of(too_early, "half(")


def test_forward_on_another_thread(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: worker_thread(enter_inside=False))
    assert serious(found) == ["AMP120"]
    finding = only(found, "AMP120")
    assert "another thread" in finding.claim
    assert finding.where.module == "Sequential"


@pytest.mark.parametrize("train", [inside_forward, only_evaluation, lambda: worker_thread(enter_inside=True)])
def test_silent_where_autocast_reaches_the_work(tmp_path: Path, train: object) -> None:
    assert callable(train)
    assert serious(judge(tmp_path, train)) == []


class Decorated(torch.nn.Module):
    """Autocast decorates forward; `embed` is what forward calls."""

    def __init__(self) -> None:
        super().__init__()
        self.net = classifier()

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(x)
        return out

    @torch.autocast("cpu", dtype=torch.float16)  # type: ignore[untyped-decorator]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.embed(x)


def decorated(bypass: bool, enabled: bool = True) -> None:
    model = Decorated()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=enabled)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        out = model.embed(x) if bypass else model(x)
        scaler.scale(F.cross_entropy(out.float(), y)).backward()
        scaler.step(optimizer)
        scaler.update()


def test_scaler_in_a_run_that_enters_no_autocast(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: decorated(bypass=True))
    assert serious(found) == ["AMP120"]
    assert only(found, "AMP120").where.line == line_of(decorated, "scaler.scale(")


@pytest.mark.parametrize(("bypass", "enabled"), [(False, True), (True, False)])
def test_silent_where_half_is_at_work_or_nothing_is_scaled(
    tmp_path: Path, bypass: bool, enabled: bool
) -> None:
    assert serious(judge(tmp_path, lambda: decorated(bypass, enabled))) == []
