from __future__ import annotations

from pathlib import Path

import pytest
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


def test_a_root_module_from_its_first_call_on(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(2), overrides={"module.fp32": ["*"]})
    found = rows(trace, "SELECT DISTINCT step, unnest(out_dtypes) AS dtype FROM modules ORDER BY step")
    assert found == [{"step": 0, "dtype": "float32"}, {"step": 1, "dtype": "float32"}]


def test_a_root_module_that_is_stored_in_half(tmp_path: Path) -> None:
    seen: list[torch.dtype] = []

    def train() -> None:
        model = mlp().to(torch.bfloat16)
        for _ in range(2):
            x, y = batch()
            out = model(x.to(torch.bfloat16))
            seen.append(out.dtype)
            nn.functional.cross_entropy(out.float(), y).backward()

    trace = record(tmp_path, train, overrides={"module.fp32": ["*"]})
    assert seen == [torch.bfloat16, torch.bfloat16]
    leaves = "SELECT DISTINCT unnest(param_dtypes) AS dtype FROM modules WHERE NOT is_root"
    assert rows(trace, leaves) == [{"dtype": "float32"}]


def test_a_module_without_parameters_in_a_model_that_is_stored_in_half(tmp_path: Path) -> None:
    seen: list[torch.dtype] = []

    class Scale(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.dtype)
            return x * 3.0

    class Table(Scale):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.ones(16))

    def train() -> None:
        model = nn.Sequential(nn.Linear(8, 16), Scale(), Table(), nn.Linear(16, 3)).to(torch.bfloat16)
        for _ in range(2):
            x, y = batch()
            nn.functional.cross_entropy(model(x.to(torch.bfloat16)).float(), y).backward()

    record(tmp_path, train, overrides={"module.fp32": ["1", "2"]})
    assert seen == [torch.float32] * 4


def test_no_hook_stays_on_a_root_module(tmp_path: Path) -> None:
    model = mlp()

    def train() -> None:
        x, y = batch()
        nn.functional.cross_entropy(model(x), y).backward()

    record(tmp_path, train, overrides={"module.fp32": ["*"], "autocast.enabled": ["true"]})
    assert not model._forward_hooks
    assert not torch.is_autocast_enabled("cpu")
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_a_first_call_that_raises_leaves_no_autocast(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        with pytest.raises(RuntimeError):
            model(torch.zeros(2, 99))
        assert not torch.is_autocast_enabled("cpu")
        x, y = batch()
        nn.functional.cross_entropy(model(x), y).backward()

    record(tmp_path, train, overrides={"autocast.enabled": ["true"]})


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
    first = rows(trace, "SELECT out_dtypes FROM modules WHERE step=0 AND name='a'")
    assert list(first[0]["out_dtypes"]) == ["bfloat16"]
    entered = rows(trace, "SELECT DISTINCT enabled FROM calls WHERE call='autocast.enter'")
    assert entered == [{"enabled": False}], "only the user's own context is a call of the user's"


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
