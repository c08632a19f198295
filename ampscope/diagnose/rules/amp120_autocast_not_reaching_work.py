"""Autocast is asked for and has no effect: it is for another device, or the forward runs outside of it.

## How it shows
"AMP is on", but neither speed nor memory changes and the results equal float32 bit for bit. Sometimes one warning:
`User provided device_type of 'cuda', but CUDA is not available. Disabling`.

## Why it happens
An autocast context acts on one device type, on one thread, and only while it is entered. `autocast("cuda")` does
nothing for tensors on the CPU. A forward that runs in a worker thread (or in the replicas of `DataParallel`) does not
see the context of the main thread. A context that ends before the forward begins does nothing either, and one that
decorates a method which the training does not call is never entered: a GradScaler then scales float32 gradients.

## Fix
```diff
- with torch.autocast("cuda", dtype=torch.float16):
+ with torch.autocast(x.device.type, dtype=torch.float16):
      loss = criterion(model(x), y)
```
In threads, enter the context in the function that the thread runs (`@torch.autocast(...)` on `forward`).

## What would refute it
Some matrix product of the training runs in half precision.

## Source
[pytorch #114458](https://github.com/pytorch/pytorch/issues/114458);
[torch.amp examples: autocast and custom autograd functions, DataParallel](https://docs.pytorch.org/docs/stable/notes/amp_examples.html)
"""

from __future__ import annotations

from dataclasses import replace

from ampscope.diagnose.calls import Call
from ampscope.diagnose.finding import Abstain, Change
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import HALF, Signals
from ampscope.diagnose.text import count, pow2
from ampscope.diagnose.transitions import MATMUL

DISABLED = "disabled_by_torch"
"""The recorder's word for a context that was asked to be on and that torch switched off."""


@rule("AMP120", "autocast-not-reaching-work", "warning", needs=("calls",), explains=("AMP601",))
def autocast_not_reaching_work(rule: Rule, s: Signals) -> Found:
    """Contexts for a device that the work is not on, and contexts round which no matmul ran in half."""
    entered = [c for c in s.calls if c.call == "autocast.enter"]
    if not entered:
        yield from _never_entered(rule, s)
        return
    foreign = [c for c in entered if c.target not in (None, s.device) and (c.enabled or _wanted(c))]
    yield from _wrong_device(rule, s, foreign)
    if foreign or not any(c.enabled for c in entered):
        return
    enabled = [c for c in entered if c.enabled]
    threaded = list(_other_thread(rule, s, enabled))
    yield from threaded
    if threaded:
        return
    if not s.rows["ops"]:
        yield Abstain("no op was recorded (no census or watch step)")
        return
    yield from _outside(rule, s, enabled)


def _wanted(call: Call) -> bool:
    """A disabled context for another device. Where the recorder knows that torch and not the user switched it
    off, it says so; where it does not, a script written for another machine looks the same."""
    return call.enabled is False and call.target != "cpu"


def _wrong_device(rule: Rule, s: Signals, foreign: list[Call]) -> Found:
    for _, calls in by_place(foreign, lambda c: c):
        first = calls[0]
        sure = first.enabled is True or first.has(DISABLED)
        because = "" if first.enabled else ", and is off because that device is not there"
        yield rule.finding(
            at(calls),
            f"autocast is entered for {first.target} {count(len(calls), 'time')} while the training runs on "
            f"{s.device}{because}: no op runs in {first.dtype}.",
            "Take the device from the data: torch.autocast(x.device.type, ...).",
            severity="warning" if sure else "info",
            evidence=(
                s.measure(
                    "autocast contexts for another device",
                    f"SELECT count(*) FROM calls WHERE call = 'autocast.enter' AND target <> '{s.device}'",
                    "calls",
                ),
                s.measure(
                    "ops with half-precision outputs",
                    "SELECT count(*) FROM ops WHERE list_has_any(out_dtypes, ['float16', 'bfloat16'])",
                    "ops",
                ),
            ),
            falsifier="Some matrix product of the training runs in half precision.",
            change=Change(
                diff=f'- torch.autocast("{first.target}", ...)\n+ torch.autocast(x.device.type, ...)'
            ),
        )


def _other_thread(rule: Rule, s: Signals, entered: list[Call]) -> Found:
    """Forwards that train on a thread of their own, where no autocast was on, while the main thread had it on."""
    inside = [c for c in entered if c.thread_main]
    places = {(c.rank, c.proc, c.segment) for c in inside}
    rows = s.modules[s.modules["thread_main"].eq(False) & s.modules["grad_enabled"].eq(True)]
    here = [key in places for key in rows[["rank", "proc", "segment"]].itertuples(index=False, name=None)]
    rows = rows[here]
    if rows.empty or rows["autocast_dtype"].notna().any():
        return
    roots = rows[rows["is_root"].eq(True)]
    name = str((roots if len(roots) else rows)["name"].iloc[0])
    yield rule.finding(
        replace(at(inside), module=name),
        f"{inside[0].dtype} autocast is entered on the main thread, and {name} runs forward on another thread, "
        "which does not see it: its work stays in float32.",
        "Enter autocast inside the function that the thread runs.",
        evidence=(
            s.measure(
                "modules run on another thread without autocast",
                "SELECT count(DISTINCT name) FROM modules WHERE NOT thread_main AND autocast_dtype IS NULL",
                "modules",
            ),
            s.measure(
                "autocast contexts entered",
                "SELECT count(*) FROM calls WHERE call = 'autocast.enter'",
                "calls",
            ),
        ),
        falsifier="The thread enters a context of its own.",
        change=Change(
            diff=f"+ with torch.autocast(device, dtype=torch.{inside[0].dtype}):\n      y = model(x)"
        ),
    )


def _never_entered(rule: Rule, s: Signals) -> Found:
    """An enabled scaler in a run that entered no autocast and that computed nothing in half."""
    scaled = [
        c for c in s.calls if c.call == "scaler.scale" and c.enabled is not False and (c.value or 1.0) > 1.0
    ]
    if not scaled or s.training_dtypes.intersection(HALF) or not s.rows["ops"]:
        return
    if any(s.half_ops(dtype) for dtype in HALF):
        return
    yield rule.finding(
        at(scaled),
        f"A GradScaler scales the loss (by {pow2(scaled[0].value)} at first), and the run enters no autocast context "
        "and computes nothing in half precision: the work that the scaler is for runs in float32.",
        "Enter autocast round the call that the training makes, or drop the scaler.",
        evidence=(
            s.measure("losses scaled", "SELECT count(*) FROM calls WHERE call = 'scaler.scale'", "calls"),
            s.measure(
                "autocast contexts entered",
                "SELECT count(*) FROM calls WHERE call = 'autocast.enter'",
                "calls",
            ),
            s.measure("float32 matrix products", "SELECT count(*) FROM ops WHERE flops > 0", "ops"),
        ),
        falsifier="Some op of the training runs in half precision.",
        change=Change(diff="+ with torch.autocast(device, dtype=torch.float16):\n      y = model(x)"),
    )


def _outside(rule: Rule, s: Signals, entered: list[Call]) -> Found:
    """Sampled segments that entered autocast and ran matmuls, none of them in half precision."""
    names = ", ".join(f"'aten::{op}'" for op in sorted(MATMUL))
    work = s.frame(
        "SELECT rank, proc, segment, count(*) FILTER (list_has_any(out_dtypes, ['float16', 'bfloat16'])) AS half, "
        "count(*) FILTER (list_contains(out_dtypes, 'float32')) AS full FROM ops "
        f"WHERE op IN ({names}) AND phase IN ('forward', 'other') GROUP BY ALL"
    )
    sampled = {(int(r), int(p), int(g)): (h, f) for r, p, g, h, f in work.itertuples(index=False)}
    inside = [c for c in entered if (c.rank, c.proc, c.segment) in sampled]
    counts = [sampled[c.rank, c.proc, c.segment] for c in inside]
    if not inside or any(half for half, _ in counts) or not any(full for _, full in counts):
        return
    first = inside[0]
    yield rule.finding(
        at(inside),
        f"{first.dtype} autocast is entered, and none of {count(sum(f for _, f in counts), 'matrix product')} in the "
        f"sampled steps ran in half precision: the forward runs outside the context.",
        "Enter autocast round the call of the model.",
        evidence=(
            s.measure(
                "half-precision matrix products in forward",
                "SELECT count(*) FROM ops WHERE list_has_any(out_dtypes, ['float16', 'bfloat16']) AND flops > 0",
                "ops",
            ),
            s.measure("float32 matrix products", "SELECT count(*) FROM ops WHERE flops > 0", "ops"),
        ),
        falsifier="Some matrix product of the training runs in half precision.",
        change=Change(diff=f"+ with torch.autocast(device, dtype=torch.{first.dtype}):\n      y = model(x)"),
    )
