from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from ampscope.diagnose import Diagnosis
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import H200, Row, op, step, write
from tests.diagnose.judging import checked, judge, labelled, only, serious


class Net(nn.Module):
    """A wide layer that may be kept out of autocast."""

    def __init__(self, island: bool, factor: float = 1.0) -> None:
        super().__init__()
        self.inner, self.wide, self.head = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 4)
        self.island, self.factor = island, factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inner(x) * self.factor
        with torch.autocast("cpu", enabled=not self.island, dtype=torch.float16):
            h = self.wide(h.float())
        out: torch.Tensor = self.head(h / self.factor)
        return out


def train(path: Path, island: bool, factor: float = 1.0, amp: bool = True) -> Diagnosis:
    def run() -> None:
        model = Net(island, factor)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cpu", enabled=amp, init_scale=256.0)
        for _ in range(4):
            x, y = labelled()
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16, enabled=amp):
                loss = F.cross_entropy(model(x).float(), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return judge(path, run)


def test_a_layer_in_float32_with_room_below_65504(tmp_path: Path) -> None:
    found = train(tmp_path, island=True)
    finding = only(found, "AMP602")
    assert serious(found) == []
    assert finding.severity == "info"
    assert finding.where.module == "wide"
    assert "inside autocast" in finding.recommendation


class Attention(nn.Module):
    """PyTorch's own attention, with a dropout that no fused kernel of the CPU has; and a layer that may be kept out."""

    def __init__(self, island: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.head = nn.Linear(16, 96), nn.Linear(32, 32), nn.Linear(32, 4)
        self.island = island

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(2, -1, 1, 96).transpose(1, 2).chunk(3, -1)
        h = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1).transpose(1, 2).flatten(0, 2)
        with torch.autocast("cpu", enabled=not self.island, dtype=torch.bfloat16):
            h = self.out(h.float())
        found: torch.Tensor = self.head(h)
        return found


def attend(path: Path, island: bool) -> Diagnosis:
    def run() -> None:
        model = Attention(island)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _ in range(4):
            x, y = labelled()
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x).float(), y)
            loss.backward()
            optimizer.step()

    return judge(path, run)


def test_attention_that_torch_itself_computes_in_float32(tmp_path: Path) -> None:
    finding = only(attend(tmp_path, island=False), "AMP602")
    assert "PyTorch computes it in float32 itself" in finding.recommendation
    assert finding.change is None or not finding.change.diff


def test_a_layer_kept_out_comes_before_what_torch_does_itself(tmp_path: Path) -> None:
    finding = only(attend(tmp_path, island=True), "AMP602")
    assert finding.where.module == "out"
    assert "inside autocast" in finding.recommendation


def test_a_layer_that_needs_the_range_is_left_there(tmp_path: Path) -> None:
    finding = only(train(tmp_path, island=True, factor=2.0**14), "AMP602")
    assert "Leave it in float32" in finding.recommendation


def test_silent_when_all_runs_in_half_or_all_in_float32(tmp_path: Path) -> None:
    assert "AMP602" not in train(tmp_path / "a", island=False).coverage.fired
    assert "AMP602" not in train(tmp_path / "b", island=True, amp=False).coverage.fired


def test_on_a_gpu_a_costly_island_is_a_warning(tmp_path: Path) -> None:
    def product(seq: int, dtype: str, module: str) -> Row:
        return op(1, seq, "mm", dtype, flops=1e9, module=module, device="cuda", in_amax=1.0, out_amax=2.0)

    tables = {
        "steps": [
            step(i, autocast_dtype="float16", autocast_device="cuda", level="census") for i in range(3)
        ],
        "ops": [product(0, "float16", "a"), product(1, "float32", "b")],
    }
    with open_trace(write(tmp_path, tables, devices=(H200,))) as trace:
        finding = only(checked(trace), "AMP602")
    assert finding.severity == "warning"
    assert "50 %" in finding.claim
