"""The loss scale above the loss on one step axis; NaN and inf have a row of their own."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from ampscope.app.figures import course
from ampscope.app.queries import steps, tensors
from ampscope.app.queries.source import Source

NONE = pd.DataFrame({"step": [], "loss": [], "kind": [], "scaler": [], "scale": [], "opt": []})


def test_scale_and_loss_share_the_step_axis(src: Source) -> None:
    fig = course.course(steps.loss(src), steps.scale(src), steps.skips(src), steps.bad_losses(src))
    names = [t.name for t in fig.data]
    assert names == ["GradScaler#0", "skipped step (3)", "loss"]
    assert {t.xaxis for t in fig.data} == {None}
    assert fig.layout.yaxis2.domain[0] > fig.layout.yaxis.domain[1]
    assert fig.data[0].y.max() == 16.0
    assert "2¹⁶" in fig.layout.yaxis2.ticktext


def test_nan_losses_are_a_category(other: Source) -> None:
    fig = course.course(steps.loss(other), steps.scale(other), steps.skips(other), steps.bad_losses(other))
    bad = next(t for t in fig.data if t.name == "loss is NaN or inf")
    assert set(bad.y) == {"NaN"}
    assert len(bad.x) == 10
    assert fig.layout.yaxis3.type == "category"


def test_without_a_scale_the_loss_takes_the_whole_figure(src: Source) -> None:
    fig = course.course(steps.loss(src), NONE, NONE, NONE)
    assert [t.name for t in fig.data] == ["loss"]
    assert fig.layout.yaxis.domain == (0.0, 1.0)


def test_a_run_of_one_step_is_visible() -> None:
    loss = pd.DataFrame({"step": [0], "loss": [1.5]})
    scale = pd.DataFrame({"scaler": ["GradScaler#0"], "step": [0], "scale": [8.0]})
    fig = course.course(loss, scale, NONE, NONE)
    assert {t.mode for t in fig.data} == {"markers"}


def test_no_finite_loss_is_said() -> None:
    fig = course.course(NONE, NONE, NONE, pd.DataFrame({"step": [1], "kind": ["inf"]}))
    assert [a.text for a in fig.layout.annotations] == ["no finite loss"]


def test_the_scale_takes_the_room_of_a_loss_that_is_never_finite() -> None:
    bad = pd.DataFrame({"step": [0, 1], "kind": ["NaN", "NaN"]})
    scale = pd.DataFrame({"scaler": ["GradScaler#0"] * 2, "step": [0, 1], "scale": [8.0, 4.0]})
    layout = course.course(NONE, scale, NONE, bad).layout
    domains = [layout.yaxis.domain, layout.yaxis3.domain, layout.yaxis2.domain]
    assert all(lower[1] < upper[0] for lower, upper in itertools.pairwise(domains))
    assert layout.yaxis2.domain[1] - layout.yaxis2.domain[0] > 0.6


def test_the_band_lies_between_overflow_and_flush(src: Source) -> None:
    limits, floors = tensors.limits(src), tensors.floors(src)
    fig = course.scale_window(steps.scale(src), steps.skips(src), limits, floors)
    top = next(t for t in fig.data if t.name == "overflow above")
    low = next(t for t in fig.data if t.name == "1 % flushed below")
    assert np.allclose(top.y, np.log2(65504.0 / limits["amax"].to_numpy()))
    assert max(low.y) < min(top.y)
    assert "wte.weight" in top.customdata[0][1]


def test_the_scale_alone_when_no_gradient_was_read(src: Source) -> None:
    empty = pd.DataFrame({"step": [], "amax": [], "closer": [], "exponent": []})
    fig = course.scale_window(steps.scale(src), steps.skips(src), empty, empty)
    assert [t.name for t in fig.data] == ["GradScaler#0", "skipped step (3)"]


def test_an_optimizer_name_cannot_carry_markup() -> None:
    scale = pd.DataFrame({"scaler": ["<img src=x>"], "step": [0], "scale": [8.0]})
    skips = pd.DataFrame({"step": [0], "opt": ["<b>Adam</b>"], "scale": [8.0]})
    text = course.course(NONE, scale, skips, NONE).to_json()
    assert "<img" not in text
    assert "<b>Adam" not in text
