"""A softmax over a row that is masked completely, or a mask constant that half precision cannot hold.

## How it shows
NaN as soon as one sequence of a batch is empty or one query sees no key. Or a crash: "value cannot be converted to
type c10::Half without overflow" in `masked_fill`.

## Why it happens
softmax divides by the sum of exp over the row. Where all of the row is -inf that is 0/0. A mask constant of -1e9 or
`finfo(float32).min` becomes -inf in fp16 (or cannot be converted at all), so that rows which float32 survives with
equal weights are 0/0 in half.

## Fix
```diff
- scores = scores.masked_fill(~valid, -1e9)
+ scores = scores.masked_fill(~valid, torch.finfo(scores.dtype).min)
```
and drop empty rows, or zero their output after the softmax.

## What would refute it
No row of the scores is masked completely.

## Source
[pytorch #41508](https://github.com/pytorch/pytorch/issues/41508);
[transformers #28536](https://github.com/huggingface/transformers/issues/28536)
"""

from __future__ import annotations

from ampscope.diagnose.dtypes import Ending, ending
from ampscope.diagnose.failing import (
    BROKEN,
    groups,
    op_evidence,
    ops_where,
    place_phrase,
    severity_of,
    spoken,
    where_of,
)
from ampscope.diagnose.families import CRASHED
from ampscope.diagnose.finding import Abstain, Change, Finding, Where
from ampscope.diagnose.lineage import mask_constant
from ampscope.diagnose.opflow import Op
from ampscope.diagnose.origins import Kind, Origin
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import Signals, quoted
from ampscope.diagnose.text import sci

MASK_DIFF = "- masked_fill(mask, -1e9)\n+ masked_fill(mask, torch.finfo(scores.dtype).min)"


@rule("AMP406", "masked-row-softmax", "critical", explains=(*BROKEN, *CRASHED, "AMP414"), depth=ROOT)
def masked_row_softmax(rule: Rule, s: Signals) -> Found:
    """NaN out of a softmax over masked rows, or a mask constant beyond the half range."""
    end = ending(s)
    if end is not None and _constant_refused(end):
        yield _crash(rule, s, end)
        return
    if not s.rows["ops"]:
        yield Abstain("no op was recorded (no census or watch step)")
    for group in groups(s, lambda o: o.kind is Kind.MASK, at=_mask):
        yield _masked(rule, s, group)


def _mask(o: Origin) -> Op:
    """Where the mask is made that half cannot hold, else the softmax."""
    return o.key if o.key is not None and mask_constant(o.key) is not None else o.op


def _constant_refused(end: Ending) -> bool:
    text = end.message.lower()
    return "cannot be converted to type" in text and "without overflow" in text


def _crash(rule: Rule, s: Signals, end: Ending) -> Finding:
    return rule.finding(
        Where(file=end.file, line=end.line, op=None, steps=(end.step, end.step)),
        f"A constant in {end.function or 'the script'} lies outside the half range and could not be written into a "
        f"half tensor ({end.message}): masks made for float32 do not fit float16.",
        "Mask with torch.finfo(scores.dtype).min.",
        evidence=(
            s.measure(
                "the exception",
                f"SELECT message FROM events WHERE event = 'exception' AND subject = {quoted(end.subject)} LIMIT 1",
            ),
        ),
        falsifier="The constant lies within ±65504.",
        change=Change(diff=MASK_DIFF),
    )


def _masked(rule: Rule, s: Signals, group: list[Origin]) -> Finding:
    first = group[0]
    constant = mask_constant(first.op) or (mask_constant(first.key) if first.key is not None else None)
    if constant is not None:
        source = first.key or first.op
        claim = (
            f"The mask constant {sci(constant)}{place_phrase(source)} is -inf in float16, and rows that are masked "
            "completely become NaN in the softmax."
        )
    else:
        claim = (
            f"The {spoken(first.op)}{place_phrase(first.op)} returns NaN in {first.op.out_nan} "
            "elements: all of their row "
            "is -inf, so it is 0/0."
        )
    return rule.finding(
        where_of(group, _mask(first) if constant is not None else None),
        claim,
        "Mask with a finite torch.finfo(scores.dtype).min, and drop rows that see nothing.",
        severity=severity_of(s, group),
        evidence=(
            s.measure(
                "NaN elements", f"SELECT max(out_nan) FROM ops WHERE {ops_where(first.op)}", "elements"
            ),
            s.measure(
                "masked elements",
                f"SELECT max(in_nonfinite) FROM ops WHERE {ops_where(first.op)}",
                "elements",
            ),
            *op_evidence(s, first.op)[:2],
        ),
        falsifier="No row of the scores is masked completely.",
        change=Change(diff=MASK_DIFF),
    )
