"""Whole numbers (positions, indices, time steps, counts) are cast to half precision and change their value.

## How it shows
No NaN, no skipped step: neighbouring positions get the same embedding, time steps are off by a few, ids collide. Long
sequences and late time steps suffer, short ones do not.

## Why it happens
bfloat16 holds whole numbers exactly up to 256, fp16 up to 2048. Beyond that they are rounded to multiples of 2, 4, 8
and more, before sin, cos or a table look-up makes them matter.

## Fix
```diff
- angle = position.to(x.dtype)[:, None] * freq
- return angle.sin()
+ angle = position.float()[:, None] * freq.float()
+ return angle.sin().to(x.dtype)
```
Compute what depends on whole numbers in float32 and cast the result.

## What would refute it
All whole numbers that are cast lie within 256 (bfloat16) or 2048 (fp16).

## Source
[transformers #25681](https://github.com/huggingface/transformers/pull/25681) (rotary positions in float32);
IEEE 754-2019, section 3.3 (precision p: whole numbers up to 2^p are exact)
"""

from __future__ import annotations

from ampscope.diagnose.advice import module_change
from ampscope.diagnose.census import sampled_segments
from ampscope.diagnose.failing import no_ops, place_phrase
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.lineage import BOUNDING, functional
from ampscope.diagnose.opflow import COPIES, Op, SegmentOps
from ampscope.diagnose.origins import load_segment
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import sci

EXACT = {"bfloat16": 256.0, "float16": 2048.0}
WIDE = ("int64", "int32", "uint32", "uint64")
"""Types of indices and counts; narrower ones hold samples of sound and images, which are rounded like any data."""
CENSUSES = 4
LABELS = frozenset({"where", "eq", "ne", "one_hot"})


@rule("AMP416", "integer-rounded-in-half", "warning", explains=("AMP407",), depth=MECHANISM)
def integer_rounded_in_half(rule: Rule, s: Signals) -> Found:
    """Casts of whole numbers to half, direct or by way of float32, that changed a value."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
        return
    seen: set[tuple[object, ...]] = set()
    for flow in _censuses(s):
        for op in flow.ops:
            place = (op.op, op.module, op.file, op.line)
            if place in seen or op.to_half is None or not _rounds(flow, op) or _only_divides(flow, op):
                continue
            seen.add(place)
            limit = EXACT[op.to_half]
            chosen = (
                f"FROM ops WHERE op = 'aten::{op.op}' AND line IS NOT DISTINCT FROM {op.line or 'NULL'} AND "
                f"list_contains(out_dtypes, '{op.to_half}')"
            )
            yield rule.finding(
                Where(
                    module=op.module,
                    op=f"aten::{op.op}",
                    file=op.file,
                    line=op.line,
                    steps=(flow.step, flow.step),
                ),
                f"Whole numbers up to {sci(op.out_amax)} become {op.to_half}{place_phrase(op)}, which "
                "holds them exactly up "
                f"to {limit:.0f} only: beyond that they are rounded to multiples of "
                f"{_spacing(op.out_amax or limit, limit):.0f}.",
                "Compute what depends on these numbers in float32, and cast the result.",
                evidence=(
                    s.measure("largest whole number after the cast", f"SELECT max(out_amax) {chosen}"),
                    s.measure("signal to noise of the cast", f"SELECT min(shadow_sqnr_db) {chosen}", "dB"),
                ),
                falsifier=f"All whole numbers that are cast lie within {limit:.0f}.",
                change=Change(
                    set=module_change(s, op.module).set if op.module else {},
                    diff="- position.to(x.dtype)\n+ position.float()",
                ),
            )


def _censuses(s: Signals) -> list[SegmentOps]:
    keys = [sample.key for sample in sampled_segments(s) if sample.level == "census"][:CENSUSES]
    return [flow for key in keys if (flow := load_segment(s, key)) is not None]


def _spacing(size: float, exact: float) -> float:
    """Distance between neighbouring numbers of the dtype at `size`."""
    spacing = 1.0
    while exact * spacing < size:
        spacing *= 2.0
    return spacing


def _rounds(flow: SegmentOps, op: Op) -> bool:
    """`op` makes half numbers of whole ones that are too large for it."""
    if op.out_amax is None or op.to_half is None or op.out_amax <= EXACT[op.to_half] or op.backward:
        return False
    name = functional(op)
    if name == "arange":
        return bool(op.scalars)
    if op.op not in ("_to_copy", "to", "copy_") or not op.in_dtypes:
        return False
    inexact = op.shadow_sqnr_db is not None and op.shadow_sqnr_db < float("inf")
    if op.in_dtypes[-1] in WIDE:
        return inexact or op.shadow_sqnr_db is None
    return inexact and op.in_dtypes[-1] in ("float32", "float64") and _whole(flow, op)


def _only_divides(flow: SegmentOps, op: Op) -> bool:
    """Counts that nothing but a mean is made of: a rounding error of 2^-11 of the divisor is one of the result."""
    front, ends = [op], []
    for _ in range(4):
        readers = [r for o in front for r in flow.readers(o) if not r.backward]
        ends += [r for r in readers if not r.view and functional(r) not in COPIES | BOUNDING]
        front = [r for r in readers if r.view or functional(r) in COPIES | BOUNDING]
    return bool(ends) and all(functional(r) in ("div", "reciprocal", "rsqrt") for r in ends)


def _whole(flow: SegmentOps, op: Op) -> bool:
    """What it casts are whole numbers as they came out of an integer tensor, moved about at most."""
    made = list(flow.sources(op, len(op.ins) - 1))
    return bool(made) and all(_from_integers(m) for m in made)


def _from_integers(op: Op) -> bool:
    if op.op in ("_to_copy", "to"):
        return bool(op.in_dtypes) and op.in_dtypes[-1] in WIDE
    return functional(op) == "arange" and all(c == int(c) for c in op.scalars)
