from __future__ import annotations

import numpy as np
import pandas as pd

from ampscope.diagnose.frames import items, null, number, records, text, whole


def test_missing_cells_are_all_alike() -> None:
    missing: list[object] = [None, float("nan"), pd.NA, pd.NaT, np.float64("nan")]
    there: list[object] = [0, 0.0, "", "nan", [], np.array([1.0])]
    assert all(null(x) for x in missing)
    assert not any(null(x) for x in there)


def test_cells_as_python_values() -> None:
    frame = pd.DataFrame({"a": [1.5, float("nan")], "b": ["x", None], "c": [np.array([1, 2]), None]})
    first, second = records(frame)
    assert (number(first["a"]), text(first["b"]), items(first["c"])) == (1.5, "x", [1, 2])
    assert (number(second["a"], -1.0), text(second["b"]), items(second["c"])) == (-1.0, None, [])
    assert (whole(3.0), whole(None)) == (3, None)
