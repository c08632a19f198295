"""What the user asked the recorder to do, and how it travels to the training process: one environment variable.

Standard library only: the bootstrap reads it before torch is imported.
"""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass, field

ENV_VAR = "AMPSCOPE_SESSION"
LEVELS = ("pulse", "range", "census", "watch")


@dataclass(frozen=True)
class Settings:
    """`level` is the highest level that may run. `every` fixes the sampling interval of the range level in
    steps; None leaves it to the budget controller. `budget` is ampscope's share of wall time in percent.
    `steps` restricts range, census and watch to steps first <= step < last (last None: no end)."""

    run_dir: str
    level: str = "watch"
    every: int | None = None
    budget: float = 2.0
    watch: bool = False
    """Arm the watch from the first step instead of on the first non-finite value."""
    steps: tuple[int, int | None] | None = None
    tensors: str | None = None
    """Glob over parameter and module names: only these are read at the range level."""
    overrides: dict[str, list[str]] = field(default_factory=dict)
    """`--set K=V`, each key with its values in order."""
    exact: bool = False
    """Compare every element of every parameter at an update instead of a fixed subset."""
    eager_census: bool = False
    flush_seconds: float = 5.0
    quiet: bool = False
    strict: bool = False

    def to_env(self, env: MutableMapping[str, str]) -> None:
        env[ENV_VAR] = json.dumps(asdict(self))

    @classmethod
    def from_env(cls, env: MutableMapping[str, str] | None = None) -> Settings | None:
        """The settings in the environment, or None when this process is not to be recorded."""
        text = (os.environ if env is None else env).get(ENV_VAR)
        if not text:
            return None
        raw = json.loads(text)
        if raw.get("steps") is not None:
            raw["steps"] = tuple(raw["steps"])
        return cls(**raw)
