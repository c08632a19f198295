"""What recording costs: the ratio of a training step under a tool to the plain step, for ampscope and its peers.

    python benchmarks/overhead.py [--seconds 60] [--workloads mlp,char_gpt] [--out docs/overhead.md]

All tools train the same model at once, each in a process of its own, and take turns block by block on one core:
a block of plain steps is never far in time from the blocks it is compared with. Nothing runs in between, and the
writer thread of a tool shares that one core, so that its work counts too.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).resolve().parent
WORKLOADS = {
    "mlp": "MLP, 16 thousand parameters, fp16",
    "digits_cnn": "examples/digits_cnn.py, fp16",
    "char_gpt": "examples/char_gpt.py, fp16",
    "gpt_19m": "GPT, 19 million parameters, bf16",
}
TOOLS = (
    "plain",
    "ampscope",
    "ampscope, every tensor, every step",
    "ampscope, census",
    "DebugUnderflowOverflow (transformers)",
    "wandb.watch, log_freq=1, offline",
    "SummaryWriter.add_histogram of every gradient",
    "torch DebugMode",
    "torch detect_anomaly",
)
BLOCK_SECONDS = 0.25
"""Length of one block of plain steps: long against the switch between processes, short against drift."""


@dataclass
class Worker:
    """One tool's process. `missing` names the package that it lacks, if it could not start."""

    workload: str
    tool: str
    clock: str
    missing: str = ""
    times: list[float] = field(default_factory=list)

    def __enter__(self) -> Worker:
        command = [sys.executable, str(HERE / "overhead_worker.py"), self.workload, self.tool, self.clock]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "WANDB_SILENT": "true", "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        answer = self._answer()
        self.missing = answer.removeprefix("missing ") if answer != "ready" else ""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.communicate(timeout=120)

    def run(self, steps: int) -> float:
        """Seconds that `steps` steps took."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            assert self.process.stderr is not None
            raise SystemExit(f"{self.tool} on {self.workload} failed:\n{self.process.stderr.read()[-2000:]}")
        return line


@dataclass(frozen=True)
class Figure:
    """`typical`: median over the rounds of the ratio to the plain block of the same round. `whole`: the same of
    the total times, so that rare, dear steps count in full. `spread`: half the interquartile range of the ratios."""

    workload: str
    tool: str
    typical: float
    whole: float
    spread: float
    plain_ms: float


def measure(workload: str, tools: tuple[str, ...], seconds: float, clock: str) -> list[Figure | str]:
    """Figures of the tools that could start, and a line for each that could not."""
    workers = [Worker(workload, tool, clock) for tool in tools]
    notes: list[Figure | str] = []
    ready: list[Worker] = []
    try:
        for worker in workers:
            worker.__enter__()
            if worker.missing:
                notes.append(f"{worker.tool}: skipped, because the package {worker.missing} is not installed")
            else:
                ready.append(worker)
        plain = ready[0]
        plain.run(3)
        probe = plain.run(3) / 3
        steps = max(1, round(BLOCK_SECONDS / probe))
        for worker in ready:
            worker.run(max(3, steps // 2))
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or len(plain.times) < 7:
            for worker in ready:
                worker.times.append(worker.run(steps))
        return [*notes, *(figure(worker, plain, steps) for worker in ready)]
    finally:
        for worker in workers:
            if hasattr(worker, "process"):
                worker.__exit__(None, None, None)


def figure(worker: Worker, plain: Worker, steps: int) -> Figure:
    ratios = [own / base for own, base in zip(worker.times, plain.times, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    whole = sum(worker.times) / sum(plain.times)
    plain_ms = 1e3 * statistics.median(plain.times) / steps
    return Figure(worker.workload, worker.tool, statistics.median(ratios), whole, (high - low) / 2, plain_ms)


def table(figures: list[Figure]) -> str:
    """Markdown: one row per tool, one column per workload; cells are `whole (typical ± spread)`."""
    workloads = list(dict.fromkeys(f.workload for f in figures))
    plain = {f.workload: f.plain_ms for f in figures if f.tool == "plain"}
    heads = [f"{WORKLOADS[w]}<br>plain step {plain[w]:.3g} ms" for w in workloads]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(workloads) + 1) + "|"]
    by_key = {(f.tool, f.workload): f for f in figures}
    for tool in dict.fromkeys(f.tool for f in figures if f.tool != "plain"):
        found = [by_key.get((tool, w)) for w in workloads]
        cells = ["–" if f is None else f"**{f.whole:.3f}** ({f.typical:.3f} ± {f.spread:.3f})" for f in found]
        lines.append(f"| {tool} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(
    figures: list[Figure], notes: list[str], seconds: float, longer: list[Figure], longer_seconds: float
) -> str:
    import torch

    machine = next(
        (line.split(":", 1)[1].strip() for line in _cpu_lines() if line.startswith("model name")),
        platform.machine(),
    )
    alone = f"""
The default alone beside the plain script, {longer_seconds:.0f} s per workload. The controller lets the recorder
spend one second at the start, for the first censuses, ahead of its 2 % of the time:

{table(longer)}
"""
    skipped = "".join(f"\n- {note}" for note in dict.fromkeys(notes))
    return f"""# What recording costs

Measured on {datetime.date.today()}: ratios within one run, and noisy on a shared machine (see the ±).

Ratio of the time of a training step to the plain step. In each cell: **the whole run** (total time, rare dear steps
included), then in brackets the typical block of steps (median over all rounds ± half the interquartile range).
1.02 means two percent slower.

{table(figures)}

All tools train the same model side by side, each in its own process, and take turns on one core, a quarter of a
second each, {seconds:.0f} s per workload; the writer threads share that core. ampscope's first row is the
default: `ampscope run train.py`, budget 2 %. The second is `--every 1 --level range`, the third `--every 1 --level
census`. DebugUnderflowOverflow sees minima and maxima; add_histogram sees parameter gradients only. Each tool has a
share of {seconds:.0f} s only, in which the dear steps at the start of a recording weigh a lot.
{alone if longer else ""}
{machine}, one thread, Python {platform.python_version()}, torch {torch.__version__.split("+")[0]}.
Made by `python benchmarks/overhead.py`; the peers come with `pip install -e '.[peers]'`.
{skipped}
"""


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the cost of recording against the plain script.")
    parser.add_argument("--seconds", type=float, default=60.0, help="time per workload, all tools together")
    parser.add_argument(
        "--longer", type=float, default=0.0, help="time per workload for the default alone, at the end"
    )
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--tools", default="", help="only tools whose name contains this (plain always runs)")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: of all threads, for a machine that is busy",
    )
    parser.add_argument("--out", type=Path, help="write the page here, e.g. docs/overhead.md")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    tools = tuple(tool for tool in TOOLS if tool == "plain" or args.tools in tool)
    results: list[Figure | str] = []
    for workload in args.workloads.split(","):
        results += measure(workload, tools, args.seconds, args.clock)
    longer: list[Figure] = []
    for workload in args.workloads.split(",") if args.longer else ():
        found = measure(workload, ("plain", "ampscope"), args.longer, args.clock)
        longer += [r for r in found if isinstance(r, Figure)]
    figures = [r for r in results if isinstance(r, Figure)]
    notes = [r for r in results if isinstance(r, str)]
    print("\n".join([table(figures), *dict.fromkeys(notes)]))
    if longer:
        print(table(longer))
    if args.out:
        args.out.write_text(page(figures, notes, args.seconds, longer, args.longer))


if __name__ == "__main__":
    main()
