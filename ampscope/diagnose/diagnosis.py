"""What the engine returns: findings, coverage and a verdict, as frozen data and as JSON (`schema.json`)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from ampscope.diagnose.finding import SEVERITIES, Evidence, Finding, Severity

SCHEMA = 1
"""Version of the JSON. Keys are only ever added to one version."""


@dataclass(frozen=True)
class NotMeasurable:
    """A rule that abstained. `why` completes "not measurable, because ..."."""

    code: str
    why: str


@dataclass(frozen=True)
class Silenced:
    """A code that the user switched off, with the user's reason."""

    code: str
    reason: str


@dataclass(frozen=True)
class Coverage:
    """What was checked: every rule is in exactly one of `fired`, `clean`, `not_measurable` and `silenced`."""

    fired: tuple[str, ...]
    clean: tuple[str, ...]
    not_measurable: tuple[NotMeasurable, ...]
    silenced: tuple[Silenced, ...] = ()


@dataclass(frozen=True)
class RunSummary:
    """The run that was judged. `state` is live, complete or cut_off."""

    command: tuple[str, ...]
    start: str
    state: str
    exit_status: int | None
    exit_signal: int | None
    steps: int
    skipped: int
    ranks: int
    torch: str
    device: str
    bf16_native: bool
    version: str


@dataclass(frozen=True)
class Diagnosis:
    """`findings` come root cause first. `symptoms` are those that no finding explains."""

    run: RunSummary
    verdict: str
    findings: tuple[Finding, ...]
    coverage: Coverage
    symptoms: tuple[str, ...] = ()
    schema: int = SCHEMA

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding; None when there is none."""
        return min((f.severity for f in self.findings), key=SEVERITIES.index, default=None)

    def at_or_above(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings at least as bad as `severity`."""
        limit = SEVERITIES.index(severity)
        return tuple(f for f in self.findings if SEVERITIES.index(f.severity) <= limit)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, as `schema.json` describes: tuples as lists, non-finite numbers as the strings "nan",
        "inf" and "-inf", which JSON has no numbers for."""
        return {
            "schema": self.schema,
            "run": {**_jsonable(asdict(self.run)), "symptoms": list(self.symptoms)},
            "verdict": self.verdict,
            "findings": [finding_to_json(f) for f in self.findings],
            "coverage": _jsonable(asdict(self.coverage)),
        }


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """One finding as `schema.json` describes it."""
    where = asdict(finding.where)
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "where": {**where, "steps": None if where["steps"] is None else list(where["steps"])},
        "claim": finding.claim,
        "recommendation": finding.recommendation,
        "change": asdict(finding.change),
        "evidence": [_evidence_to_json(e) for e in finding.evidence],
        "falsifier": finding.falsifier,
        "symptoms": list(finding.symptoms),
    }


def _evidence_to_json(evidence: Evidence) -> dict[str, Any]:
    return {key: _jsonable(value) for key, value in asdict(evidence).items()}


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
