"""`ampscope doctor`: checks that this machine can record and read a run, by doing it. Changes nothing."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PACKAGES = (
    "torch", "numpy", "pyarrow", "duckdb", "pandas", "plotly", "dash", "dash-mantine-components",
    "dash-ag-grid", "waitress", "rich", "libcst",
)  # fmt: skip

TESTED_TORCH = (2, 13)
"""The oldest torch on which the test suite has passed."""

PROBE = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Check:
    """One line of the table. `result` is ok, note (works, but read it) or FAIL (ampscope cannot work)."""

    name: str
    result: Literal["ok", "note", "FAIL"]
    detail: str


class Command:
    """Check that this machine can record and view runs.

    Versions, devices and the number formats they compute natively, a place to write to, and a tiny training
    run that is recorded and read back. Exits 1 when something that ampscope needs is missing.
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--no-run", action="store_true", help="leave out the tiny run (a few seconds)")

    def run(self, args: argparse.Namespace) -> int:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        parts: list[Callable[[], Iterator[Check]]] = [versions, devices, folder]
        checks = [check for part in parts for check in guarded(part)]
        if not args.no_run:
            checks += guarded(recording)
        table = Table(box=box.SIMPLE_HEAD)
        for title in ("check", "", "found"):
            table.add_column(title, overflow="fold")
        colours = {"ok": "green", "note": "yellow", "FAIL": "bold red"}
        for check in checks:
            table.add_row(check.name, Text(check.result, colours[check.result]), Text(check.detail))
        console = Console(highlight=False, markup=False)
        console.print(table)
        failed = [check.name for check in checks if check.result == "FAIL"]
        console.print(
            f"Not fit to record: {', '.join(failed)}."
            if failed
            else "ampscope can record and read runs here."
        )
        return 1 if failed else 0


def guarded(part: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """The checks of `part`; an exception in it is a failed check."""
    try:
        yield from part()
    except Exception as error:
        yield Check(part.__name__, "FAIL", f"{type(error).__name__}: {error}")


def versions() -> Iterator[Check]:
    """The interpreter and every package that ampscope needs, none of them imported."""
    from importlib.metadata import PackageNotFoundError, version

    python = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", "ok" if sys.version_info >= (3, 10) else "FAIL", f"{python} ({sys.executable})")
    for package in PACKAGES:
        try:
            found = version(package)
        except PackageNotFoundError:
            yield Check(package, "FAIL", "not installed: pip install ampscope")
            continue
        if package == "torch" and tuple(map(int, found.split(".")[:2])) < TESTED_TORCH:
            oldest = ".".join(map(str, TESTED_TORCH))
            yield Check(package, "note", f"{found}: older than {oldest}, the oldest that was tested")
        else:
            yield Check(package, "ok", found)


def devices() -> Iterator[Check]:
    """Every device that torch sees, and the half formats that its matrix units compute by themselves."""
    import torch

    yield Check("cpu", "ok", f"{torch.backends.cpu.get_cpu_capability()}, {natively(*cpu_formats())}")
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        formats = natively((major, minor) >= (7, 0), major >= 8)
        name = torch.cuda.get_device_name(index)
        yield Check(f"cuda:{index}", "ok", f"{name}, capability {major}.{minor}, {formats}")
    if torch.backends.mps.is_available():
        yield Check("mps", "ok", natively(True, True))
    if not torch.cuda.is_available() and not torch.backends.mps.is_available():
        yield Check("accelerator", "note", "none: only runs on the CPU can be recorded")


def cpu_formats() -> tuple[bool, bool]:
    """Whether this CPU multiplies fp16 and bf16 matrices in hardware (AVX-512 or AMX; on ARM FEAT_FP16, FEAT_BF16)."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    fp16 = any(capabilities.get(name, False) for name in ("avx512_fp16", "amx_fp16", "fp16_arith"))
    bf16 = any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"))
    return fp16, bf16


def natively(fp16: bool, bf16: bool) -> str:
    """A phrase such as `native fp16: no, native bf16: yes`."""
    words = {True: "yes", False: "no"}
    return f"native fp16: {words[fp16]}, native bf16: {words[bf16]}"


def folder() -> Iterator[Check]:
    """Whether a run can be written below the working directory."""
    place = Path.cwd()
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".ampscope-doctor-"):
            yield Check("working directory", "ok", f"{place} can be written")
    except OSError as error:
        yield Check("working directory", "note", f"{place}: {error.strerror}; give `ampscope run` an -o DIR")


def recording() -> Iterator[Check]:
    """Records a tiny training run in a child process, as `ampscope run` does, and reads it back."""
    import subprocess
    from dataclasses import asdict

    from ampscope.hooks.settings import Settings
    from ampscope.launch.command import child_environment
    from ampscope.trace.reader import open_trace
    from ampscope.trace.runinfo import create_run, finish_run

    with tempfile.TemporaryDirectory(prefix="ampscope-doctor-") as made:
        settings = Settings(run_dir=os.path.join(made, "run"))
        command = [sys.executable, "-c", PROBE]
        create_run(settings.run_dir, command, asdict(settings))
        env = child_environment(settings, os.environ)
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        finish_run(settings.run_dir, done.returncode)
        said = done.stderr.strip().splitlines()
        if done.returncode != 0:
            yield Check(
                "tiny run", "FAIL", f"it ended with status {done.returncode}: {said[-1] if said else ''}"
            )
            return
        with open_trace(settings.run_dir) as trace:
            steps = trace.rows("steps")
        if steps:
            yield Check("tiny run", "ok", f"{steps} steps recorded and read back")
        else:
            hint = said[-1] if said else "PYTHONPATH did not reach the child, or another sitecustomize failed"
            yield Check("tiny run", "FAIL", f"nothing was recorded: {hint}")
