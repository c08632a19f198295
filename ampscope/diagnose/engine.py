"""Runs every rule over a trace and makes one answer of it: root causes first, symptoms folded under them.

A rule that fails costs its own line of the coverage and nothing else. Knows no code of the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ampscope.diagnose.diagnosis import Coverage, Diagnosis, NotMeasurable, RunSummary, Silenced
from ampscope.diagnose.finding import SEVERITIES, Abstain, Finding, Where
from ampscope.diagnose.rule import Rule, all_rules
from ampscope.diagnose.signals import Signals, TraceView
from ampscope.diagnose.symptoms import Symptom, symptoms_of
from ampscope.diagnose.verdict import verdict_of

MISSING = {
    "steps": "the run recorded no optimizer step",
    "calls": "no call of the AMP API was recorded",
    "tensors": "no range-level sample was recorded",
    "updates": "no optimizer step was sampled at the range level",
    "ops": "no census or watch step was recorded",
    "kernels": "no step was profiled",
    "modules": "no forward was sampled",
    "params": "no optimizer stepped, so its parameters were not recorded",
    "scaler": "no enabled GradScaler took part in this run",
    "nonfinite": "nothing non-finite was met",
    "events": "no event was recorded",
    "ledger": "no ledger was recorded",
}
"""Why a rule that needs rows of a table abstains when it has none."""

NOTHING = "nothing was recorded"
"""Why every rule abstains on a trace without a row, those that need no table too."""


@dataclass(frozen=True)
class _Outcome:
    rule: Rule
    findings: tuple[Finding, ...] = ()
    why: str | None = None


def diagnose(
    trace: TraceView, silence: Mapping[str, str] | None = None, rules: Sequence[Rule] | None = None
) -> Diagnosis:
    """The diagnosis of an opened trace.

    `silence` maps codes to the user's reason for not wanting to hear of them: they are run, left out of the
    findings and listed in the coverage. `rules` defaults to all. The same trace gives the same answer.
    """
    signals = Signals(trace)
    lost = _lost_tables(trace)
    outcomes = [_run(rule, signals, lost) for rule in (all_rules() if rules is None else rules)]
    muted = {code.strip().upper(): reason for code, reason in (silence or {}).items()}
    known = {o.rule.code: o.rule for o in outcomes}
    heard = [f for o in outcomes if o.rule.code not in muted for f in o.findings]
    symptoms = _symptoms(signals)
    findings, left = _with_symptoms(fold(heard, known), symptoms)
    coverage = _coverage(outcomes, muted)
    run = _summary(signals)
    return Diagnosis(run, verdict_of(signals, run, findings, coverage, left), findings, coverage, left)


def _lost_tables(trace: TraceView) -> frozenset[str]:
    """Tables of which files were written and cannot be read."""
    lost = [*(d.path for d in trace.integrity.damaged), *trace.integrity.missing]
    return frozenset(path.split("/")[0] for path in lost)


def _run(rule: Rule, signals: Signals, lost: frozenset[str]) -> _Outcome:
    try:
        for table in rule.needs:
            if not signals.rows[table]:
                unread = f"the rows of {table} could not be read"
                return _Outcome(rule, why=unread if table in lost else MISSING[table])
        if not any(signals.rows.values()):
            return _Outcome(rule, why=NOTHING)
        found = list(rule.check(rule, signals))
        findings = [f for f in found if isinstance(f, Finding)]
        why = next((f.why for f in found if isinstance(f, Abstain)), None)
        return _Outcome(rule, findings=_one_per_place(findings), why=None if findings else why)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        return _Outcome(
            rule, why=f"the rule itself failed ({type(error).__name__}: {text}): please report it"
        )


def _one_per_place(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """At most one finding per cause and place, over the steps of all merged and as severe as the worst."""
    merged: dict[tuple[object, ...], Finding] = {}
    for f in findings:
        w = f.where
        key = (f.code, w.module, w.tensor, w.op, w.file, w.line)
        known = merged.get(key)
        if known is None:
            merged[key] = f
            continue
        worst = min(known.severity, f.severity, key=SEVERITIES.index)
        merged[key] = replace(known, severity=worst, where=_spanning(known.where, w))
    return tuple(merged.values())


def _spanning(a: Where, b: Where) -> Where:
    if a.steps is None or b.steps is None:
        return replace(a, steps=a.steps or b.steps)
    return replace(a, steps=(min(a.steps[0], b.steps[0]), max(a.steps[1], b.steps[1])))


def rank_key(finding: Finding, rules: Mapping[str, Rule]) -> tuple[object, ...]:
    """Worst first; of equal severity the deeper cause, then what was seen first, then code and place."""
    w = finding.where
    return (
        SEVERITIES.index(finding.severity),
        rules[finding.code].depth,
        w.steps[0] if w.steps is not None else -1,
        finding.code,
        w.file or "",
        w.line or 0,
        w.module or "",
        w.tensor or "",
        w.op or "",
    )


def fold(findings: Sequence[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """The root causes, best first, with every finding that one of them explains as a sentence under it.

    A finding is explained by another that names its code in `causes` and was seen no later; codes that its
    rule lists as `later` must have begun after it. What a folded finding explains goes to its own root. A
    cause is at least as severe as what follows from it.
    """
    ordered = sorted(findings, key=lambda f: rank_key(f, rules))
    parent: dict[int, int] = {}
    for i, effect in enumerate(ordered):
        for j, cause in enumerate(ordered):
            if (
                i != j
                and effect.code in cause.causes
                and _precedes(cause, effect, rules)
                and not _below(j, i, parent)
            ):
                parent[i] = j
                break
    folded = {i: f for i, f in enumerate(ordered) if i not in parent}
    for i, effect in enumerate(ordered):
        if i in parent:
            root = parent[i]
            while root in parent:
                root = parent[root]
            f = folded[root]
            worst = min(f.severity, effect.severity, key=SEVERITIES.index)
            sentence = f"{effect.code} {effect.name}: {effect.claim}"
            folded[root] = replace(
                f, severity=worst, symptoms=(*f.symptoms, sentence), causes=(*f.causes, *effect.causes)
            )
    return sorted(folded.values(), key=lambda f: rank_key(f, rules))


def _below(node: int, ancestor: int, parent: Mapping[int, int]) -> bool:
    """Whether `node` already hangs under `ancestor`: folding it the other way round would make a ring."""
    while node in parent:
        node = parent[node]
        if node == ancestor:
            return True
    return False


def _precedes(cause: Finding, effect: Finding, rules: Mapping[str, Rule]) -> bool:
    if cause.where.steps is None or effect.where.steps is None:
        return True
    if effect.code in rules[cause.code].later:
        return cause.where.steps[0] < effect.where.steps[0]
    return cause.where.steps[0] <= effect.where.steps[1]


def _symptoms(signals: Signals) -> tuple[Symptom, ...]:
    try:
        return symptoms_of(signals)
    except Exception:
        return ()


def _with_symptoms(
    findings: Sequence[Finding], symptoms: Sequence[Symptom]
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """The findings with each symptom under the first that explains its kind, and the symptoms left over."""
    out = list(findings)
    left: list[str] = []
    for s in symptoms:
        home = next((i for i, f in enumerate(out) if s.kind in f.causes), None)
        if home is None:
            if s.alarming:
                left.append(s.sentence)
        else:
            out[home] = replace(out[home], symptoms=(*out[home].symptoms, s.sentence))
    return tuple(out), tuple(left)


def _coverage(outcomes: Sequence[_Outcome], muted: Mapping[str, str]) -> Coverage:
    heard = [o for o in outcomes if o.rule.code not in muted]
    known = {o.rule.code for o in outcomes}
    return Coverage(
        fired=tuple(o.rule.code for o in heard if o.findings),
        clean=tuple(o.rule.code for o in heard if not o.findings and o.why is None),
        not_measurable=tuple(NotMeasurable(o.rule.code, o.why) for o in heard if o.why is not None),
        silenced=tuple(Silenced(code, reason) for code, reason in sorted(muted.items()) if code in known),
    )


def _summary(signals: Signals) -> RunSummary:
    info = signals.info
    steps = signals.steps
    return RunSummary(
        command=info.command,
        start=info.start,
        state=info.state,
        exit_status=info.exit_status,
        exit_signal=info.exit_signal,
        steps=int(steps["outcome"].isin(["stepped", "skipped"]).sum()),
        skipped=int((steps["outcome"] == "skipped").sum()),
        ranks=len({p.rank for p in info.processes}) or 1,
        torch=next((p.torch for p in info.processes), ""),
        device=signals.device,
        bf16_native=signals.bf16_native,
        version=info.version,
    )
