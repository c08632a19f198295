"""Run by test_kernel in a process of its own: Triton must see TRITON_INTERPRET when it is first imported."""

from __future__ import annotations

import math
import sys

import numpy as np
import torch

from ampscope.numerics import kernel
from ampscope.numerics.device_queue import DeviceQueue
from ampscope.numerics.histogram import exponent_histogram


def tensors() -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    n = 3 * kernel.BLOCK + 17
    x = torch.randn(n, generator=rng) * 2.0 ** torch.randint(-60, 60, (n,), generator=rng)
    x[:8] = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 65530.0, 65519.0, 1e-40])
    powers = 2.0 ** torch.arange(-149, 128, dtype=torch.float64)
    return [
        x, x.half(), x.bfloat16(), x.double() * 1e30, x[:1], x[5:kernel.BLOCK], powers.float(), -powers, x[:0],
        torch.full((5,), math.nan), torch.zeros(9), x[::7], x.to(torch.float8_e5m2), x[8:108, None].expand(100, 3),
    ]  # fmt: skip


def interpret() -> None:
    """Every tensor alone, then all of them in one go."""
    xs = tensors()
    queue = DeviceQueue(torch.device("cpu"), 2 * len(xs), kernel)
    for i, x in enumerate(xs):
        queue.read([(x, i)])
    queue.read([(x, i) for i, x in enumerate(xs)])
    assert queue.kernel is kernel, "the kernel failed and torch operations took over"
    for tag, found in queue.drain().decode():
        assert isinstance(tag, int)
        expected = exponent_histogram(xs[tag])
        assert np.array_equal(found.counts, expected.counts), tag
        for name in (
            "numel",
            "zeros",
            "nan",
            "posinf",
            "neginf",
            "ge_65520",
            "amax",
            "amin_nonzero",
            "dtype",
        ):
            assert getattr(found, name) == getattr(expected, name), (tag, name)
        for name in ("sum", "sumsq", "sumabs"):
            close = math.isclose(getattr(found, name), getattr(expected, name), rel_tol=1e-12, abs_tol=1e-300)
            assert close or name == "sum", (tag, name)
        assert abs(found.sum - expected.sum) <= 1e-12 * expected.sumabs, tag


def compile_for_gpus() -> None:
    """To machine code for two generations of GPU; none needs to be there."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    one = {"ptr": "*fp32", "n": "i64", "row": "*i64", "BLOCK": "constexpr", "WIDE": "constexpr"}
    many = {"table": "*i64", "rows": "*i64", "BLOCK": "constexpr", "DTYPE": "constexpr", "WIDE": "constexpr"}
    narrow, wide = {"BLOCK": kernel.BLOCK, "WIDE": False}, {"BLOCK": kernel.BLOCK, "WIDE": True}
    jobs = [
        (80, ASTSource(kernel._one, one, narrow)),
        (90, ASTSource(kernel._one, one, narrow)),
        (90, ASTSource(kernel._one, {**one, "ptr": "*fp16"}, narrow)),
        (90, ASTSource(kernel._one, {**one, "ptr": "*bf16"}, narrow)),
        (90, ASTSource(kernel._one, {**one, "ptr": "*fp64"}, wide)),
        (90, ASTSource(kernel._one, {**one, "n": "constexpr"}, {**narrow, "n": 1})),
        (90, ASTSource(kernel._many, many, {**narrow, "DTYPE": triton.language.bfloat16})),
    ]
    for capability, job in jobs:
        target, options = GPUTarget("cuda", capability, 32), {"num_warps": kernel.WARPS}
        assert len(triton.compile(job, target=target, options=options).asm["cubin"]) > 0


if __name__ == "__main__":
    {"interpret": interpret, "compile": compile_for_gpus}[sys.argv[1]]()
    print("checked")
