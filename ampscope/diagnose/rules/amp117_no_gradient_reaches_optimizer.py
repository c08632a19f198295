"""No parameter of the optimizer gets a gradient: the loss is cut off from the model, or the parameters were replaced.

## How it shows
`AssertionError: No inf checks were recorded for this optimizer.` from `scaler.step`; without a scaler, a loss that
never moves, or `element 0 of tensors does not require grad`.

## Why it happens
Three causes look alike. The loss was rebuilt outside the graph (`torch.tensor(value, requires_grad=True)`, `.item()`,
`.detach()`, numpy), so that backward ends at a fresh leaf. Or the optimizer holds parameters that the model no longer
uses, because they were replaced after it was built (a new head, `load` of a module, wrapping). Or `zero_grad` stands
between backward and step.

## Fix
```diff
- loss = torch.tensor(per_image, requires_grad=True).mean()
+ loss = torch.stack(per_image).mean()
```
For replaced parameters, build the optimizer after the last change of the model.

## What would refute it
Some parameter of the optimizer has a gradient when it steps.

## Source
[mmsegmentation #3230](https://github.com/open-mmlab/mmsegmentation/issues/3230)
"""

from __future__ import annotations

from ampscope.diagnose.calls import Call, of_kind
from ampscope.diagnose.families import CRASHED
from ampscope.diagnose.finding import Change, Finding, Where
from ampscope.diagnose.places import steps_of
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, listed
from ampscope.diagnose.windows import Window

_NO_CHECKS = "No inf checks were recorded"
_NO_GRAPH = "does not require grad"

ATTACH = (
    "Keep the loss attached to the graph: torch.stack and arithmetic on tensors instead of torch.tensor(...), "
    ".item() or .detach().",
    "- torch.tensor(values, requires_grad=True).mean()\n+ torch.stack(values).mean()",
)
REBUILD = ("Build the optimizer after the last change of the model's parameters.", "")
CLEAR = ("Clear the gradients before backward, not after it.", "+ optimizer.zero_grad()\n  loss.backward()")


@rule(
    "AMP117",
    "no-gradient-reaches-optimizer",
    "critical",
    needs=("calls",),
    explains=("AMP121", "AMP506", *CRASHED),
)
def no_gradient_reaches_optimizer(rule: Rule, s: Signals) -> Found:
    """A step that found no gradient at all, or a backward with no graph behind it."""
    for stream, windows in zip(s.streams, s.stream_windows, strict=True):
        cut = next((c for c in of_kind(stream, "backward") if _NO_GRAPH in (c.message or "")), None)
        if cut is not None:
            yield _finding(
                rule, s, cut, [cut], "backward has no graph to follow: the loss is detached from the model"
            )
            continue
        starved = _starved(s, stream, windows)
        for opt, steps in starved.items():
            yield _diagnose(rule, s, stream, opt, steps)
        for opt in dict.fromkeys(w.opt for w in windows if w.opt not in starved):
            yield from _partly_replaced(rule, s, stream, opt)


def _starved(s: Signals, stream: tuple[Call, ...], windows: tuple[Window, ...]) -> dict[str, list[Call]]:
    """Per optimizer its steps, if none of them had a gradient."""
    starved: dict[str, list[Call]] = {}
    for opt in dict.fromkeys(w.opt for w in windows):
        own = [w for w in windows if w.opt == opt and w.step is not None]
        steps = [w.step for w in own if w.step is not None]
        complained = any(_NO_CHECKS in (c.message or "") for c in steps)
        fed = any(w.backwards for w in own)
        rows = s.params[s.params["owner"].eq(opt)]
        silent = len(rows) > 0 and not rows["got_grad"].fillna(True).astype(bool).any()
        if not fed and (complained or (silent and len(own) >= s.policy.starved_steps)):
            starved[opt] = steps
    # update() raises the same where unscale_ found nothing to check and no step came.
    for c in of_kind(stream, "scaler.update"):
        if _NO_CHECKS not in (c.message or ""):
            continue
        unscaled = _unscaled_since_update(stream[: c.index], c.object)
        if unscaled is not None:
            starved.setdefault(unscaled.target or "", [c])
    return starved


def _unscaled_since_update(before: tuple[Call, ...], scaler: str | None) -> Call | None:
    """The last unscale_ of a scaler that no update() followed: an earlier one says nothing of this window."""
    for c in reversed(before):
        if c.object == scaler and c.call == "scaler.update" and c.error is None:
            return None
        if c.object == scaler and c.call == "scaler.unscale_" and c.target:
            return c
    return None


def _diagnose(rule: Rule, s: Signals, stream: tuple[Call, ...], opt: str, steps: list[Call]) -> Finding:
    backwards = [b for b in of_kind(stream, "backward") if b.error is None and b.index < steps[-1].index]
    empty = [b for b in backwards if not b.n_params]
    if not backwards:
        return _finding(rule, s, steps[0], steps, f"{opt} stepped and no backward ran before it")
    if len(empty) == len(backwards):
        why = "backward reached no parameter: its root is a fresh leaf, so the loss was rebuilt outside the graph"
        return _finding(rule, s, backwards[0], backwards, why)
    feeding = next(b for b in backwards if b.n_params)
    if opt in (feeding.target or "").split(","):
        cleared = next(
            (c for c in of_kind(stream, "optimizer.zero_grad") if c.index > feeding.index), feeding
        )
        return _finding(
            rule, s, cleared, steps, f"they are cleared between backward and the step of {opt}", CLEAR
        )
    why = (
        f"backward fed {count(feeding.n_params or 0, 'parameter')}, none of which {opt} holds: its parameters were "
        "replaced after it was built, or belong to another part of the model"
    )
    init = s.first_call("optimizer.init", opt)
    return _finding(rule, s, init or feeding, steps, why, REBUILD)


def _partly_replaced(rule: Rule, s: Signals, stream: tuple[Call, ...], opt: str) -> Found:
    """Some parameters of an optimizer belong to no model that ran and never get a gradient, while every backward that
    feeds the others feeds parameters that no optimizer holds."""
    held = s.params[s.params["owner"].eq(opt)]
    in_model = held["in_model"].fillna(True).astype(bool) & ~held["module"].isin(_left_behind(s))
    alive = held["got_grad"].fillna(True).astype(bool) | in_model
    dead = held[~(alive | ~held["requires_grad"].fillna(True).astype(bool))]
    names = set(dead["name"].astype(str)) - set(held[alive]["name"].astype(str))
    feeding = [b for b in of_kind(stream, "backward") if opt in (b.target or "").split(",")]
    steps = [c for c in of_kind(stream, "optimizer.step") if c.object == opt]
    if not names or len(steps) < s.policy.starved_steps or not all(b.all_params_named for b in feeding):
        return
    strays = (
        set.intersection(*({n for n in b.params if n not in s.owners} for b in feeding)) if feeding else set()
    )
    if not strays:
        return
    init = s.first_call("optimizer.init", opt)
    why = (
        f"{count(len(names), 'parameter')} of {opt} ({listed(sorted(names))}) belong to no model that ran, while "
        f"backward feeds {listed(sorted(strays))}, which no optimizer holds: they were replaced after it was built"
    )
    yield _finding(rule, s, init or feeding[0], steps, why, REBUILD, part=" for part of the model")


def _left_behind(s: Signals) -> frozenset[str]:
    """Modules that ran while the model was built, before the first backward, and in no later sample."""
    rows = s.frame("SELECT DISTINCT name, segment > 0 AS later FROM modules")
    later = rows["later"].astype(bool)
    if not later.any():
        return frozenset()
    return frozenset(rows["name"][~later].astype(str)) - frozenset(rows["name"][later].astype(str))


def _finding(
    rule: Rule,
    s: Signals,
    at: Call,
    seen: list[Call],
    why: str,
    advice: tuple[str, str] = ATTACH,
    part: str = "",
) -> Finding:
    return rule.finding(
        Where(file=at.file, line=at.line, steps=steps_of(seen)),
        f"No gradient reaches the optimizer{part}: {why}.",
        advice[0],
        evidence=(
            s.measure(
                "parameters fed by backward",
                "SELECT max(n_params) FROM calls WHERE call = 'backward'",
                "parameters",
            ),
            s.measure(
                "optimizer parameters with a gradient",
                "SELECT count(*) FILTER (got_grad) FROM params WHERE owner IS NOT NULL",
                "parameters",
            ),
            s.measure("calls that raised", "SELECT count(*) FROM calls WHERE error IS NOT NULL", "calls"),
        ),
        falsifier="Some parameter of the optimizer has a gradient when it steps.",
        change=Change(diff=advice[1]),
    )
