"""The queue behind StatsRows on devices, driven on the CPU: torch operations, then the kernel's interface."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ampscope.numerics.device import PIECE
from ampscope.numerics.device_queue import DeviceQueue, triton_kernel
from ampscope.numerics.histogram import ExponentHistogram, exponent_histogram

Check = Callable[[ExponentHistogram, NDArray[np.float64]], None]
CPU = torch.device("cpu")


def tensors() -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(300, 40, generator=rng) * 2.0 ** torch.randint(-60, 60, (300, 40), generator=rng)
    x[0, :6] = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 65530.0])
    return {
        "plain": x,
        "half": x.half(),
        "bfloat": x.bfloat16().t(),
        "double": x.double() * 1e60,
        "sliced": x[::3, 5:],
        "expanded": x[:5, None].expand(5, 7, 40),
        "empty": x[:0],
        "scalar": x[1, 1],
        "bytes": x.to(torch.float8_e5m2),
        "pairs": torch.arange(256, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        "whole": torch.arange(-50, 50),
        "complex": torch.complex(x, x.t().reshape(300, 40)).conj(),
        "negative": torch.view_as_complex(x.view(-1, 2)).conj().imag,
        "sparse": torch.eye(4).to_sparse(),
    }


def same(found: ExponentHistogram, expected: ExponentHistogram) -> None:
    assert np.array_equal(found.counts, expected.counts)
    for name in ("numel", "zeros", "nan", "posinf", "neginf", "ge_65520", "amax", "amin_nonzero", "dtype"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.sumabs == pytest.approx(expected.sumabs, rel=1e-12)
    assert found.sumsq == pytest.approx(expected.sumsq, rel=1e-12)
    assert found.sum == pytest.approx(expected.sum, rel=1e-12, abs=1e-12 * expected.sumabs)


def test_rows_say_what_the_cpu_path_says() -> None:
    queue = DeviceQueue(CPU, 20, None)
    batch: list[tuple[torch.Tensor, object]] = [(x, name) for name, x in tensors().items()]
    queue.read(batch[:3])
    queue.read(batch[3:])
    drained = queue.drain()
    assert drained.ready()
    for (name, found), (x, tag) in zip(drained.decode(), batch, strict=True):
        assert name == tag
        same(found, exponent_histogram(x))


def test_rows_are_blank_after_a_drain_and_host_buffers_are_reused() -> None:
    queue = DeviceQueue(CPU, 2, None)
    for value in (1.0, 2.0, 3.0, 4.0):
        queue.read([(torch.full((5,), value), value), (torch.zeros(2), "z")])
        (_, first), (_, zeros) = queue.drain().decode()
        same(first, exponent_histogram(torch.full((5,), value)))
        assert (zeros.amax, zeros.amin_nonzero) == (0.0, None)
    assert len(queue._hosts) == 2


def test_a_drain_is_not_disturbed_by_later_reads() -> None:
    queue = DeviceQueue(CPU, 1, None)
    pending = []
    for i in range(4):
        queue.read([(torch.full((3,), 2.0**i), i)])
        pending.append(queue.drain())
    assert [(p.decode()[0][0], p._keys[0].tag) for p in pending] == [(i, i) for i in range(4)]
    queue.read([(torch.full((3,), 8.0), 0)])
    late = queue.drain()
    queue.read([(torch.full((3,), 16.0), 0)])
    assert late.decode()[0][1].amax == 8.0


def test_pieces_of_a_large_tensor(check: Check) -> None:
    x = torch.randn(2 * PIECE + 11, generator=torch.Generator().manual_seed(0))
    queue = DeviceQueue(CPU, 2, None)
    queue.read([(x, 0), (x.half()[::2], 1)])
    (_, whole), (_, strided) = queue.drain().decode()
    check(whole, x.double().numpy())
    check(strided, x.half()[::2].double().numpy())


class Kernel(ModuleType):
    """Stands for the Triton module: records launches, or breaks as Triton does without a C compiler."""

    DTYPES = (torch.float32, torch.float16)

    def __init__(self, broken: bool) -> None:
        super().__init__("kernel")
        self.broken = broken
        self.launches: list[tuple[torch.dtype, int]] = []

    def add_one(self, row: torch.Tensor, x: torch.Tensor) -> None:
        self.add_many(row[None], [x], [0])

    def add_many(self, rows: torch.Tensor, xs: list[torch.Tensor], indices: list[int]) -> None:
        assert all(x.is_contiguous() and x.dim() == 1 for x in xs)
        self.launches.append((xs[0].dtype, len(xs)))
        rows[indices[0]] += 1
        if self.broken:
            raise RuntimeError("no C compiler")


def test_one_launch_per_dtype_for_many_tensors() -> None:
    kernel = Kernel(broken=False)
    queue = DeviceQueue(CPU, 20, kernel)
    queue.read(
        [
            (x, i)
            for i, x in enumerate([torch.ones(3), torch.ones(4, 2), torch.ones(5).half(), torch.empty(0)])
        ]
    )
    assert kernel.launches == [(torch.float32, 2), (torch.float16, 1)]
    kernel.launches.clear()
    queue.read([(torch.ones(4, 4)[:, 1:], "strided"), (torch.arange(4), "integers")])
    assert kernel.launches == [(torch.float32, 1), (torch.float64, 1)]


def test_a_kernel_that_breaks_is_replaced_for_good() -> None:
    kernel = Kernel(broken=True)
    queue = DeviceQueue(CPU, 4, kernel)
    queue.read([(torch.full((3,), 2.0), "a")])
    queue.read([(torch.full((3,), 3.0), "b")])
    assert [(tag, h.sum) for tag, h in queue.drain().decode()] == [("a", 6.0), ("b", 9.0)]
    assert len(kernel.launches) == 1


def test_no_kernel_off_cuda() -> None:
    assert triton_kernel(CPU) is None
