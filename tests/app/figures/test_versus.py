"""Two runs in one figure."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ampscope.app.figures import versus


def test_both_losses_are_named() -> None:
    frame = pd.DataFrame({"step": [0, 1], "loss": [2.0, 1.0]})
    fig = versus.losses(frame, frame, ("one", "<two>"))
    assert [t.name for t in fig.data] == ["one", "&lt;two&gt;"]


def test_ratios_are_clipped_in_colour_and_told_in_full() -> None:
    found = pd.DataFrame(
        {"name": ["a", "a", "b", "b"], "step": [0, 4, 0, 4], "log2": [0.0, 9.0, np.inf, np.nan]}
    )
    fig = versus.ratio_heat(found, ["b", "a"])
    z = fig.data[0].z
    assert z[1].tolist() == pytest.approx([0.0, 3**0.5])
    assert z[0][0] == pytest.approx(3**0.5)
    assert np.isnan(z[0][1])
    assert fig.data[0].customdata[1].tolist() == [1.0, 512.0]
    assert np.isinf(fig.data[0].customdata[0][0])
    assert fig.data[0].x == ("step 0", "step 4")
