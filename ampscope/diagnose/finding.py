"""What a rule says: findings with their evidence, or an abstention with its reason. Plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["critical", "warning", "info"]
Basis = Literal["observed", "predicted", "estimated"]

SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
"""Worst first."""


@dataclass(frozen=True)
class Where:
    """The place of a fault. Every field may be None: it then is not known."""

    module: str | None = None
    tensor: str | None = None
    op: str | None = None
    file: str | None = None
    line: int | None = None
    steps: tuple[int, int] | None = None
    """First and last step at which it was seen."""


@dataclass(frozen=True)
class Evidence:
    """One number that supports a claim, and the SQL over the trace that gives it."""

    metric: str
    value: float | int | str | bool | None
    unit: str = ""
    basis: Basis = "observed"
    query: str = ""


@dataclass(frozen=True)
class Change:
    """What to change: overrides for `ampscope run --set`, and a diff to read."""

    set: dict[str, str] = field(default_factory=dict)
    diff: str = ""


@dataclass(frozen=True)
class Finding:
    """One cause at one place. `symptoms` are sentences that the engine folded under it."""

    code: str
    name: str
    severity: Severity
    where: Where
    claim: str
    recommendation: str
    change: Change = Change()
    evidence: tuple[Evidence, ...] = ()
    falsifier: str = ""
    symptoms: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    """Codes of symptoms that this finding explains when both are found."""


@dataclass(frozen=True)
class Abstain:
    """The rule lacks its signal. `why` completes the sentence "not measurable, because ..."."""

    why: str
