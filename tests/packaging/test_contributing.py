"""The three recipes of CONTRIBUTING.md do what they say, as they stand there."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from ampscope.diagnose import rule as rules
from ampscope.diagnose.engine import diagnose
from ampscope.hooks import install
from ampscope.trace.reader import open_trace
from tests.support.recording import amp_training, record, rows

ROOT = Path(__file__).parents[2]


def recipe(path: str) -> dict[str, Any]:
    """The namespace of the code block that begins with `# path`."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (code,) = re.findall(rf"```python\n# {re.escape(path)}\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": f"recipe_{Path(path).stem}"}
    exec(compile(code, path, "exec"), names)
    return names


def test_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_RULES", dict(rules._RULES))
    made = recipe("ampscope/diagnose/rules/amp207_scale_never_moved.py")["scale_never_moved"]

    with open_trace(ROOT / "sample_traces" / "healthy-fp16-gpt") as trace:
        (finding,) = diagnose(trace, rules=[made]).findings

    assert (finding.code, finding.severity) == ("AMP207", "info")
    assert finding.evidence[0].value == 1


def test_a_plot() -> None:
    part = recipe("ampscope/app/pages/scale.py")["PART"]
    frame = pd.DataFrame({"step": [0, 1, 2], "growth_tracker": [1, 2, 0]})
    context = SimpleNamespace(src=SimpleNamespace(frame=lambda sql: frame))

    card = part.render(context)

    figure = card.children.figure
    assert isinstance(figure, go.Figure)
    assert list(figure.data[0].y) == [1, 2, 0]


def test_a_signal(tmp_path: Path) -> None:
    kind = recipe("ampscope/hooks/collections.py")["Collections"]

    def train() -> None:
        collector = kind(install.current())
        collector.install()
        amp_training(steps=2)
        gc.collect()
        collector.remove()
        gc.collect()

    with record(tmp_path, train) as trace:
        assert rows(trace, "SELECT call FROM calls WHERE call = 'gc.collect'") == [{"call": "gc.collect"}]
