from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from tests.support.recording import amp_training, batch, mlp, record, rows


def test_autocast_dtype_and_scaler_of_an_unmodified_loop(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        lambda: amp_training(2),
        overrides={"autocast.dtype": ["bfloat16"], "scaler.enabled": ["false"]},
    )
    assert rows(trace, "SELECT DISTINCT autocast_dtype, scale FROM steps") == [
        {"autocast_dtype": "bfloat16", "scale": None}
    ]


def test_autocast_off(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(2), overrides={"autocast.enabled": ["false"]})
    assert rows(trace, "SELECT DISTINCT autocast_dtype FROM steps") == [{"autocast_dtype": None}]


def test_scaler_policy(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        lambda: amp_training(1),
        overrides={
            "scaler.init_scale": ["8.0"],
            "scaler.growth_interval": ["5"],
            "scaler.backoff_factor": ["0.25"],
        },
    )
    found = rows(trace, "SELECT scale, growth_interval, backoff_factor FROM scaler")
    assert found == [{"scale": 8.0, "growth_interval": 5, "backoff_factor": 0.25}]


def test_one_module_in_float32(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(2), overrides={"module.fp32": ["2"]})
    dtypes = {
        r["name"]: list(r["out_dtypes"])
        for r in rows(trace, "SELECT name, out_dtypes FROM modules WHERE step=1")
    }
    assert dtypes["0"] == ["float16"]
    assert dtypes["2"] == ["float32"]


def test_a_module_that_is_stored_in_half(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp().to(torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            x, y = batch()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(torch.bfloat16)).float(), y).backward()
            optimizer.step()

    trace = record(tmp_path, train, overrides={"module.fp32": ["0"]})
    assert rows(trace, "SELECT DISTINCT dtype FROM updates WHERE name='0.weight'") == [{"dtype": "float32"}]
    assert rows(trace, "SELECT DISTINCT dtype FROM updates WHERE name='2.weight'") == [{"dtype": "bfloat16"}]


def test_autocast_round_a_script_that_has_none_and_islands_stay(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.a(x)
            with torch.autocast("cpu", enabled=False):
                out: torch.Tensor = self.b(x.float())
            return out

    def train() -> None:
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            x, y = batch()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()

    overrides = {"autocast.enabled": ["true"], "autocast.dtype": ["bfloat16"]}
    trace = record(tmp_path, train, overrides=overrides)
    dtypes = {
        r["name"]: list(r["out_dtypes"])
        for r in rows(trace, "SELECT name, out_dtypes FROM modules WHERE step=1")
    }
    assert dtypes["a"] == ["bfloat16"]
    assert dtypes["b"] == ["float32"]


def test_eps_of_the_optimizer(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(1), overrides={"optimizer.eps": ["0.001"]})
    assert rows(trace, "SELECT DISTINCT eps FROM params") == [{"eps": 0.001}]


def test_everything_is_put_back(tmp_path: Path) -> None:
    before = torch.amp.autocast_mode.autocast.__init__, torch.amp.GradScaler.__init__
    record(
        tmp_path,
        lambda: amp_training(1),
        overrides={"autocast.dtype": ["bfloat16"], "scaler.enabled": ["false"]},
    )
    assert (torch.amp.autocast_mode.autocast.__init__, torch.amp.GradScaler.__init__) == before
