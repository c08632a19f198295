"""The batch itself holds NaN or inf: the data are at fault, not the precision.

## How it shows
NaN at a certain batch in every precision; with a scaler the step is skipped and the scale falls, without one the
weights are NaN from then on.

## Why it happens
Missing values read as NaN, a division by zero in the preprocessing, a corrupt file, labels that are not there. What is
NaN before the first operation cannot be saved by any range.

## Fix
```diff
+ table = table.dropna()                  # or: fill, or mask the loss where the target is missing
+ assert torch.isfinite(x).all()
```
Clean the data, or leave out what is missing by indexing (a mask multiplied onto NaN is still NaN).

## What would refute it
The tensors of the failing batch are finite before they enter the model and the loss.

## Source
IEEE 754-2019, section 6.2 (NaN propagates)
"""

from __future__ import annotations

import pandas as pd

from ampscope.diagnose.failing import BROKEN, groups, where_of
from ampscope.diagnose.finding import Change, Finding, Where
from ampscope.diagnose.frames import text
from ampscope.diagnose.inputs import first_trouble, half_inputs, outside_inputs
from ampscope.diagnose.lineage import functional
from ampscope.diagnose.origins import Kind, Origin, origins_of
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import Signals, quoted
from ampscope.diagnose.text import at_module, count
from ampscope.diagnose.troubles import troubles_of

DIFF = "+ keep = torch.isfinite(x).all(dim=1)\n+ x, y = x[keep], y[keep]"


@rule(
    "AMP414",
    "nonfinite-input",
    "critical",
    needs=("steps",),
    explains=(*BROKEN, "AMP405", "AMP406", "AMP407", "AMP412", "AMP304", "AMP501", "AMP502"),
    depth=ROOT,
)
def nonfinite_input(rule: Rule, s: Signals) -> Found:
    """The first trouble of a run began with a tensor that came from outside and was not finite."""
    troubles = troubles_of(s)
    begun = first_trouble(s)
    if begun is None:
        return
    rows = outside_inputs(s)
    if not rows.empty:
        yield _root_input(rule, s, rows)
        return
    if not half_inputs(s).empty:
        return
    made = [o for o in origins_of(s) if o.kind is not Kind.ENTRY and not o.op.backward]
    if made and made[0].trouble.key[:2] == begun[:2]:
        return
    good = _weights_good(s)
    for group in groups(s, lambda o: _data(s, o, good)):
        op = group[0].op
        bad = sum(t.bad_forward for t in troubles.values())
        yield rule.finding(
            where_of(group),
            f"The {functional(op)} on line {op.line} reads a tensor from outside the step that holds NaN or inf "
            f"({op.in_nonfinite} elements), and {count(bad, 'loss', 'losses')} became non-finite: the "
            "data are at fault, "
            "not the precision.",
            "Clean the data, or leave out what is missing by indexing.",
            evidence=(
                s.measure(
                    "non-finite elements read",
                    f"SELECT max(in_nonfinite) FROM ops WHERE op = 'aten::{op.op}' AND line IS NOT DISTINCT FROM "
                    f"{op.line or 'NULL'}",
                    "elements",
                ),
            ),
            falsifier="The tensors of the failing batch are finite before they enter the model and the loss.",
            change=Change(diff=DIFF),
        )
        return


def _root_input(rule: Rule, s: Signals, rows: pd.DataFrame) -> Finding:
    row = rows.iloc[0]
    bad = int(row["nan"] + row["posinf"] + row["neginf"])
    steps = s.nonfinite[s.nonfinite["role"].eq("input") & s.nonfinite["name"].eq(row["name"])]["step"]
    kind = "NaN" if row["nan"] else "inf"
    module = text(row["module"])
    # The line of a model's input is the call of the model; what the graph reads beside it stands at the op that does.
    entries = () if module else (o.op for o in origins_of(s) if o.kind is Kind.ENTRY and not o.op.backward)
    reader = next((op for op in entries if op.file), None)
    what = (
        f"the input of {at_module(module)}"
        if module
        else "a tensor that the loss reads beside the model's output"
    )
    return rule.finding(
        Where(
            module=module,
            tensor=str(row["name"]),
            file=reader.file if reader is not None else None,
            line=reader.line if reader is not None else None,
            steps=(int(row["step"]), int(steps.max())),
        ),
        f"At step {int(row['step'])} {what} holds {kind} in {bad} of "
        f"{int(row['numel'])} elements "
        "before any computation: the data are at fault, not the precision.",
        "Clean the data, or leave out what is missing by indexing.",
        evidence=(
            s.measure(
                "non-finite elements of the input",
                "SELECT nan + posinf + neginf FROM nonfinite WHERE role = 'input' AND name = "
                f"{quoted(str(row['name']))} "
                "ORDER BY segment LIMIT 1",
                "elements",
            ),
        ),
        falsifier="The input of the failing batch is finite.",
        change=Change(diff=DIFF),
    )


def _weights_good(s: Signals) -> int:
    """The last segment after whose step the weights were seen to be finite, before any were seen not to be; -1 when
    none was."""
    updates = s.updates.groupby("segment", sort=True)["nonfinite_after"].max()
    bad = updates[updates.gt(0)]
    fine = updates[updates.eq(0)]
    if not bad.empty:
        fine = fine[fine.index < bad.index[0]]
    return int(fine.index.max()) if not fine.empty else -1


def _data(s: Signals, o: Origin, good: int) -> bool:
    """A tensor from outside that is no weight, no buffer and no average. Where an op reads both, the weights must have
    been finite when the segment began."""
    op = o.op
    if o.kind is not Kind.ENTRY or op.cast_source or op.backward or op.function is None:
        return False
    if functional(op) in ("mul", "lerp", "_foreach_mul") and any(0.5 <= c < 1.0 for c in op.scalars):
        return False
    if op.phase == "other" or (op.module is None and bool(s.params["in_model"].fillna(False).all())):
        return True
    floats = [shape for shape, dtype in zip(op.in_shapes, op.in_dtypes, strict=False) if "float" in dtype]
    held = {_sizes(shape) for shape in s.params["shape"].dropna().astype(str)}
    return not any(_sizes(shape) in held for shape in floats) or good >= o.flow.segment - 1


def _sizes(shape: str) -> tuple[str, ...]:
    """The sizes of a shape in order of size: a weight is often read transposed."""
    return tuple(sorted(shape.split("x")))
