"""What differs in how two runs were set up: command, machine, precision, scaler, optimizer."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from ampscope.diagnose.signals import TraceView

_QUERIES = {
    "autocast": "SELECT DISTINCT coalesce(autocast_device || ' ' || autocast_dtype, 'off') AS v FROM steps "
    "WHERE n_backward > 0 AND level IS DISTINCT FROM 'count'",
    "scaler": "SELECT DISTINCT 'init_scale ' || init_scale || ', growth_interval ' || growth_interval AS v FROM scaler",
    "optimizer": "SELECT DISTINCT owner || coalesce(' eps ' || eps, '') AS v FROM params WHERE owner IS NOT NULL",
    "first learning rate": "SELECT lr AS v FROM steps WHERE lr IS NOT NULL ORDER BY segment LIMIT 1",
    "stored dtype of parameters": "SELECT DISTINCT dtype AS v FROM params",
    "parameters": "SELECT count(DISTINCT name) AS v FROM params",
    "device": "SELECT DISTINCT device AS v FROM params",
}


@dataclass(frozen=True)
class Setting:
    """One thing that the two runs have differently."""

    name: str
    one: str
    two: str


def differences(one: TraceView, two: TraceView) -> tuple[Setting, ...]:
    """Every setting that differs, in a fixed order."""
    a, b = dict(_settings(one)), dict(_settings(two))
    return tuple(
        Setting(name, a.get(name, "none"), b.get(name, "none"))
        for name in dict.fromkeys([*a, *b])
        if a.get(name) != b.get(name)
    )


def _settings(trace: TraceView) -> Iterator[tuple[str, str]]:
    info = trace.info
    yield "command", shlex.join(info.command)
    overrides = info.settings.get("overrides")
    if isinstance(overrides, dict) and overrides:
        yield "overrides", " ".join(f"{k}={v}" for k, vs in sorted(overrides.items()) for v in vs)
    if info.processes:
        process = info.processes[0]
        yield "python", process.python
        yield "torch", process.torch
        yield "processor", process.cpu_model
        yield "accelerators", ", ".join(d.name for d in process.devices) or "none"
        yield "threads", str(process.num_threads)
        yield "processes", str(len(info.processes))
    for name, query in _QUERIES.items():
        values = sorted(str(v) for v in trace.sql(query)["v"].dropna())
        yield name, ", ".join(values) or "none"
