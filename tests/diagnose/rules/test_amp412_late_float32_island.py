from __future__ import annotations

import runpy
from pathlib import Path

from tests.diagnose.judging import judge, serious

CASES = Path(__file__).parents[2] / "corpus" / "cases"


def test_the_fault_is_named(tmp_path: Path) -> None:
    fault = CASES / "37_fp32_island_after_overflow.py"
    assert serious(judge(tmp_path, lambda: runpy.run_path(str(fault))))[0] == "AMP412"


def test_a_healthy_script_is_clean(tmp_path: Path) -> None:
    healthy = CASES / "fixed/37_fp32_island_after_overflow.py"
    assert serious(judge(tmp_path, lambda: runpy.run_path(str(healthy)))) == []
