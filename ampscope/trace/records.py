"""The records of a run: its command, its processes, its devices. Frozen data, and how it is read back from
JSON.

Standard library only. A damaged or foreign record costs the fields that cannot be used, never the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TypeVar

from ampscope.trace.liveness import Identity
from ampscope.trace.schema import SCHEMA_VERSION


@dataclass(frozen=True)
class DeviceInfo:
    """One accelerator. `capability` is e.g. "9.0" for CUDA; `memory` is in bytes."""

    name: str = ""
    type: str = ""
    capability: str = ""
    memory: int = 0


@dataclass(frozen=True)
class ProcessInfo:
    """One recorded training process. Times are ISO 8601 in UTC; `end` is None until it closed its trace.

    `state` is live, ended or cut_off, and is judged when it is read. `parts` is the number of part files per
    table, stored at the end so that a lost one is noticed. `sources` maps the user's source files that the trace
    names to their SHA-256, or to "" where one changed while the process ran.
    """

    rank: int = 0
    proc: int = 0
    pid: int = 0
    script: str = ""
    python: str = ""
    torch: str = ""
    platform: str = ""
    cpu_model: str = ""
    cpu_capability: str = ""
    bf16_native: bool = False
    fp16_native: bool = False
    devices: tuple[DeviceInfo, ...] = ()
    num_threads: int = 0
    start: str = ""
    end: str | None = None
    state: str = "live"
    versions: dict[str, str] = field(default_factory=dict)
    identity: Identity = field(default_factory=Identity)
    parts: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunInfo:
    """One run. `state` is live (still being recorded), complete (finalised) or cut_off (neither)."""

    schema: tuple[int, int] = SCHEMA_VERSION
    version: str = ""
    command: tuple[str, ...] = ()
    cwd: str = ""
    python: str = ""
    start: str = ""
    end: str | None = None
    exit_status: int | None = None
    exit_signal: int | None = None
    state: str = "cut_off"
    settings: dict[str, object] = field(default_factory=dict)
    processes: tuple[ProcessInfo, ...] = ()
    supervisor: Identity = field(default_factory=Identity)


T = TypeVar("T", RunInfo, ProcessInfo, DeviceInfo, Identity)


def build(cls: type[T], raw: object) -> T:
    """`cls` from a JSON object: unknown keys and values of the wrong type are left out."""
    if not isinstance(raw, dict):
        return cls()
    blank = cls()
    known: dict[str, object] = {}
    for f in fields(cls):
        value, default = raw.get(f.name), getattr(blank, f.name)
        if isinstance(default, tuple):
            if isinstance(value, list) and f.name == "command":
                known[f.name] = tuple(str(x) for x in value)
        elif f.name in ("exit_status", "exit_signal"):
            known[f.name] = value if type(value) is int else None
        elif f.name == "end":
            known[f.name] = value if isinstance(value, str) else None
        elif type(value) is type(default):
            known[f.name] = value
    return cls(**known)  # type: ignore[arg-type]
