"""Statistics on a CUDA device: equal to the CPU's, queued without a synchronisation. Skipped without a GPU."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ampscope.numerics import ExponentHistogram, StatsRows, exponent_histogram, range_summary
from ampscope.numerics.device_queue import DeviceQueue, triton_kernel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
CUDA = torch.device("cuda")


def tensors() -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 333, generator=rng) * 2.0 ** torch.randint(-60, 60, (1000, 333), generator=rng)
    x[0, :8] = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 65530.0, 65519.0, 1e-40])
    return [
        x, x.half(), x.bfloat16(), x.double() * 1e30, x[:, ::3], x.t(), x[0, 0], x[:0], x.to(torch.float8_e5m2),
        x[:, None, :5].expand(1000, 7, 5), torch.arange(-5, 5), torch.complex(x, x).conj(),
    ]  # fmt: skip


def same(found: ExponentHistogram, expected: ExponentHistogram) -> None:
    assert np.array_equal(found.counts, expected.counts)
    for name in ("numel", "zeros", "nan", "posinf", "neginf", "ge_65520", "amax", "amin_nonzero", "dtype"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.sumabs == pytest.approx(expected.sumabs, rel=1e-12)
    assert found.sum == pytest.approx(expected.sum, rel=1e-12, abs=1e-12 * expected.sumabs)


@pytest.mark.parametrize("use_kernel", [True, False])
def test_device_rows_say_what_the_cpu_says(use_kernel: bool) -> None:
    xs = tensors()
    kernel = triton_kernel(CUDA) if use_kernel else None
    queue = DeviceQueue(CUDA, 2 * len(xs), kernel)
    for i, x in enumerate(xs):
        queue.read([(x.to(CUDA), i)])
    queue.read([(x.to(CUDA), i) for i, x in enumerate(xs)])
    assert queue.kernel is kernel
    for tag, found in queue.drain().decode():
        assert isinstance(tag, int)
        same(found, exponent_histogram(xs[tag]))


def test_reads_and_drains_do_not_synchronise() -> None:
    xs = [x.to(CUDA) for x in tensors()]
    rows = StatsRows(CUDA, len(xs))
    rows.read_many([(x, i) for i, x in enumerate(xs)])  # compiles
    rows.drain().result()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        rows.read_many([(x, i) for i, x in enumerate(xs)])
        pending = rows.drain()
        pending.ready()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(pending.result()) == len(xs)
    assert pending.ready()


def test_reads_on_several_streams() -> None:
    rows, x = StatsRows(CUDA, 4), torch.ones(1 << 22, device=CUDA)
    for _ in range(5):
        streams = [torch.cuda.Stream() for _ in range(4)]
        for i, stream in enumerate(streams):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                rows.read(x * 2.0**i, i)
        assert [h.amax for _, h in rows.drain().result()] == [1.0, 2.0, 4.0, 8.0]


def test_one_call_and_range_summary() -> None:
    for x in tensors():
        same(exponent_histogram(x.to(CUDA)), exponent_histogram(x))
        assert range_summary(x.to(CUDA)) == range_summary(x)


def test_more_than_2_31_elements() -> None:
    x = torch.full((2**31 + 5,), 0.5, dtype=torch.float16, device=CUDA)
    found = exponent_histogram(x)
    assert (found.numel, int(found.counts[126]), found.sum) == (2**31 + 5, 2**31 + 5, (2**31 + 5) / 2)
