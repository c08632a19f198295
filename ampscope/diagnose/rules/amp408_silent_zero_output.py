"""An intermediate overflows in half and what divides by it returns zeros: part of the model is silent, without NaN.

## How it shows
Loss finite, nothing skipped, yet the model behaves as if a layer were not there: its outputs and gradients are zero for
large inputs. Hand-written RMS or L2 norms in half are the usual place.

## Why it happens
The mean of squares of values above 256 exceeds 65504 and is inf in fp16. rsqrt(inf) and x / inf are 0, which is finite,
so that no check for NaN and no GradScaler notices.

## Fix
```diff
- x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
+ h = x.float()
+ x = (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)
```
Compute the statistic in float32 (`nn.RMSNorm`, `nn.LayerNorm` and `F.normalize` of a float32 tensor do).

## What would refute it
The statistic is finite in half for the same inputs.

## Source
[transformers, T5LayerNorm keeps the variance in float32](https://github.com/huggingface/transformers/pull/9487);
IEEE 754-2019, table 3.5 (binary16)
"""

from __future__ import annotations

from ampscope.diagnose.failing import change_for, no_ops, op_evidence, place_phrase, spoken
from ampscope.diagnose.finding import Where
from ampscope.diagnose.lineage import births, functional, is_mask
from ampscope.diagnose.opflow import Op, SegmentOps, elements
from ampscope.diagnose.origins import load_segment
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import percent, sci
from ampscope.diagnose.transitions import BAD_FORWARD

INVERSES = frozenset({"rsqrt", "reciprocal", "div", "true_divide", "pow"})
CENSUSES = 4


@rule(
    "AMP408",
    "silent-zero-output",
    "critical",
    explains=("AMP402", "AMP403", "AMP404", "AMP411"),
    depth=MECHANISM,
)
def silent_zero_output(rule: Rule, s: Signals) -> Found:
    """An inverse of a value that overflowed in half, whose zeros go on into the model."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
        return
    found: dict[tuple[object, ...], tuple[SegmentOps, Op, Op, int]] = {}
    for flow in _recorded(s):
        for inverse in flow.ops:
            source = _overflow_before(flow, inverse)
            if source is None:
                continue
            place = (inverse.op, inverse.module, inverse.file, inverse.line)
            known = found.get(place)
            found[place] = (flow, source, inverse, flow.step) if known is None else (*known[:3], flow.step)
    for flow, source, inverse, last in found.values():
        share = inverse.out_zeros / max(1, sum(elements(x) for x in inverse.out_shapes))
        yield rule.finding(
            Where(
                module=inverse.module,
                op=f"aten::{inverse.op}",
                file=inverse.file,
                line=inverse.line,
                steps=(flow.step, last),
            ),
            f"The {spoken(source)}{place_phrase(source)} overflows to inf (inputs at most "
            f"{sci(source.in_amax)}), and the "
            f"{functional(inverse)} of it is 0 for {percent(share)} of the results: no NaN, but these "
            "outputs are silent.",
            "Compute the statistic in float32 and cast the result.",
            severity="critical" if share >= s.policy.silent_share else "warning",
            evidence=op_evidence(s, source),
            falsifier="The statistic is finite in half for the same inputs.",
            change=change_for(s, flow, inverse),
        )


def _recorded(s: Signals) -> list[SegmentOps]:
    rows = s.frame(
        "SELECT DISTINCT rank, coalesce(proc, 0) AS proc, segment FROM ops WHERE coalesce(in_nonfinite, 0) > 0 AND "
        "out_nonfinite = 0 AND out_zeros > 0 AND op IN ("
        + ", ".join(f"'aten::{name}{tail}'" for name in sorted(INVERSES) for tail in ("", "_"))
        + f") ORDER BY ALL LIMIT {CENSUSES}"
    )
    keys = [(int(r), int(p), int(g)) for r, p, g in rows.itertuples(index=False, name=None)]
    return [flow for key in keys if (flow := load_segment(s, key)) is not None]


def _overflow_before(flow: SegmentOps, inverse: Op) -> Op | None:
    """The op that overflowed in half before an inverse which made zeros of its infinities."""
    if functional(inverse) not in INVERSES or inverse.phase not in BAD_FORWARD:
        return None
    if not inverse.in_nonfinite or inverse.out_nonfinite or not inverse.out_zeros:
        return None
    if functional(inverse) == "pow" and not any(c < 0.0 for c in inverse.scalars):
        return None
    made = births(flow, inverse)
    for source in made:
        if source.to_half == "float16" and source.born and not source.out_nan and not is_mask(source):
            used = any(not r.backward and r.op not in ("_local_scalar_dense",) for r in flow.readers(inverse))
            return source if used and not source.backward else None
    return None
