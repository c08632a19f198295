from __future__ import annotations

import runpy
from pathlib import Path

from tests.diagnose.judging import judge, serious

CASES = Path(__file__).parents[2] / "corpus" / "cases"


def test_the_fault_is_named(tmp_path: Path) -> None:
    fault = CASES / "more/learning_rate_diverges.py"
    assert serious(judge(tmp_path, lambda: runpy.run_path(str(fault))))[0] == "AMP417"


def test_a_healthy_script_is_clean(tmp_path: Path) -> None:
    healthy = CASES / "94_ok_warmup_skips.py"
    assert serious(judge(tmp_path, lambda: runpy.run_path(str(healthy)))) == []
