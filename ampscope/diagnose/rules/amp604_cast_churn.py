"""The same tensor is cast to half again and again within one step.

## How it shows
Autocast brings no speed-up. The profile is full of `_to_copy` and `copy_`; a recurrent or iterative model suffers
most.

## Why it happens
Autocast casts a weight once and keeps the copy until the outermost context ends. A context that is entered for every
time step, layer or chunk throws the copies away each time; `cache_enabled=False` keeps none; `.half()` written inside
a loop casts on every pass. Each cast has a backward as well.

## Fix
```diff
- for t in range(steps):
-     with torch.autocast(device, dtype=torch.bfloat16):
-         h = cell(x[:, t], h)
+ with torch.autocast(device, dtype=torch.bfloat16):
+     for t in range(steps):
+         h = cell(x[:, t], h)
```

## What would refute it
With one context around the loop the number of casts of the weight stays the same.

## Source
[Lightning #19950](https://github.com/Lightning-AI/pytorch-lightning/issues/19950),
[Lightning #21611](https://github.com/Lightning-AI/pytorch-lightning/issues/21611)
"""

from __future__ import annotations

from ampscope.diagnose.casting import Casting, Recast, castings_of, contexts
from ampscope.diagnose.finding import Change, Evidence, Finding, Where
from ampscope.diagnose.rule import MECHANISM, Found, Rule, rule
from ampscope.diagnose.signals import Signals, quoted
from ampscope.diagnose.text import listed, percent


@rule("AMP604", "cast-churn", "warning", needs=("ops",), explains=("AMP703",), depth=MECHANISM)
def cast_churn(rule: Rule, s: Signals) -> Found:
    """A weight, or a result of the step, that is cast many times for one backward."""
    castings = castings_of(s, s.policy.recasts)
    worst = max(castings, key=lambda c: c.avoidable, default=None)
    if worst is None or not worst.recasts:
        return
    top = max(worst.recasts, key=lambda r: (r.weight is not None, r.avoidable_s))
    yield _finding(rule, s, worst, top)


def _finding(rule: Rule, s: Signals, casting: Casting, top: Recast) -> Finding:
    file, line, why, advice = _cause(s, top)
    largest = sorted(casting.recasts, key=lambda r: -r.avoidable_bytes)
    names = list(dict.fromkeys(r.weight for r in largest if r.weight))
    what = (
        f"{listed(names)} {'is' if len(names) == 1 else 'are'}" if names else f"A result of {top.first.op} is"
    )
    source = f"AND cast_source = {quoted(top.weight)}" if top.weight else ""
    costly = casting.avoidable >= s.policy.cast_share
    return rule.finding(
        Where(module=top.first.module, tensor=top.weight, op=top.first.op, file=file, line=line,
              steps=(casting.step, casting.step)),
        f"{what} cast to half up to {max(r.times for r in casting.recasts)} times for one backward{why}; casts made "
        f"again take {percent(casting.avoidable)} of the time of all ops.",
        advice,
        severity="warning" if costly else "info",
        evidence=(
            s.measure(
                "casts of it in one step",
                f"SELECT count(*) FROM ops WHERE segment = {casting.segment} AND phase IN ('forward', 'recompute') AND "
                f"\"cast\" IS NOT NULL {source}",
                "casts",
            ),
            Evidence("share of the host time of all ops in casts made again", casting.avoidable, "", "estimated"),
            s.measure(
                "share of the host time of all ops in casts",
                "SELECT sum(host_s) FILTER (\"cast\" IS NOT NULL) / sum(host_s) FROM ops WHERE "
                f"segment = {casting.segment}",
                basis="estimated",
            ),
        ),
        falsifier="With one context around the loop the number of casts of that weight stays the same.",
        change=Change(diff="- for t in range(n):\n-     with torch.autocast(device):\n"
                           "+ with torch.autocast(device):\n+     for t in range(n):"),
    )  # fmt: skip


def _cause(s: Signals, top: Recast) -> tuple[str | None, int | None, str, str]:
    """(file, line, how it comes about, what to do)."""
    here = (top.first.file, top.first.line)
    if top.by_user:
        return *here, " by the script itself", "Cast it once, before the loop."
    off = next((c for c in s.calls if c.call == "autocast.enter" and c.has("cache_off")), None)
    if off is not None:
        return (
            off.file, off.line, ": autocast runs with cache_enabled=False",
            "Leave cache_enabled at its default, or cast the weights once yourself.",
        )  # fmt: skip
    (file, line), entered = max(contexts(s).items(), key=lambda item: item[1], default=((None, None), 0))
    if entered >= top.times:
        return (
            file, line, f": autocast is entered up to {entered} times within one step",
            "Enter autocast once around the loop, not inside it: its copies of the weights live until it ends.",
        )  # fmt: skip
    return (
        *here,
        "",
        "Enter autocast once around the forward, so that its copies of the weights are used again.",
    )
