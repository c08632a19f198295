"""One tensor over steps: zero, inf and NaN are rows; the lines of the formats stand where rounding begins."""

from __future__ import annotations

import numpy as np
import pytest

from ampscope.app.figures import spread
from ampscope.app.queries import tensors, updates
from ampscope.app.queries.source import Source


def test_zero_and_non_finite_are_rows_of_their_own(src: Source) -> None:
    data = tensors.history(src, "grad", "pre_unscale", "head.weight")
    assert data is not None
    fig = spread.history(data)
    assert [t.name for t in fig.data] == ["", spread.ZERO, spread.INF]
    inf = fig.data[2]
    assert np.nansum(inf.z) == (data.inf > 0).sum() == 2
    assert np.nanmax(inf.customdata) == 100.0 * 4 / 16384
    assert fig.layout.yaxis.ticktext[0] == "0"
    assert fig.layout.yaxis.ticktext[-2:] == ("inf", "NaN")


def test_a_cell_is_the_share_of_its_column(src: Source) -> None:
    data = tensors.history(src, "grad", "pre_unscale", "head.weight")
    assert data is not None
    fig = spread.history(data)
    total = np.nansum(10.0 ** fig.data[0].z, axis=0) + 10.0 ** fig.data[1].z[0] + data.inf / data.numel
    assert np.allclose(total, 1.0, atol=1e-3)
    assert fig.data[0].x[3] == f"step {data.last[3]}"
    assert fig.data[0].customdata[:, 0].sum() == pytest.approx(
        100.0 * data.counts[:, 0].sum() / data.numel[0]
    )


def test_finite_tensors_have_no_row_of_bad_values(src: Source) -> None:
    data = tensors.history(src, "activation", "", "wte:out")
    assert data is not None
    assert [t.name for t in spread.history(data).data] == ["", spread.ZERO]


def test_the_lines_of_the_formats(src: Source) -> None:
    data = updates.ratios(src, "head.weight")
    assert data is not None
    fig = spread.ratio_history(data)
    heights = [shape.y0 for shape in fig.layout.shapes]
    assert heights == [-8.5, -11.5]
    assert [a.text for a in fig.layout.annotations] == ["bf16: 2⁻⁸", "fp16: 2⁻¹¹"]
