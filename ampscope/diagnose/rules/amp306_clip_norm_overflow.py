"""The total gradient norm is computed in half and becomes inf, so clipping multiplies every gradient by zero.

## How it shows
No NaN, no error, no skipped step: the weights simply do not move (with momentum or weight decay they drift). The norm
that clipping returns is inf.

## Why it happens
A norm of fp16 gradients is an fp16 number. Squares above 255² overflow, and so does every sum of them above 65504. The
clip coefficient is max_norm / inf = 0, and 0 times a finite gradient is 0.

## Fix
```diff
- norm = clip_grad_norm_(model.parameters(), limit * loss_scale)
+ for p in model.parameters(): p.grad.div_(loss_scale)          # unscale first
+ norm = clip_grad_norm_([p for p in master_params], limit)     # float32 gradients
```
Keep float32 parameters under autocast (their gradients are float32), or compute the norm from `g.float()`.

## What would refute it
The norm computed in float32 from the same gradients is not finite either.

## Source
[fairscale PR #263](https://github.com/facebookresearch/fairscale/pull/263);
[torch.nn.utils.clip_grad_norm_](https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html)
"""

from __future__ import annotations

import math

from ampscope.diagnose.calls import Call
from ampscope.diagnose.census import censuses
from ampscope.diagnose.families import UNDERFLOW
from ampscope.diagnose.finding import Change, Finding, Where
from ampscope.diagnose.lineage import functional
from ampscope.diagnose.opflow import Op, SegmentOps
from ampscope.diagnose.origins import load_segment
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import HALF, Signals
from ampscope.diagnose.text import count, sci
from ampscope.diagnose.transitions import REDUCTION
from ampscope.diagnose.troubles import troubles_of

NORMS = REDUCTION | {"_foreach_norm", "stack", "mul", "square"}
LEAST_DEAD = 4
NEAR = 65504.0 / 2**7
"""How large a reduction has to be for its overflow to be near."""
DIFF = (
    "- total = torch.stack([g.norm() for g in grads]).norm()\n"
    "+ total = torch.stack([g.float().norm() for g in grads]).norm()"
)


@rule(
    "AMP306",
    "clip-norm-overflow",
    "critical",
    explains=(*UNDERFLOW, "AMP115", "AMP403", "AMP402", "AMP501", "AMP101"),
    depth=ROOT,
)
def clip_norm_overflow(rule: Rule, s: Signals) -> Found:
    """Clip calls in half that returned inf in steps whose gradients were finite; or the same written by hand."""
    bad = {t.step for t in troubles_of(s).values() if t.bad_forward or t.skipped}
    calls = [c for c in s.calls if _overflowed(c) and c.step not in bad]
    if calls:
        yield _by_call(rule, s, calls)
        return
    seen = list(_by_hand(rule, s))
    yield from seen or _between_censuses(rule, s)


def _overflowed(c: Call) -> bool:
    return c.call == "clip_grad_norm_" and c.dtype in HALF and c.value is not None and math.isinf(c.value)


def _by_call(rule: Rule, s: Signals, calls: list[Call]) -> Finding:
    first = calls[0]
    clips = sum(c.call == "clip_grad_norm_" for c in s.calls)
    chosen = f"FROM calls WHERE call = 'clip_grad_norm_' AND isinf(value) AND dtype = '{first.dtype}'"
    return rule.finding(
        Where(file=first.file, line=first.line, steps=(first.step, calls[-1].step)),
        f"{len(calls)} of {count(clips, 'clip_grad_norm_ call')} returned a {first.dtype} norm of inf "
        "although all gradients "
        "were finite: the clip coefficient is 0, and every gradient is multiplied by it.",
        "Unscale the gradients first and compute their norm in float32.",
        severity="critical" if 2 * len(calls) >= clips else "warning",
        evidence=(
            s.measure("clip calls that returned inf", f"SELECT count(*) {chosen}", "calls"),
            s.measure(
                "largest gradient before clipping",
                "SELECT max(amax) FROM tensors WHERE role = 'grad' AND stage = 'pre_clip'",
            ),
            s.measure(
                "gradient elements that are zero after clipping",
                "SELECT sum(zeros) / sum(numel) FROM tensors WHERE role = 'grad' AND stage = 'post_clip'",
            ),
        ),
        falsifier="The norm computed in float32 from the same gradients is not finite either.",
        change=Change(diff=DIFF),
    )


def _by_hand(rule: Rule, s: Signals) -> Found:
    rows = s.frame(
        "SELECT DISTINCT rank, coalesce(proc, 0) AS proc, segment FROM ops WHERE phase = 'other' AND "
        "out_nonfinite > 0 "
        "AND coalesce(in_nonfinite, 0) = 0 ORDER BY ALL LIMIT 4"
    )
    for rank, proc, segment in rows.itertuples(index=False, name=None):
        flow = load_segment(s, (int(rank), int(proc), int(segment)))
        found = None if flow is None else _zeroing(flow)
        if flow is None or found is None:
            continue
        norm, product = found
        yield rule.finding(
            Where(op=f"aten::{norm.op}", file=norm.file, line=norm.line, steps=(flow.step, flow.step)),
            f"The {norm.to_half} {norm.op.strip('_')} of the gradients in "
            f"{norm.function or 'the script'} overflows (its "
            f"inputs are at most {sci(norm.in_amax)}), so the clip coefficient is 0 and line "
            f"{product.line} sets every "
            "gradient to zero.",
            "Compute the norm in float32: g.float().norm().",
            evidence=(
                s.measure(
                    "calls that overflowed",
                    f"SELECT count(*) FROM ops WHERE op = 'aten::{norm.op}' AND phase = 'other' AND out_nonfinite > 0",
                    "calls",
                ),
                s.measure(
                    "the same in float32",
                    f"SELECT max(shadow_amax) FROM ops WHERE op = 'aten::{norm.op}' AND phase = 'other'",
                ),
            ),
            falsifier="The norm computed in float32 from the same gradients is not finite either.",
            change=Change(diff=DIFF),
        )
        return


def _between_censuses(rule: Rule, s: Signals) -> Found:
    """No overflow was recorded, yet all gradients are exact zeros in many sampled steps while the loss is what it was,
    and a census before shows the half norm that they are multiplied by, not far below its limit."""
    zeros = (
        "SELECT rank, proc, segment, min(step) AS step, sum(zeros) / sum(numel) AS zero FROM tensors "
        "WHERE role = 'grad' GROUP BY rank, proc, segment HAVING sum(nan + posinf + neginf) = 0"
    )
    rows = s.frame(
        f"SELECT g.*, abs(t.loss) AS loss FROM ({zeros}) g JOIN steps t ON t.rank = g.rank AND "
        "t.proc IS NOT DISTINCT FROM g.proc AND t.segment = g.segment"
    )
    dead, alive = rows[rows["zero"] == 1.0], rows[rows["zero"] <= 0.5]
    if len(dead) < LEAST_DEAD or alive.empty or not dead["loss"].median() >= 0.5 * alive["loss"].median():
        return
    for flow in reversed([c.flow for c in censuses(s)]):
        norm = _norm_of_gradients(flow) if flow.step < dead["step"].max() else None
        if norm is None:
            continue
        yield rule.finding(
            Where(
                op=f"aten::{norm.op}",
                file=norm.file,
                line=norm.line,
                steps=(int(dead["step"].min()), int(dead["step"].max())),
            ),
            f"All gradients are zero in {len(dead)} of {count(len(rows), 'sampled step')}, first in step "
            f"{dead['step'].min()}, although the loss is what it was. They are multiplied by a factor made of the "
            f"{norm.to_half} {norm.op.strip('_')} of the gradients in {norm.function or 'the script'}, which was "
            f"{sci(norm.out_amax)} in step {flow.step}: beyond 65504 it is inf and the factor 0.",
            "Compute the norm in float32: g.float().norm().",
            evidence=(
                s.measure(
                    "sampled steps with gradients that are all zero",
                    "SELECT count(*) FROM (SELECT segment FROM tensors WHERE role = 'grad' "
                    "GROUP BY rank, proc, segment HAVING sum(zeros) = sum(numel))",
                    "steps",
                ),
            ),
            falsifier="The norm is finite in a step whose gradients are zero.",
            change=Change(diff=DIFF),
        )
        return


def _norm_of_gradients(flow: SegmentOps) -> Op | None:
    """The largest float16 reduction over gradients between backward and step, near the limit, in front of a product
    that changes them."""
    gradients: set[int] = set()
    norm: Op | None = None
    for op in flow.ops:
        if op.backward:
            gradients |= set(op.outs)
        elif op.phase == "other" and gradients:
            if op.to_half == "float16" and op.op in REDUCTION | {"_foreach_norm"} and _of_gradients(flow, op):
                if norm is None or (op.out_amax or 0.0) > (norm.out_amax or 0.0):
                    norm = op
            elif (
                norm is not None
                and functional(op) in ("mul", "_foreach_mul", "div", "_foreach_div")
                and gradients & set(op.outs)
            ):
                return norm if (norm.out_amax or 0.0) >= NEAR else None
    return None


def _of_gradients(flow: SegmentOps, op: Op) -> bool:
    """It reads what backward wrote, or the squares of that."""
    direct = [w for w in flow.writers(op) if w is not None]
    squares = [w for w in direct if functional(w) in ("mul", "square", "pow")]
    return any(w.backward for w in [*direct, *(x for w in squares for x in flow.writers(w) if x is not None)])


def _zeroing(flow: SegmentOps) -> tuple[Op, Op] | None:
    """(the reduction of gradients that overflowed, the multiplication that made them zero) between "
    "backward and step."""
    gradients: set[int] = set()
    norm: Op | None = None
    for op in flow.ops:
        if op.backward:
            gradients |= set(op.outs)
        elif op.phase == "other" and gradients:
            if norm is None and op.born and op.to_half and op.op in NORMS:
                norm = op
            elif (
                norm is not None
                and functional(op) in ("mul", "_foreach_mul")
                and _to_zero(op)
                and gradients & set(op.outs)
            ):
                return norm, op
    return None


def _to_zero(op: Op) -> bool:
    return op.out_amax == 0.0 and op.out_nonfinite == 0 and (op.in_amax or 0.0) > 0.0
