"""One GradScaler serves several optimizers: the one that overflows sets the scale, and another's gradients vanish.

## How it shows
A GAN, or a model with several losses and optimizers: one part trains, the other stands still. The scale is low and
falls whenever the first part overflows.

## Why it happens
A scaler has one scale. `update()` halves it when any of its optimizers found inf. If the gradients of two
optimizers differ by more than fp16 has room for, no common scale suits both.

## Fix
```diff
- scaler = torch.amp.GradScaler()
+ scaler_d, scaler_g = torch.amp.GradScaler(), torch.amp.GradScaler()
```
One scaler per optimizer, or losses of similar size, or bfloat16 where the device computes in it.

## What would refute it
With a scaler of its own the starved optimizer loses as many gradients.

## Source
[torch.amp examples: multiple models, losses and optimizers](https://docs.pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers)
"""

from __future__ import annotations

from collections import Counter

from ampscope.diagnose.advice import or_bf16
from ampscope.diagnose.families import UNDERFLOW
from ampscope.diagnose.finding import Abstain, Change, Where
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.scales import ScalePath
from ampscope.diagnose.signals import Signals, quoted
from ampscope.diagnose.starving import flush_evidence, lost_phrase, severity_of, starving, where_lost
from ampscope.diagnose.symptoms import SCALE_FALL, SKIPS
from ampscope.diagnose.text import count, listed, percent, pow2

ADVICE = "Give each optimizer a GradScaler of its own, or rebalance the losses"
DIFF = "- scaler = torch.amp.GradScaler()\n+ scaler_a, scaler_b = GradScaler(), GradScaler()"
ALL = 0.95
"""Share of zeros at which an optimizer has nothing left to learn from."""


@rule(
    "AMP110",
    "shared-scaler-starvation",
    "warning",
    needs=("scaler",),
    explains=("AMP201", "AMP203", "AMP204", "AMP205", "AMP302", *UNDERFLOW, SKIPS, SCALE_FALL),
)
def shared_scaler_starvation(rule: Rule, s: Signals) -> Found:
    """Nearly all overflows come from one optimizer, and another loses its gradients at the scale that results."""
    shared = [p for p in s.scale_paths if len({o for u in p.updates for o in u.opts}) > 1]
    if shared and not s.underflow:
        yield Abstain("no fp16 gradient was sampled")
        return
    for path in shared:
        yield from _judge(rule, s, path)


def _judge(rule: Rule, s: Signals, path: ScalePath) -> Found:
    guilty = Counter(o for u in path.updates for o in u.overflowed)
    total = sum(guilty.values())
    if total < s.policy.starver_overflows:
        return
    loud, overflows = guilty.most_common(1)[0]
    quiet = sorted(
        {o for u in path.updates for o in u.opts} - {o for o, n in guilty.items() if n > total * 0.1}
    )
    for opt in quiet:
        sample = starving(s, path.final_scale, opt=opt)
        if sample is None:
            yield from _silenced(
                rule, s, path, f"{loud} caused {overflows} of {count(total, 'overflow')}", (loud, opt)
            )
            continue
        yield rule.finding(
            where_lost(s, sample.worst),
            f"{listed([loud, opt])} share one GradScaler: {loud} caused {overflows} of {count(total, 'overflow')} and "
            f"brought the scale to {pow2(path.final_scale)}, at which {lost_phrase(sample)} for {opt}.",
            or_bf16(s, ADVICE) + ".",
            severity=severity_of(s, sample),
            evidence=(
                s.measure(
                    f"overflows of {loud}", f"SELECT count(*) FROM scaler WHERE found_inf AND opt = '{loud}'"
                ),
                s.measure(
                    f"overflows of {opt}", f"SELECT count(*) FROM scaler WHERE found_inf AND opt = '{opt}'"
                ),
                *flush_evidence(s, sample),
            ),
            falsifier=f"With a scaler of its own {opt} loses as many gradients.",
            change=Change(diff=DIFF),
        )


def _silenced(rule: Rule, s: Signals, path: ScalePath, overflows: str, pair: tuple[str, str]) -> Found:
    """The gradients of an optimizer are exactly zero at the scale that resulted, and were not at larger ones: no census
    need show how they were lost."""
    opt = pair[1]
    names = [name for name, owner in s.owners.items() if owner == opt]
    if not names or not path.final_scale:
        return
    chosen = (
        f"FROM tensors WHERE role = 'grad' AND name IN ({', '.join(map(quoted, names))}) AND rank = {path.rank} AND "
        f"coalesce(proc, 0) = {path.proc}"
    )
    rows = s.frame(
        f"SELECT g.step, s.scale, g.zero FROM (SELECT segment, min(step) AS step, sum(zeros) / sum(numel) AS zero "
        f"{chosen} GROUP BY segment HAVING sum(nan + posinf + neginf) = 0) g JOIN steps s ON s.rank = {path.rank} AND "
        f"coalesce(s.proc, 0) = {path.proc} AND s.segment = g.segment ORDER BY g.segment"
    )
    low = rows[rows["scale"] <= 4.0 * path.final_scale]
    high = rows[rows["scale"] >= 2.0**s.policy.collapse_binades * path.final_scale]
    if len(low) < 2 or low["zero"].min() < ALL or high.empty or high["zero"].median() > 0.5:
        return
    yield rule.finding(
        Where(tensor=names[0], steps=(path.updates[0].step, path.updates[-1].step)),
        f"{listed(list(pair))} share one GradScaler: {overflows} and brought the scale to {pow2(path.final_scale)}, at "
        f"which at least {percent(low['zero'].min())} of the gradients of {opt} are exactly zero in each of "
        f"{count(len(low), 'sampled step')}; at scales from {pow2(float(high['scale'].min()))} up it was "
        f"{percent(high['zero'].median())}.",
        or_bf16(s, ADVICE) + ".",
        severity="critical",
        evidence=(
            s.measure(
                f"overflows of {pair[0]}",
                f"SELECT count(*) FROM scaler WHERE found_inf AND opt = '{pair[0]}'",
            ),
            s.measure(
                f"gradient elements of {opt} that are zero", f"SELECT sum(zeros) / sum(numel) {chosen}"
            ),
        ),
        falsifier=f"With a scaler of its own {opt} loses as many gradients.",
        change=Change(diff=DIFF),
    )
