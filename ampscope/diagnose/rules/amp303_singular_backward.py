"""The forward is finite, its gradient is not: sqrt, norm, pow, log or a division at a zero or saturated input.

## How it shows
The loss is finite, the gradients hold NaN or inf at every loss scale, whatever the precision. Without a scaler the
weights are NaN after that step.

## Why it happens
The slope of sqrt at 0 is infinite, and the chain rule multiplies it by the zero that came in: 0 · inf = NaN. The
same holds for norms, fractional powers, atanh at 1 and a `torch.where` whose other branch is log(0): where hides the
value, not the gradient.

## Fix
```diff
- d = ((a - b) ** 2).sum(-1).sqrt()
+ d = (((a - b) ** 2).sum(-1) + 1e-8).sqrt()     # in float32: 1e-8 is zero in fp16
- y = torch.where(x > 0, torch.log(x), 0.0)
+ y = torch.where(x > 0, torch.log(torch.where(x > 0, x, 1.0)), 0.0)
```

## What would refute it
The input of that op is nowhere zero (or saturated) in the failing batch.

## Source
[pytorch #10729](https://github.com/pytorch/pytorch/issues/10729);
[torch.where and NaN gradients](https://docs.pytorch.org/docs/stable/autograd.html)
"""

from __future__ import annotations

from ampscope.diagnose.failing import (
    FOLLOWS,
    change_for,
    groups,
    no_ops,
    op_evidence,
    place_phrase,
    severity_of,
    where_of,
)
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.origins import Kind, origins_of
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.slopes import suspects
from ampscope.diagnose.text import listed
from ampscope.diagnose.troubles import Trouble, troubles_of


@rule("AMP303", "singular-backward", "critical", explains=("AMP302", *FOLLOWS), depth=MECHANISM)
def singular_backward(rule: Rule, s: Signals) -> Found:
    """A backward op with a zero among finite inputs that returned inf or NaN which reached a gradient."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
    yield from _unrecorded(rule, s)
    for group in groups(s, lambda o: o.kind is Kind.SINGULAR and o.op.backward):
        op = group[0].op
        dtype = next(iter(op.out_dtypes), "float32")
        half = (
            " It would be so in float32 as well: this is no matter of precision."
            if not group[0].precision
            else ""
        )
        yield rule.finding(
            where_of(group),
            f"In backward the {dtype} {op.op.rstrip('_')} of this line{place_phrase(op)} meets "
            f"{op.in_zeros} zeros and "
            f"returns {'NaN' if op.out_nan else 'inf'} in {op.out_nonfinite} elements, at every loss "
            "scale; the forward "
            f"is finite.{half}",
            "Keep zeros away inside the root, the power or the log (an eps that the dtype holds), in float32.",
            severity=severity_of(s, group),
            evidence=op_evidence(s, op),
            falsifier="The input of that op is nowhere zero in the failing batch.",
            change=change_for(s, group[0].flow, op) if group[0].precision else Change(),
        )


def _unrecorded(rule: Rule, s: Signals) -> Found:
    """A step without a scaler whose gradients were not finite though its loss was ordinary, and after which nothing is
    left to look at: by elimination. In float16 an overflow could have done it as well."""
    if "float16" in s.half_autocast or s.rows["scaler"]:
        return
    explained = {o.trouble.key for o in origins_of(s) if o.forward or o.op.backward}
    for trouble in troubles_of(s).values():
        if not trouble.poisoned or trouble.key in explained or not _out_of_the_blue(s, trouble):
            continue
        ops = suspects(s, trouble)
        if not 0 < len(ops) <= s.policy.most_suspects:
            continue
        first = ops[0]
        named = listed([f"{op.op.rstrip('_')} on line {op.line}" for op in ops])
        gradients = (
            f"FROM tensors WHERE role = 'grad' AND rank = {trouble.key[0]} AND segment = {trouble.key[2]}"
        )
        yield rule.finding(
            Where(
                module=first.module,
                op=f"aten::{first.op}",
                file=first.file,
                line=first.line,
                steps=(trouble.step, trouble.step),
            ),
            f"At step {trouble.step} the loss was finite and none out of the ordinary, its gradients were not, and "
            f"the weights are not finite since. No float16 was there to overflow; of what the script computes this "
            f"leaves an infinite slope at a zero or a saturated input: {named}.",
            "Keep zeros away inside the root, the power or the arc (an eps that the dtype holds), in float32.",
            evidence=(
                s.measure("non-finite gradient elements", f"SELECT sum(nan + posinf + neginf) {gradients}"),
                s.measure("loss of that step", f"SELECT max(loss) FROM steps WHERE step = {trouble.step}"),
            ),
            falsifier="The batch of that step, run again from the weights before it, gives finite gradients.",
        )


def _out_of_the_blue(s: Signals, trouble: Trouble) -> bool:
    """Its gradients are known to be bad, and its loss is none that a diverging run has."""
    rank, proc, segment = trouble.key
    here = f"rank = {rank} AND coalesce(proc, 0) = {proc}"
    bad = s.frame(
        f"SELECT sum(nan + posinf + neginf) AS bad FROM tensors WHERE role = 'grad' AND {here} AND segment = {segment}"
    )["bad"]
    if bad.isna().all() or not float(bad.iloc[0]) > 0.0:
        return False
    losses = s.frame(
        f"SELECT abs(max(loss) FILTER (segment = {segment})) AS now, "
        f"median(abs(loss)) FILTER (segment < {segment}) AS usual FROM steps WHERE {here}"
    ).iloc[0]
    return bool(losses["now"] <= s.policy.spike_ratio * losses["usual"])
