"""A non-finite value entered a running statistic or a moving average, and stays there.

## How it shows
One bad batch, skipped by the scaler like any other; training goes on with a finite loss. But evaluation gives NaN
(batch norm uses its running statistics there), or every later loss that is divided by a moving average is NaN.

## Why it happens
0.9 · inf + 0.1 · x is inf, whatever x is. GradScaler protects the weights from a bad step; buffers that the forward
updates, and averages kept beside the model, have been updated by then.

## Fix
```diff
+ if torch.isfinite(batch_stat).all():
      self.running.lerp_(batch_stat, 0.1)
```
Guard the update, and reset what is poisoned: `norm.reset_running_stats()`, or load an earlier checkpoint.

## What would refute it
The buffer is finite at the end of the run.

## Source
[pytorch #8291](https://github.com/pytorch/pytorch/issues/8291) (running_var becomes NaN);
IEEE 754-2019, section 6.1 (infinity arithmetic)
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from ampscope.diagnose.census import censuses
from ampscope.diagnose.failing import FOLLOWS, groups, op_evidence, place_phrase, where_of
from ampscope.diagnose.finding import Change, Finding, Where
from ampscope.diagnose.lineage import functional
from ampscope.diagnose.opflow import Op, SegmentOps
from ampscope.diagnose.origins import Kind, Origin, enters, load_segment
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import Signals, quoted
from ampscope.diagnose.symptoms import BAD_WEIGHTS
from ampscope.diagnose.text import count, listed
from ampscope.diagnose.troubles import lasting, troubles_of

SILENT = (
    "SELECT DISTINCT o.rank, coalesce(o.proc, 0) AS proc, o.segment FROM ops o JOIN steps s ON s.rank = o.rank AND "
    "s.proc IS NOT DISTINCT FROM o.proc AND s.segment = o.segment WHERE s.level = 'census' AND o.in_nonfinite > 0 AND "
    "o.out_nonfinite > 0 AND o.phase = 'forward' AND o.module IS NOT NULL ORDER BY ALL LIMIT 12"
)

DIFF = "+ if torch.isfinite(value).all():\n      buffer.lerp_(value, momentum)"


@rule(
    "AMP410",
    "poisoned-buffer",
    "critical",
    explains=(*FOLLOWS, BAD_WEIGHTS, "AMP402", "AMP404", "AMP405", "AMP407", "AMP409", "AMP413"),
    depth=ROOT,
)
def poisoned_buffer(rule: Rule, s: Signals) -> Found:
    """A buffer that is not finite while training goes on; or an average kept by hand that is read and updated."""
    rows = s.nonfinite[s.nonfinite["role"].eq("buffer")]
    if not rows.empty:
        first = rows.iloc[0]
        key = (int(first["rank"]), 0 if pd.isna(first["proc"]) else int(first["proc"]), int(first["segment"]))
        if not lasting(s, key):
            yield _buffers(rule, s, rows)
            return
    seen = groups(s, lambda o: o.kind is Kind.ENTRY and _updated(s, o) is not None)
    if not seen:
        yield from _silent(rule, s)
    for group in seen:
        op = group[0].op
        update = _updated(s, group[0]) or op
        where = where_of(group)
        first_step, last_step = where.steps or (0, 0)
        begun = min((t.step for t in troubles_of(s).values() if t.bad_forward), default=first_step)
        yield rule.finding(
            replace(where, steps=(min(begun, first_step), last_step)),
            f"A moving average{place_phrase(op)} came into the step as NaN or inf and is updated from itself "
            f"({functional(update)} on line {update.line}): once poisoned it stays so, and so does what uses it, the "
            "loss or its gradients.",
            "Guard the update (skip it when the new value is not finite) and start the average anew.",
            evidence=(
                s.measure(
                    "steps in which it was read as non-finite",
                    f"SELECT count(DISTINCT segment) FROM ops WHERE op = 'aten::{op.op}' AND line = {op.line} AND "
                    "in_nonfinite > 0",
                    "steps",
                )
                if op.line
                else None,
                *op_evidence(s, op)[:1],
            ),
            falsifier="The average is finite when the step begins.",
            change=Change(diff=DIFF),
        )


def _buffers(rule: Rule, s: Signals, rows: pd.DataFrame) -> Finding:
    names = list(dict.fromkeys(rows["name"].astype(str)))
    step = int(rows["step"].min())
    good = s.steps[s.steps["step"].gt(step) & s.steps["outcome"].eq("stepped")]
    return rule.finding(
        Where(
            module=None if pd.isna(rows["module"].iloc[0]) else str(rows["module"].iloc[0]),
            tensor=names[0],
            steps=(step, int(s.steps["step"].max())),
        ),
        f"{listed(names)} became NaN or inf at step {step} and keep it, while training went on for "
        f"{count(len(good), 'step')}: what uses these buffers (evaluation does) is not finite.",
        "Reset these buffers (reset_running_stats) or load an earlier checkpoint, and guard their update.",
        evidence=(
            s.measure(
                "non-finite elements",
                f"SELECT max(nan + posinf + neginf) FROM nonfinite WHERE name = {quoted(names[0])}",
            ),
            s.measure(
                "first step",
                f"SELECT min(step) FROM nonfinite WHERE role = 'buffer' AND name = {quoted(names[0])}",
            ),
            s.measure(
                "good steps after it",
                f"SELECT count(*) FROM steps WHERE step > {step} AND outcome = 'stepped'",
                "steps",
            ),
        ),
        falsifier="The buffer is finite at the end of the run.",
        change=Change(diff=DIFF),
    )


def _silent(rule: Rule, s: Signals) -> Found:
    """An average of a module that is not finite when a step begins, and a loss that is: dividing by inf gives zeros."""
    troubles = troubles_of(s)
    found: dict[tuple[str | None, int | None], list[tuple[SegmentOps, Op]]] = {}
    for rank, proc, segment in s.frame(SILENT).itertuples(index=False, name=None):
        key = (int(rank), int(proc), int(segment))
        flow = None if key in troubles else load_segment(s, key)
        if flow is None:
            continue
        for op in flow.ops:
            if op.module and set(op.ins) & set(op.outs) and enters(flow, op) and _average(flow, op):
                found.setdefault((op.file, op.line), []).append((flow, op))
    for pairs in found.values():
        op = pairs[0][1]
        steps = [flow.step for flow, _ in pairs]
        yield rule.finding(
            Where(
                module=op.module,
                op=f"aten::{op.op}",
                file=op.file,
                line=op.line,
                steps=(min(steps), max(steps)),
            ),
            f"A moving average{place_phrase(op)} holds {op.in_nonfinite} values that are NaN or inf when the step "
            f"begins, and is updated from itself ({functional(op)} on line {op.line}): it stays so. The loss is "
            "finite, because what is divided by inf is zero.",
            "Guard the update (skip it when the new value is not finite) and start the average anew.",
            evidence=(
                s.measure(
                    "values of it that are not finite",
                    f"SELECT max(in_nonfinite) FROM ops WHERE op = 'aten::{op.op}' AND line = {op.line}",
                    "elements",
                )
                if op.line
                else None,
            ),
            falsifier="The average is finite when the step begins.",
            change=Change(diff=DIFF),
        )


def _updated(s: Signals, origin: Origin) -> Op | None:
    """The op that updates, from itself, the average which came in non-finite; None where it is none. It need not be the
    first to read it; of a step under watch only that one is known, and a census tells what the line reads."""
    flow, op = origin.flow, origin.op
    if _average(flow, op):
        return op
    pairs = [(flow, op)]
    if flow.watched and op.line is not None:
        same = ((c.flow, other) for c in censuses(s) for other in c.flow.ops if not other.backward)
        pairs += [(f, o) for f, o in same if (o.file, o.line, o.op) == (op.file, op.line, op.op)]
    for known, reader in pairs:
        outside = {i for i in reader.ins if i and known.writer(i, reader) is None}
        for later in known.after(reader):
            if later.phase != "forward":
                continue  # a weight that an optimizer decays is no average
            if outside & set(later.ins) & set(later.outs) and _average(known, later):
                return later
    return None


def _average(flow: SegmentOps, op: Op) -> bool:
    """What came in non-finite is decayed and added to: an average that the step updates."""
    if op.cast_source or op.backward:
        return False
    name = functional(op)
    if name == "lerp":
        return True
    if name not in ("mul", "_foreach_mul"):
        return False
    readers = list(flow.readers(op))[:4]
    if not readers:
        # The watch kept nothing of what follows: a factor that only a decay has must do.
        return any(0.8 <= c < 1.0 for c in op.scalars)
    decays = any(0.5 <= c < 1.0 for c in op.scalars)
    return decays and any(functional(r) in ("add", "_foreach_add", "addcmul") for r in readers)
