"""BCE, or the log, of probabilities that saturated to exactly 0 or 1 in half precision.

## How it shows
A classifier trains well until it is confident; then inf or NaN, or gradients that overflow at every loss scale. (On
CUDA, autocast refuses `binary_cross_entropy` for this reason.)

## Why it happens
A sigmoid in fp16 is exactly 1 from a logit of 8.3 on and exactly 0 below -17; a softmax gives exact zeros sooner.
log(0) is -inf, and the gradient of BCE divides by p(1-p): `BCELoss` clamps it at 1e12, which no fp16 number can
hold. With the logits at hand the same loss is max(x, 0) - xy + log(1 + exp(-|x|)), which never leaves the range.

## Fix
```diff
- loss = nn.BCELoss()(torch.sigmoid(logits), y)
+ loss = nn.BCEWithLogitsLoss()(logits, y)
- loss = F.nll_loss(torch.log(logits.softmax(-1)), y)
+ loss = F.cross_entropy(logits.float(), y)
```

## What would refute it
No probability is exactly 0 or 1 where the loss or its gradient fails.

## Source
[pytorch #61098](https://github.com/pytorch/pytorch/issues/61098);
[torch.amp: prefer binary_cross_entropy_with_logits](https://docs.pytorch.org/docs/stable/amp.html)
"""

from __future__ import annotations

from ampscope.diagnose.failing import (
    BROKEN,
    groups,
    no_ops,
    op_evidence,
    ops_where,
    place_phrase,
    severity_of,
)
from ampscope.diagnose.failing import where_of as place_of
from ampscope.diagnose.finding import Change
from ampscope.diagnose.origins import Kind
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import Signals


@rule("AMP304", "saturated-probability-loss", "critical", explains=BROKEN, depth=ROOT)
def saturated_probability_loss(rule: Rule, s: Signals) -> Found:
    """An op of a loss, or of its backward, that failed at a probability which half rounded to 0 or 1."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
    for group in groups(s, lambda o: o.kind is Kind.SATURATED):
        first = group[0]
        squash = first.key
        if squash is None:
            continue
        name = squash.op.strip("_")
        failing = first.op.op.rstrip("_")
        how = (
            f"the gradient through {failing} overflows or is 0/0"
            if first.op.backward
            else f"the {failing} of them is not finite"
        )
        yield rule.finding(
            place_of(group),
            f"Probabilities of the {squash.to_half} {name}{place_phrase(squash)} are exactly 0 or 1 "
            f"({squash.out_zeros} zeros), and {how}.",
            "Compute the loss from the logits: binary_cross_entropy_with_logits, cross_entropy or logsigmoid in "
            "float32.",
            severity=severity_of(s, group),
            evidence=(
                s.measure(
                    "probabilities that are exactly 0",
                    f"SELECT max(out_zeros) FROM ops WHERE {ops_where(squash)}",
                    "elements",
                ),
                s.measure("largest probability", f"SELECT max(out_amax) FROM ops WHERE {ops_where(squash)}"),
                *op_evidence(s, first.op),
            ),
            falsifier="No probability is exactly 0 or 1 where the loss or its gradient fails.",
            change=Change(diff="- loss = bce(torch.sigmoid(logits), y)\n+ loss = bce_with_logits(logits, y)"),
        )
