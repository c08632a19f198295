"""What a page of tensors opens with, and that its controls offer what the trace holds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from ampscope.app import explorer
from ampscope.app.callbacks import context_of
from ampscope.app.pages.gradients import EXPLORER
from ampscope.app.runs import Context, RunStore
from ampscope.app.state import View
from ampscope.errors import AmpscopeError
from tests.app.tracekit import RunKit


def context(store: RunStore, search: str = "") -> Context:
    return context_of(store, View.parse("/gradients", search))


def test_the_kinds_are_offered(store: RunStore) -> None:
    options = dict(EXPLORER.of_control(context(store)).options)
    assert options == {"grad.pre_unscale": "parameter gradients", "activation_grad": "activation gradients"}
    assert EXPLORER.chosen(context(store, "of=activation_grad")).role == "activation_grad"


def test_a_healthy_run_opens_with_magnitudes(store: RunStore) -> None:
    assert EXPLORER.default_stat(context(store)) == "amax"


@pytest.mark.parametrize(("center", "stat"), [(-37.5, "flushed"), (-25.0, "subnormal")])
def test_a_run_in_trouble_opens_with_it(tmp_path: Path, center: float, stat: str) -> None:
    store = RunStore([RunKit(grad_center=center).build().write(tmp_path / "r")])
    found = context(store)
    assert EXPLORER.default_stat(found) == stat
    names = EXPLORER.names(found, EXPLORER.chosen(found))
    assert EXPLORER.default_tensor(found, names) in ("head.weight", "ln_f.bias", "ln_f.weight")


def test_tensors_in_forward_order(store: RunStore) -> None:
    control = EXPLORER.tensor_control(context(store))
    assert [value for value, _ in control.options][:3] == [
        "wte.weight",
        "blocks.0.ln1.weight",
        "blocks.0.ln1.bias",
    ]
    assert control.default == "wte.weight"


def test_nothing_recorded_is_one_sentence(store: RunStore) -> None:
    bare = context(store, "run=bare")
    assert EXPLORER.top_controls(bare) == []
    assert EXPLORER.tensor_controls(bare) == []
    with pytest.raises(AmpscopeError, match="No gradient was read"):
        EXPLORER.chosen(bare)


def test_shares_are_of_the_nonzero_elements(store: RunStore) -> None:
    from ampscope.app.queries import tensors

    rows = tensors.heat(context(store).src, "grad", "pre_unscale")
    assert (explorer.nonzero(rows) + rows["zeros"] + rows["inf"] == rows["numel"]).all()


def test_of_very_many_tensors_the_most_extreme_are_drawn() -> None:
    names = [f"t{i:04}" for i in range(1000)]
    rows = pd.DataFrame({"name": names * 2})
    value = pd.Series([float(i % 1000 == 777) + i / 1e6 for i in range(2000)])
    shown = explorer.most_telling(rows, names, value, "harm")
    assert len(shown) == explorer.ROWS
    assert shown == sorted(shown)
    assert "t0777" in shown
    assert "t0000" not in shown
    assert explorer.most_telling(rows, names[:5], value, "harm") == names[:5]
    assert "t0000" in explorer.most_telling(rows, names, value, "binades")
