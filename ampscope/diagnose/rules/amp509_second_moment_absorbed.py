"""Adam's second moment is kept in half precision and stands still: its decay and its increments round away.

## How it shows
Training starts well and reaches a plateau above that of a run with float32 state. After an early burst of large
gradients the steps stay small for good. `exp_avg_sq` is bit for bit what it was hundreds of steps ago.

## Why it happens
v is multiplied by beta2 = 0.999 and gets 0.001 of the squared gradient. In bfloat16 one part in a thousand is less
than half a unit in the last place (2^-9 to 2^-8), so that 0.999 v rounds back to v: it never decays. It can only grow,
while the squared gradient is more than about twice v. The step size lr / sqrt(v) stays that of the worst moment.
State inherits the dtype of the parameter, so a model in bfloat16 has this by default.

## Fix
```diff
- model = model.to(torch.bfloat16)
+ # parameters and state in float32; autocast casts for the forward
+ with torch.autocast(device, dtype=torch.bfloat16):
```
Where memory forbids that: a smaller beta2 (0.95 still decays in bfloat16), or an optimizer that rounds its state
stochastically.

## What would refute it
The stored second moments follow beta2 v + (1 - beta2) g^2 computed in float32 from the same gradients.

## Source
[OneTrainer #1005](https://github.com/Nerogar/OneTrainer/issues/1005);
[NeMo Automodel #2248](https://github.com/NVIDIA-NeMo/Automodel/pull/2248);
Kingma and Ba, Adam, ICLR 2015, algorithm 1
"""

from __future__ import annotations

from ampscope.diagnose.decays import Decay, decays_of, standing
from ampscope.diagnose.finding import Abstain, Change, Evidence, Finding, Where
from ampscope.diagnose.moments import Course, Moment, course, moments_of
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import HALF, Signals
from ampscope.diagnose.text import listed, percent, sci


@rule("AMP509", "second-moment-absorbed", "warning", needs=("params",), depth=ROOT)
def second_moment_absorbed(rule: Rule, s: Signals) -> Found:
    """Half state that does not follow the squared gradients, or whose decay and increments change nothing."""
    moments = [m for m in moments_of(s) if m.dtype in HALF]
    decays = standing(decays_of(s), s.policy.absorbed_warning)
    if not moments and not decays:
        return
    if s.steps_taken < s.policy.moment_min_steps:
        yield Abstain(f"the second moments are in half precision, but only {s.steps_taken} steps were taken")
        return
    courses = [(m, c) for m in moments if (c := course(m, s.policy)) is not None]
    still = [(m, c) for m, c in courses if c.followed < s.policy.moment_followed]
    if _numel(courses) and _numel(still) >= s.policy.absorbed_warning * _numel(courses):
        yield _still(rule, s, still, decays)
    elif decays and not _followed_since(courses, decays[0].segment):
        yield _standing(rule, s, decays, moments)


def _followed_since(courses: list[tuple[Moment, Course]], segment: int) -> bool:
    """Whether the statistics show second moments that followed their gradients after this segment."""
    return any(c.start.segment >= segment and c.followed >= 0.5 for _, c in courses)


def _numel(courses: list[tuple[Moment, Course]]) -> int:
    return sum(c.end.numel for _, c in courses)


_ADVICE = (
    "Keep the optimizer state in float32 (float32 parameters under autocast); failing that use a smaller beta2 or "
    "stochastic rounding."
)
_FALSIFIER = "The stored second moments follow beta2 v + (1 - beta2) g^2, computed in float32."


def _decay_evidence(decays: tuple[Decay, ...]) -> tuple[Evidence, ...]:
    if not decays:
        return ()
    last = decays[-1]
    return (
        Evidence("second moments that the decay left unchanged", last.kept_by_decay),
        Evidence("second moments that the new square left unchanged", last.kept_by_sum),
    )


def _still(rule: Rule, s: Signals, still: list[tuple[Moment, Course]], decays: tuple[Decay, ...]) -> Finding:
    moment, worst = max(still, key=lambda pair: abs(pair[1].asked))
    names = [m.name for m, _ in still]
    falls = worst.asked < 0.0
    query = "SELECT sum / numel FROM tensors WHERE role = 'exp_avg_sq' AND name = '{}' AND segment = {}"
    name = moment.name.replace("'", "''")
    return rule.finding(
        Where(tensor=moment.name, steps=(worst.start.step, worst.end.step)),
        f"The second moments of {listed(names)} are kept in {moment.dtype} and stand still: from step "
        f"{worst.start.step} to {worst.end.step} the gradients ask for a change of {percent(abs(worst.asked))} "
        f"({'down' if falls else 'up'}) in {moment.name}, and {percent(abs(worst.asked * worst.followed))} took place.",
        _ADVICE,
        evidence=(
            s.measure("mean second moment before", query.format(name, worst.start.segment)),
            s.measure("mean second moment after", query.format(name, worst.end.segment)),
            Evidence("change that the gradients ask for", worst.asked, "", "predicted"),
            *_decay_evidence(decays),
        ),
        falsifier=_FALSIFIER,
        change=Change(
            diff="- model = model.to(torch.bfloat16)\n+ with torch.autocast(device, dtype=torch.bfloat16):"
        ),
        # Too large a second moment makes the steps too small for half weights to notice.
        causes=("AMP501",) if falls else (),
    )


def _standing(rule: Rule, s: Signals, decays: tuple[Decay, ...], moments: list[Moment]) -> Finding:
    last = decays[-1]
    names = [m.name for m in moments]
    of = f" of {listed(names)}" if names else ""
    return rule.finding(
        Where(tensor=names[0] if names else None, file=last.file, line=last.line,
              steps=(min(d.step for d in decays), max(d.step for d in decays))),
        f"The second moments{of} are kept in {last.dtype} and stand still: multiplying by {sci(last.decay)} leaves "
        f"{percent(last.kept_by_decay)} of them as they are, adding the new square {percent(last.kept_by_sum)}.",
        _ADVICE,
        evidence=_decay_evidence(decays),
        falsifier=_FALSIFIER,
        change=Change(diff="- state = torch.zeros_like(p, dtype=torch.bfloat16)\n+ state = torch.zeros_like(p)"),
    )  # fmt: skip
