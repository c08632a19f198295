"""The verdict: one sentence that a tired engineer can act on. Decides nothing, says what was decided."""

from __future__ import annotations

from collections.abc import Sequence

from ampscope.diagnose.diagnosis import Coverage, RunSummary
from ampscope.diagnose.finding import Finding, Where
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count


def verdict_of(
    signals: Signals, run: RunSummary, findings: Sequence[Finding], coverage: Coverage, left: Sequence[str]
) -> str:
    """One sentence: the first cause and what to do; or that nothing was found, and in how much."""
    serious = [f for f in findings if f.severity != "info"]
    if serious:
        first = serious[0]
        more = len(serious) - 1
        rest = f" {count(more, 'more finding follows', 'more findings follow')}." if more else ""
        return f"{_headline(first)}{_at(first.where)}: {_lower(first.recommendation)}{rest}"
    if not run.steps:
        return f"{_no_step(signals, run)} {_checked(coverage)}"
    if left:
        return f"No fault of precision explains this: {left[0]} {_checked(coverage)}"
    notes = f" {count(len(findings), 'note')} for information." if findings else ""
    return f"No fault found in {count(run.steps, 'optimizer step')}{_cut(run)}: {_checked(coverage)}{notes}"


def _headline(finding: Finding) -> str:
    return f"{finding.code} {finding.name}"


def _at(where: Where) -> str:
    """Where to look, most exact first."""
    if where.file and where.line:
        return f" at {where.file.rsplit('/', 1)[-1]}:{where.line}"
    place = where.module or where.tensor or where.op
    return f" in {place}" if place else ""


def _lower(sentence: str) -> str:
    """The recommendation as the end of a sentence: its first word small unless it is a name."""
    first = sentence.split(" ", 1)[0]
    plain = first.isalpha() and first[1:].islower()
    return sentence[0].lower() + sentence[1:] if plain else sentence


def _checked(coverage: Coverage) -> str:
    missing = len(coverage.not_measurable)
    tail = f", {missing} could not be measured" if missing else ""
    return f"{count(len(coverage.clean), 'check')} clean{tail}."


def _cut(run: RunSummary) -> str:
    return {"cut_off": " before the run was cut off", "live": " so far"}.get(run.state, "")


def _no_step(signals: Signals, run: RunSummary) -> str:
    if run.state == "live":
        return "The run has not taken an optimizer step yet, so there is nothing to judge:"
    if (signals.steps["outcome"] == "cut_off").any() or run.state == "cut_off":
        return "The run was cut off before its first optimizer step, so its training cannot be judged:"
    return "The run took no optimizer step, so its training cannot be judged:"
