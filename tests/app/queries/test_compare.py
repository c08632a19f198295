"""Two runs: ratios of true magnitudes at the steps that both sampled."""

from __future__ import annotations

import numpy as np
import pytest

from ampscope.app.queries import compare
from ampscope.app.queries.source import Source


def test_ratios_take_the_scale_out(src: Source, other: Source) -> None:
    found = compare.ratios(src, other, "grad")
    quiet = found[~found["step"].isin([0, 24]) & (found["name"] != "head.weight")]
    assert quiet["log2"].to_numpy() == pytest.approx(np.full(len(quiet), 2.0))
    same = compare.ratios(src, src, "activation")
    assert (same["log2"] == 0).all()


def test_common_steps_are_bounded(
    src: Source, other: Source, bare: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compare.common_steps(src, other, "grad") == list(range(0, 40, 2))
    monkeypatch.setattr(compare, "COMMON", 6)
    assert len(compare.common_steps(src, other, "grad")) <= 6
    assert compare.common_steps(src, bare, "grad") == []
    assert compare.ratios(src, bare, "grad").empty
