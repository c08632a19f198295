"""What a re-run showed about a piece of advice, and `verification.json` in the run directory, where it is kept.

Standard library and trace files only: reports read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from ampscope.diagnose.finding import Finding, Where
from ampscope.trace.files import read_json, write_json
from ampscope.trace.runinfo import VERIFICATION_FILE

SCHEMA = 1

Verdict = Literal["verified", "refuted", "undecidable"]
How = Literal["set", "patch"]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Measure:
    """One number before and after the change; None where it was not measured."""

    metric: str
    before: float | None
    after: float | None
    unit: str = ""


@dataclass(frozen=True)
class Outcome:
    """`how`: the advice was followed by `--set` overrides or by the patch of `ampscope fix`. `sentence` begins
    with the verdict and holds the numbers; `steps` is how many were compared."""

    code: str
    where: Where
    verdict: Verdict
    how: How
    sentence: str
    steps: int = 0
    change: dict[str, str] = field(default_factory=dict)
    measures: tuple[Measure, ...] = ()
    when: str = ""
    version: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """What tells outcomes apart: another try of the same advice takes the place of this one."""
        return (self.how, *finding_key(self.code, self.where))


def finding_key(code: str, where: Where) -> tuple[object, ...]:
    """A finding without its steps, which differ from run to run."""
    return (code, replace(where, steps=None))


def read_outcomes(run_dir: Path) -> tuple[Outcome, ...]:
    """The outcomes kept with a run, oldest first; what cannot be read is left out."""
    raw = read_json(run_dir / VERIFICATION_FILE) or {}
    listed = raw.get("outcomes")
    found = [_build(item) for item in listed] if isinstance(listed, list) else []
    return tuple(outcome for outcome in found if outcome is not None)


def write_outcomes(run_dir: Path, new: Iterable[Outcome]) -> None:
    """Keep `new` with the run, in the place of earlier tries of the same advice. Raises OSError."""
    new = tuple(new)
    keys = {outcome.key for outcome in new}
    kept = [outcome for outcome in read_outcomes(run_dir) if outcome.key not in keys]
    listed = [asdict(outcome) for outcome in (*kept, *new)]
    write_json(run_dir / VERIFICATION_FILE, {"schema": SCHEMA, "outcomes": listed})


def outcome_sentence(outcomes: Iterable[Outcome], finding: Finding) -> str:
    """What was found out about the advice of a finding, one sentence for each way it was tried; "" if none."""
    wanted = finding_key(finding.code, finding.where)
    return " ".join(o.sentence for o in outcomes if finding_key(o.code, o.where) == wanted)


def _build(raw: Any) -> Outcome | None:
    try:
        where = dict(raw["where"])
        steps = where.get("steps")
        where["steps"] = None if steps is None else (int(steps[0]), int(steps[1]))
        if raw["verdict"] not in VERDICTS or raw["how"] not in get_args(How):
            return None
        measures = tuple(Measure(**m) for m in raw.get("measures", ()))
        rest = {k: v for k, v in raw.items() if k not in ("where", "measures")}
        return Outcome(**{**rest, "where": Where(**where), "measures": measures})
    except (TypeError, KeyError, ValueError, IndexError):
        return None
