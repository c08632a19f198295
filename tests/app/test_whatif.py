"""What is sent to the browser for the what-if: true counts, one step or all, and what the values went through."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import plotly.io

from ampscope.app import whatif
from ampscope.app.callbacks import context_of
from ampscope.app.queries import tensors
from ampscope.app.queries.tensors import History
from ampscope.app.runs import RunStore
from ampscope.app.state import View
from tests.app.tracekit import RunKit


def history(store: RunStore, name: str = "head.weight") -> History:
    data = tensors.history(context_of(store, View()).src, "grad", "pre_unscale", name)
    assert data is not None
    return data


def test_all_steps_are_summed(store: RunStore) -> None:
    data = history(store)
    sent = whatif.tensor_data(data, None, 16384.0, "float16")
    assert sum(sent["counts"]) + sent["zeros"] + sent["inf"] + sent["nan"] == sent["numel"]
    assert sent["low"] == data.low
    assert sent["through"] == "float16"
    assert sent["scale"] == 16384.0


def test_one_step_is_its_column(store: RunStore) -> None:
    data = history(store)
    sent = whatif.tensor_data(data, 24, 1.0)
    column = data.last.tolist().index(24)
    assert sent["counts"] == data.counts[:, column].tolist()
    assert sent["inf"] == 4
    assert whatif.tensor_data(data, 999, 1.0)["numel"] == int(data.numel.sum())


def test_a_tensor_without_finite_values_has_no_largest(store: RunStore) -> None:
    data = history(store)
    gone = History(**{**data.__dict__, "amax": np.full(len(data.first), np.nan)})
    assert whatif.tensor_data(gone, None, 1.0)["amax"] == 0.0


def test_half_precision_is_remembered(store: RunStore) -> None:
    context = context_of(store, View())
    assert whatif.seen_through(context, "grad") == "float16"
    assert whatif.seen_through(context, "weight") == ""
    assert whatif.seen_through(context_of(store, View.parse("/", "run=second")), "grad") == "bfloat16"
    assert whatif.recorded_scale(context) == 16384.0
    assert whatif.recorded_scale(context_of(store, View.parse("/", "run=bare"))) == 1.0


def test_a_run_of_skipped_steps_starts_the_what_if_where_it_began(tmp_path: Path) -> None:
    kit = RunKit()
    for step, scale in enumerate((65536.0, 32768.0, 16384.0)):
        kit.add("steps", **kit.key(step), level="range", skipped=True, outcome="skipped", scale=scale)
    context = context_of(RunStore([kit.write(tmp_path / "r")]), View())
    assert whatif.recorded_scale(context) == 65536.0


def test_what_is_sent_is_json(store: RunStore) -> None:
    context = context_of(store, View())
    spectra = tensors.spectra(context.src, "grad", "pre_unscale")
    for sent in (whatif.tensor_data(history(store), None, 1.0), whatif.window_data(spectra, 1.0)):
        text = plotly.io.json.to_json_plotly(sent)
        assert "NaN" not in text.replace("'NaN'", "").replace('"NaN"', "")
        json.loads(text)
