"""Train for real, record it in this process, diagnose it, and hold every finding to the contract of all findings."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from torch import nn

from ampscope.diagnose import Diagnosis, Finding, diagnose
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.symptoms import symptoms_of
from ampscope.trace.reader import Trace, open_trace
from tests.support.recording import keep


@cache
def schema() -> Any:
    """A validator: to make one, which checks the schema itself, takes longer than to use it."""
    text = files("ampscope.diagnose").joinpath("schema.json").read_text(encoding="utf-8")
    kind = jsonschema.validators.validator_for(json.loads(text))
    kind.check_schema(json.loads(text))
    return kind(json.loads(text))


def judge(path: Path, train: Callable[[], object], *, raises: bool = False, **settings: Any) -> Diagnosis:
    """The diagnosis of `train()`. With `raises` it has to end with an exception, which the trace keeps.

    The budget is wide: how many steps are sampled must not depend on how busy the machine is.
    """
    settings.setdefault("budget", 1000.0)

    def seeded() -> None:
        torch.manual_seed(0)
        train()

    if raises:
        with pytest.raises(Exception):  # noqa: B017, PT011 - the trace says which
            keep(path, seeded, **settings)
    else:
        keep(path, seeded, **settings)
    with open_trace(path / "run") as trace:
        return checked(trace)


def checked(trace: Trace) -> Diagnosis:
    """The diagnosis of a trace, after checks that hold for every diagnosis."""
    found = diagnose(trace)
    symptoms_of(Signals(trace))  # the engine goes on without them when they fail
    failed = [n for n in found.coverage.not_measurable if "itself failed" in n.why]
    assert not failed, failed
    schema().validate(found.to_json())
    json.dumps(found.to_json(), allow_nan=False)
    for finding in found.findings:
        assert finding.falsifier
        for e in finding.evidence:
            if e.query:
                value = trace.sql(e.query).iat[0, 0]
                assert value == e.value or str(value) == str(e.value), e
    return found


def codes(found: Diagnosis) -> list[str]:
    """Codes of the findings, in order."""
    return [f.code for f in found.findings]


def serious(found: Diagnosis) -> list[str]:
    """Codes of the findings that are warnings or worse, in order."""
    return [f.code for f in found.at_or_above("warning")]


def only(found: Diagnosis, code: str) -> Finding:
    """The one finding of a code."""
    match = [f for f in found.findings if f.code == code]
    assert len(match) == 1, codes(found)
    return match[0]


def line_of(function: Callable[..., object], text: str) -> int:
    """Number of the first line of a function that holds `text`."""
    import inspect

    lines, start = inspect.getsourcelines(function)
    return start + next(i for i, line in enumerate(lines) if text in line)


def classifier(width: int = 32) -> nn.Sequential:
    """Three linear layers, 16 inputs, 4 classes."""
    return nn.Sequential(
        nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
    )


def labelled(n: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch that the classifier can learn."""
    x = torch.randn(n, 16)
    return x, x[:, :4].argmax(1)


def half(dtype: torch.dtype = torch.float16) -> torch.autocast:
    return torch.autocast("cpu", dtype=dtype)
