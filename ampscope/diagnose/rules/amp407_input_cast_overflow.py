"""The cast of an input or a weight to fp16 gives inf: the data, or a weight, lie outside the half range.

## How it shows
NaN from the first batch that holds a large value (raw prices, timestamps, sensor words, unnormalised counts), at
every loss scale, however the model is built. In float32 and bfloat16 the same batch passes.

## Why it happens
Autocast (or `.half()`) casts what enters a layer. Every number from 65520 on becomes inf in fp16, before the first
operation of the model is computed.

## Fix
```diff
- out = model(x)
+ out = model((x - mean) / std)
```
Normalise the data (or rescale the weight), or use bfloat16 where the device computes in it.

## What would refute it
The tensor that is cast holds no finite value of 65520 or more.

## Source
[MMSA #76](https://github.com/thuiar/MMSA/issues/76); IEEE 754-2019, table 3.5 (binary16)
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ampscope.diagnose.advice import bf16_change, or_bf16
from ampscope.diagnose.failing import BROKEN, groups, no_ops, op_evidence, severity_of, where_of
from ampscope.diagnose.finding import Change, Where
from ampscope.diagnose.inputs import half_inputs
from ampscope.diagnose.origins import Kind, Origin, origins_of
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals, quoted
from ampscope.diagnose.text import at_module, sci
from ampscope.diagnose.troubles import Key, lasting


@rule(
    "AMP407",
    "input-cast-overflow",
    "critical",
    explains=(*BROKEN, "AMP416"),
    depth=MECHANISM,
)
def input_cast_overflow(rule: Rule, s: Signals) -> Found:
    """A forward cast to float16 that turned finite numbers into inf which reached the loss."""
    missing = no_ops(s)
    if missing is not None:
        yield missing
    for group in groups(s, lambda o: o.kind is Kind.CAST):
        op = group[0].op
        largest = max(o.op.in_amax or 0.0 for o in group)
        yield rule.finding(
            where_of(group),
            f"The cast of {_what(group)} to float16 gives inf in {group[0].op.out_nonfinite} of its elements: it "
            f"holds values up to {sci(largest)}, and float16 ends at 65504.",
            or_bf16(s, _advice(group)) + ".",
            severity=severity_of(s, group),
            evidence=op_evidence(s, op),
            falsifier="What is cast holds no finite value of 65520 or more.",
            change=Change(set=bf16_change(s)),
        )
    if not any(o.kind is Kind.CAST for o in origins_of(s)):
        yield from _already_cast(rule, s)


def _already_cast(rule: Rule, s: Signals) -> Found:
    """What enters the model is half and holds inf but no NaN: the cast itself was not seen."""
    rows = half_inputs(s)
    if rows.empty:
        return
    row = rows.iloc[0]
    bad = int(row["posinf"] + row["neginf"])
    yield rule.finding(
        Where(
            module=None if pd.isna(row["module"]) else str(row["module"]),
            tensor=str(row["name"]),
            steps=(int(row["step"]), int(rows["step"].max())),
        ),
        f"At step {int(row['step'])} a {row['dtype']} input ({row['name']}) holds inf in {bad} of {int(row['numel'])} "
        "elements and no NaN: data beyond 65504 were cast to it.",
        or_bf16(s, "Normalise the data before it enters the model") + ".",
        severity="critical" if lasting(s, _key(row)) else "warning",
        evidence=(
            s.measure(
                "infinite elements",
                f"SELECT posinf + neginf FROM nonfinite WHERE role = 'input' AND name = {quoted(str(row['name']))} "
                "ORDER BY segment LIMIT 1",
                "elements",
            ),
        ),
        falsifier="What is cast holds no finite value of 65520 or more.",
        change=Change(set=bf16_change(s)),
    )


def _key(row: pd.Series[Any]) -> Key:
    return int(row["rank"]), 0 if pd.isna(row["proc"]) else int(row["proc"]), int(row["segment"])


def _what(group: list[Origin]) -> str:
    op = group[0].op
    if op.cast_source:
        return f"the weight {op.cast_source}"
    if group[0].key is not None and group[0].key.phase == "forward":
        return f"a float32 result ({group[0].key.op.rstrip('_')})"
    return f"an input of {at_module(op.module)}" if op.module else "an input"


def _advice(group: list[Origin]) -> str:
    op = group[0].op
    if op.cast_source:
        return "Find what made the weight so large, and rescale it"
    if group[0].key is not None and group[0].key.phase == "forward":
        return "Keep what reads this result in float32, or scale it down before the cast"
    return "Normalise the data before it enters the model"
