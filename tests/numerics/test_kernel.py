"""The Triton kernel, interpreted on the CPU and compiled for GPUs that need not be there."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed (extra: integration)"
)


def check(mode: str, tmp_path: Path, **env: str) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("kernel_check.py")), mode],
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path), **env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "checked\n", done.stderr[-3000:]


@needs_triton
def test_interpreted_kernel_says_what_the_cpu_path_says(tmp_path: Path) -> None:
    check("interpret", tmp_path, TRITON_INTERPRET="1")


@needs_triton
def test_kernel_compiles_for_ampere_and_hopper(tmp_path: Path) -> None:
    check("compile", tmp_path, TRITON_INTERPRET="0")
