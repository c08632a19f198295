"""Cost of one exponent histogram with all counters, against a plain pass and against what other tools compute.

    python benchmarks/histogram.py [--elements N] [--rounds R] [--threads T]

Candidates take turns within each round, so that they meet the same noise; the table shows the median of the
rounds in ns per element, and the ratio to `x.abs().max()` and to `copy_` of the same round. `StatsRows` is what the
recorder reads with: it counts small tensors together, 64 of them here. On a CUDA device the time is the device's, and
the last column is the share of the bandwidth that a copy reaches.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ampscope.numerics import StatsRows, exponent_histogram, range_summary

Run = Callable[[], object]


@dataclass(frozen=True)
class Candidate:
    """One row of the table; what: what it computes that ampscope's does too."""

    name: str
    what: str
    run: Run


def candidates(x: torch.Tensor) -> list[Candidate]:
    """Everything that can be run on this machine for this tensor; the first two are the yardsticks."""
    target = torch.empty_like(x)
    rows = [
        Candidate("x.abs().max()", "amax", lambda: x.abs().max()),
        Candidate("copy_", "nothing: the bandwidth", lambda: target.copy_(x)),
    ]
    stats = StatsRows(x.device, 64)
    rows.append(
        Candidate("ampscope StatsRows.read", "all counters", lambda: stats.read(x, 0) or stats.drain())
    )
    if x.is_cuda:
        return rows
    rows += [
        Candidate("ampscope exponent_histogram", "all counters", lambda: exponent_histogram(x)),
        Candidate("ampscope range_summary", "range, zeros, non-finite", lambda: range_summary(x)),
        Candidate("bincount on int32 exponents", "histogram", lambda: int32_bincount(x)),
        Candidate("torch.histc, 256 bins", "linear histogram", lambda: torch.histc(x.float(), 256)),
        Candidate("np.histogram, 64 bins", "linear histogram", lambda: np.histogram(x.float().numpy(), 64)),
    ]
    return rows + tensorboard(x) + wandb(x)


def int32_bincount(x: torch.Tensor) -> torch.Tensor:
    """The obvious way: exponents of the whole tensor at once."""
    return torch.bincount((x.float().view(torch.int32) >> 23) & 0xFF, minlength=256)


def tensorboard(x: torch.Tensor) -> list[Candidate]:
    if importlib.util.find_spec("tensorboard") is None:
        return []
    from torch.utils.tensorboard import SummaryWriter

    folder = tempfile.TemporaryDirectory()
    writer = SummaryWriter(folder.name)

    def run() -> tempfile.TemporaryDirectory[str]:
        writer.add_histogram("x", x.float())
        return folder

    return [Candidate("SummaryWriter.add_histogram", "linear histogram, moments", run)]


def wandb(x: torch.Tensor) -> list[Candidate]:
    if importlib.util.find_spec("wandb") is None:
        return []
    package = importlib.import_module("wandb")
    return [Candidate("wandb.Histogram", "linear histogram", lambda: package.Histogram(x.float().numpy()))]


def seconds(run: Run, device: torch.device, repeats: int) -> float:
    """Time of one call: of this thread alone when torch has one thread, else wall time; on CUDA by events."""
    if device.type == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / repeats
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    for _ in range(repeats):
        run()
    return (clock() - begin) / repeats


def table(x: torch.Tensor, rounds: int, repeats: int) -> None:
    """Measure and print one table."""
    rows = candidates(x)
    for row in rows:
        row.run()
    times = [[seconds(row.run, x.device, repeats) for row in rows] for _ in range(rounds)]
    dtype = str(x.dtype).removeprefix("torch.")
    print(f"\n{x.numel():,} elements of {dtype} on {x.device.type}, median of {rounds} rounds")
    last = "of copy bandwidth" if x.is_cuda else ""
    print(f"{'':32}{'ns/element':>11}{'µs/call':>12}{'/ abs().max()':>15}{'/ copy_':>9}  {last}")
    for i, row in enumerate(rows):
        own = statistics.median(t[i] for t in times)
        to_max, to_copy = (statistics.median(t[i] / t[k] for t in times) for k in (0, 1))
        # A copy reads and writes: its bandwidth counts both, a reader's only what it reads.
        share = f"{0.5 / to_copy:.0%}" if x.is_cuda else row.what
        print(
            f"{row.name:32}{own * 1e9 / x.numel():11.3g}{own * 1e6:12.4g}{to_max:15.2f}{to_copy:9.2f}  {share}"
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--elements", type=int, default=1 << 22, help="size of the large tensor")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, NumPy {np.__version__}, {args.threads} thread(s)")
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    for device in devices:
        for n in (args.elements, 4096, 256):
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                x = torch.randn(n, generator=torch.Generator().manual_seed(0)).to(device, dtype)
                table(x, args.rounds, repeats=max(1, (1 << 18) // n))


if __name__ == "__main__":
    main()
