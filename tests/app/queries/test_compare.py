"""Two runs: losses at common steps, ratios of true magnitudes, the first tensor in step and forward order."""

from __future__ import annotations

import numpy as np
import pytest

from ampscope.app.queries import compare, order
from ampscope.app.queries.source import Source


def test_headlines(src: Source, other: Source, bare: Source) -> None:
    one, two = compare.headline(src), compare.headline(other)
    assert (one.precision, two.precision) == ("float16", "bfloat16")
    assert one.skipped == 3
    assert one.scale == 16384.0
    assert one.memory is not None
    assert compare.headline(bare).last_loss is None


def test_losses_at_common_finite_steps(src: Source, other: Source) -> None:
    both = compare.losses(src, other)
    assert both["step"].tolist() == list(range(30))
    assert compare.loss_distance(both) == 0.0
    assert compare.loss_distance(both.assign(two=both["one"] * 1.1)) == pytest.approx(0.1)
    assert compare.loss_distance(both.iloc[:0]) is None


def test_ratios_take_the_scale_out(src: Source, other: Source) -> None:
    found = compare.ratios(src, other, "grad")
    quiet = found[~found["step"].isin([0, 24]) & (found["name"] != "head.weight")]
    assert quiet["log2"].to_numpy() == pytest.approx(np.full(len(quiet), 2.0))
    same = compare.ratios(src, src, "activation")
    assert (same["log2"] == 0).all()


def test_the_first_divergence_is_first_in_step_and_forward_order(src: Source, other: Source) -> None:
    found = compare.ratios(src, other, "grad")
    names = order.forward_order(src, found["name"])
    first = compare.first_divergence(found, names)
    assert first is not None
    assert (first.step, first.name) == (0, "wte.weight")
    assert compare.first_divergence(compare.ratios(src, src, "grad"), names) is None


def test_common_steps_are_bounded(
    src: Source, other: Source, bare: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compare.common_steps(src, other, "grad") == list(range(0, 40, 2))
    monkeypatch.setattr(compare, "COMMON", 6)
    assert len(compare.common_steps(src, other, "grad")) <= 6
    assert compare.common_steps(src, bare, "grad") == []
    assert compare.ratios(src, bare, "grad").empty
