from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from ampscope.diagnose.narrow import E2M1, E4M3, E5M2, FP16, Narrow, Spread, spreads, window_of
from ampscope.diagnose.signals import Signals
from ampscope.numerics import exponent_histogram, of_dtype, scale_window, what_if
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, key, step, write


def row(x: torch.Tensor, **columns: Any) -> Row:
    h = exponent_histogram(x)
    lo, counts = h.trimmed()
    made = {
        "zeros": h.zeros,
        "nan": h.nan,
        "posinf": h.posinf,
        "neginf": h.neginf,
        "amax": h.amax,
        "numel": h.numel,
    }
    return {
        **key(0),
        "step": 0,
        "hist_lo": lo,
        "hist": counts,
        "scale": 1.0,
        "stage": None,
        **made,
        **columns,
    }


def spread(x: torch.Tensor, name: str = "x", shift: int = 0) -> Spread:
    made = Spread(name, None, "grad")
    made.add(row(x), shift)
    return made


@pytest.mark.parametrize(
    ("fmt", "name"), [(FP16, "fp16"), (E4M3, "fp8_e4m3fn"), (E5M2, "fp8_e5m2"), (E2M1, "fp4_e2m1")]
)
@pytest.mark.parametrize("scale", [-20, -3, 0, 7])
def test_equal_to_the_numerics(fmt: Narrow, name: str, scale: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(5000) * torch.exp2(torch.randint(-30, 6, (5000,)).float())
    f, asked = of_dtype(name), what_if(exponent_histogram(x), name, 2.0**scale)
    assert (2.0**fmt.flush_log2, 2.0**fmt.normal_log2, fmt.largest) == (
        f.flush_threshold,
        f.min_normal,
        f.largest,
    )
    assert spread(x).flushed(fmt, scale) == pytest.approx(asked.flushed_share, abs=2e-4)
    assert spread(x).subnormal(fmt, scale) == pytest.approx(asked.subnormal_share, abs=2e-4)


def test_window_equal_to_the_numerics() -> None:
    torch.manual_seed(0)
    tensors = {"a": torch.randn(4000) * 2.0**-12, "b": torch.randn(4000) * 2.0**5}
    want = scale_window({k: exponent_histogram(v) for k, v in tensors.items()}, "fp16", 0.01)
    found = window_of([spread(v, k) for k, v in tensors.items()], 0.01)
    assert found is not None
    assert found.open
    assert (2.0**found.low, 2.0**found.high) == (want.lo, want.hi)
    assert (found.closes_low, found.closes_high) == (want.closes_low, want.closes_high)


def test_the_loss_scale_is_a_shift() -> None:
    x = torch.randn(1000)
    assert spread(1024.0 * x, shift=10).bins == spread(x).bins
    assert spread(1024.0 * x, shift=10).amax == pytest.approx(float(x.abs().max()))


def test_largest_value_at_the_largest_of_the_format() -> None:
    x = torch.tensor([0.5, 2.0, -7.0])
    assert spread(x).own_scale(E4M3) == pytest.approx(math.log2(448.0 / 7.0))
    assert spread(torch.zeros(3)).own_scale(E4M3) == 0.0
    assert window_of([spread(torch.zeros(3))], 0.01) is None


def test_rows_of_one_tensor_add_up(tmp_path: Path) -> None:
    x = torch.tensor([1.0, 2.0, 0.0])
    tensors = [
        row(x, name="w", module="m", role="grad", stage="post_clip", segment=i, step=i, of_numel=3)
        for i in range(3)
    ]
    tensors.append(
        row(x, name="w", module="m", role="grad", stage="pre_unscale", segment=4, step=4, of_numel=3)
    )
    with open_trace(write(tmp_path, {"steps": [step(i) for i in range(5)], "tensors": tensors})) as trace:
        (found,) = spreads(Signals(trace), "grad")
    assert (found.samples, found.zeros, found.nonzero, found.first, found.last) == (3, 3, 6.0, 0, 2)
