"""The verdict on a piece of advice from the run without it and the run with it. Reads no trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ampscope.diagnose.diagnosis import Diagnosis
from ampscope.diagnose.finding import Finding
from ampscope.diagnose.text import count
from ampscope.verify.health import Health
from ampscope.verify.outcome import Verdict, finding_key


@dataclass(frozen=True)
class Side:
    """One run over the steps that are compared. `fingerprint` tells two runs apart that took another course."""

    diagnosis: Diagnosis
    health: Health
    fingerprint: tuple[float, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """`why` completes "verified: …", "refuted: …" or "undecidable: …"."""

    verdict: Verdict
    why: str


def judge(finding: Finding, before: Side, after: Side, wanted: int) -> Judgement:
    """Whether the advice for `finding` held, which showed in `before` and was to take `wanted` steps in `after`."""
    again = [f for f in after.diagnosis.findings if f.code == finding.code and _as_bad(f, finding)]
    left = _without_known(again, before, finding)
    if left:
        return _still_there(finding, left, before, after)
    too_short = _too_short(after, wanted)
    if too_short:
        return too_short
    unmeasured = _unmeasured(finding, before, after)
    if unmeasured:
        return unmeasured
    if after.health.ills:
        return _still_ill(finding, before, after)
    return Judgement("verified", f"{finding.code} is gone{_newly_seen(before, after)}")


def _as_bad(now: Finding, then: Finding) -> bool:
    """A finding that is only worth a note now, and was a fault before, is as good as gone."""
    return then.severity == "info" or now.severity != "info"


def _without_known(again: Sequence[Finding], before: Side, finding: Finding) -> list[Finding]:
    """Those that are at the finding's own place, or at one where there was none before."""
    others = {finding_key(f.code, f.where) for f in before.diagnosis.findings}
    others.discard(finding_key(finding.code, finding.where))
    return [f for f in again if finding_key(f.code, f.where) not in others]


def _still_there(finding: Finding, left: Sequence[Finding], before: Side, after: Side) -> Judgement:
    same = any(finding_key(f.code, f.where) == finding_key(finding.code, finding.where) for f in left)
    if same and before.fingerprint and before.fingerprint == after.fingerprint:
        return Judgement("undecidable", "the change had no effect on this run: every loss is what it was")
    if same:
        return Judgement("refuted", f"{finding.code} is still there")
    return Judgement("refuted", f"{finding.code} moved{_place(left[0])}")


def _place(finding: Finding) -> str:
    where = finding.where
    if where.file and where.line:
        return f" to {where.file.rpartition('/')[2]}:{where.line}"
    place = where.module or where.tensor or where.op
    return f" to {place}" if place else " elsewhere"


def _too_short(after: Side, wanted: int) -> Judgement | None:
    taken = after.health.steps
    if taken >= wanted or after.health.crashed:
        return None
    return Judgement("undecidable", f"the run with the change took only {count(taken, 'step')} of {wanted}")


def _unmeasured(finding: Finding, before: Side, after: Side) -> Judgement | None:
    """The rule could not look. Where the change took away what the rule is about (no fp16, no scaler), a run
    that trains is proof enough; where it did not, nothing is known."""
    why = next((n.why for n in after.diagnosis.coverage.not_measurable if n.code == finding.code), None)
    if why is None or after.health.ills:
        return None
    keys = set(finding.change.set)
    if keys & {"autocast.dtype", "autocast.enabled", "scaler.enabled"} or before.health.ills:
        return None
    return Judgement("undecidable", f"{finding.code} could not be measured with the change, because {why}")


def _still_ill(finding: Finding, before: Side, after: Side) -> Judgement:
    ill = " and ".join(after.health.ills)
    if set(after.health.ills) - set(before.health.ills):
        further = before.health.crashed and not after.health.crashed
        if not further:
            return Judgement("refuted", f"{finding.code} is gone, but now {ill}")
    known = {f.code for f in before.diagnosis.findings if f.severity != "info"} - {finding.code}
    others = [f.code for f in after.diagnosis.findings if f.code in known]
    if others:
        return Judgement("verified", f"{finding.code} is gone; {ill}, for which {others[0]} is left")
    if before.health.crashed and not after.health.crashed:
        return Judgement(
            "verified", f"{finding.code} is gone and the run goes on{_newly_seen(before, after)}"
        )
    return Judgement("refuted", f"{finding.code} is gone, but {ill}")


def _newly_seen(before: Side, after: Side) -> str:
    """Codes that only show now, for the reader to look at."""
    known = {f.code for f in before.diagnosis.findings}
    new = dict.fromkeys(
        f.code for f in after.diagnosis.findings if f.severity != "info" and f.code not in known
    )
    return f"; {', '.join(new)} shows now" if new else ""
