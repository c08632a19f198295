"""Gradients are clipped, or edited in place, while they are still multiplied by the loss scale.

## How it shows
The run hardly learns although nothing overflows and the same script is fine in float32. The norm that
`clip_grad_norm_` returns is tens of thousands, and it moves with the loss scale.

## Why it happens
`scaler.scale(loss).backward()` leaves gradients that are `scale` times too large until `scaler.unscale_` or
`scaler.step` divides them. A clip in between compares the scaled norm with `max_norm`, cuts everything down to
it, and the division by the scale then makes the update `scale` times too small.

## Fix
```diff
  scaler.scale(loss).backward()
+ scaler.unscale_(optimizer)
  torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
  scaler.step(optimizer)
```
`scaler.step` knows that `unscale_` was called and does not divide again.

## What would refute it
A limit that was multiplied by the scale as well, or one that no gradient ever reached: then the clip does what
it should, or nothing.

## Source
[torch.amp examples: gradient clipping](https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping)
"""

from __future__ import annotations

from collections.abc import Iterator

from ampscope.diagnose.calls import Call, of_kind
from ampscope.diagnose.finding import Change, Evidence, Finding
from ampscope.diagnose.places import at, by_place
from ampscope.diagnose.rule import Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, pow2, sci
from ampscope.diagnose.windows import CLIPS, Window, common_factor


@rule("AMP101", "clip-before-unscale", "critical", needs=("calls",), explains=("AMP504", "AMP506"))
def clip_before_unscale(rule: Rule, s: Signals) -> Found:
    """Clips and edits of gradients that carried a loss scale large enough to matter."""
    yield from _clips(rule, s)
    yield from _edits(rule, s)
    yield from _norms(rule, s)


def _clips(rule: Rule, s: Signals) -> Iterator[Finding]:
    wrong = [(w, c) for w in s.windows for c in w.of_kind(*CLIPS) if _acts_on_scaled(s, w, c)]
    for _, pairs in by_place(wrong, lambda pair: pair[1]):
        window, clip = pairs[0]
        ratio = f"{sci(clip.value)} against a limit of {sci(clip.limit)}"
        yield rule.finding(
            at([c for _, c in pairs]),
            f"{clip.call} saw gradients multiplied by the loss scale {pow2(window.scale)} in "
            f"{count(len(pairs), 'step')} ({ratio}): they are clipped to that limit and then divided by the "
            f"scale, so the updates are up to {pow2(window.scale)} times too small.",
            "Call `scaler.unscale_(optimizer)` before clipping.",
            evidence=_evidence(s, clip),
            falsifier="The clip limit is multiplied by the loss scale as well, or no gradient ever reaches it.",
            change=Change(diff=f"+ scaler.unscale_(optimizer)\n  {clip.call}(...)"),
        )


def _acts_on_scaled(s: Signals, window: Window, clip: Call) -> bool:
    scale = window.scale or 1.0
    if clip.scaled not in ("scaled", "mixed") or scale < s.policy.scale_matters or clip.limit is None:
        return False
    if window.opt in s.hand_unscaled:
        return False
    if clip.limit >= scale * s.policy.scaled_limit:
        return False
    return clip.value is None or not clip.value <= clip.limit


def _edits(rule: Rule, s: Signals) -> Iterator[Finding]:
    wrong = [(w, e) for w in s.windows for e in of_kind(w.live, "grad_edit") if _edits_scaled(s, w, e)]
    for _, pairs in by_place(wrong, lambda pair: pair[1]):
        window, edit = pairs[0]
        if not _varies(s, [e for _, e in pairs]):
            continue
        yield rule.finding(
            at([e for _, e in pairs]),
            f"Gradients were changed in place while multiplied by the loss scale {pow2(window.scale)}, in "
            f"{count(len(pairs), 'step')}: whatever was added or clamped there is divided by the scale afterwards.",
            "Call `scaler.unscale_(optimizer)` before editing gradients.",
            severity="critical" if _drastic(s, [e for _, e in pairs]) else "info",
            evidence=_evidence(s, edit),
            falsifier="What is done commutes with the scale: a factor, or an average with other scaled gradients.",
        )


def _norms(rule: Rule, s: Signals) -> Iterator[Finding]:
    """Clips by norm and normalisations that were written by hand: a common factor, and one norm in every step."""
    wrong = [
        (w, e)
        for w in s.windows
        for e in of_kind(w.live, "grad_edit")
        if e.place in s.fixed_norms and _limited_while_scaled(s, w, e)
    ]
    for _, pairs in by_place(wrong, lambda pair: pair[1]):
        window, edit = pairs[0]
        yield rule.finding(
            at([e for _, e in pairs]),
            f"Between backward and this line the gradients were brought to a norm of {sci(edit.norm)} in every step "
            f"(seen in {count(len(pairs), 'sampled step')}) while multiplied by the loss scale "
            f"{pow2(window.scale)}, and are divided by it afterwards: updates are up to {pow2(window.scale)} times "
            "too small.",
            "Call `scaler.unscale_(optimizer)` before clipping.",
            evidence=[
                *_evidence(s, edit),
                s.measure("norm after it", "SELECT median(norm) FROM calls WHERE call = 'grad_edit'"),
            ],
            falsifier="That norm follows the loss scale when the scale changes.",
        )


def _limited_while_scaled(s: Signals, window: Window, edit: Call) -> bool:
    scale = window.scale or 1.0
    return (
        edit.scaled in ("scaled", "mixed")
        and window.via_scaler
        and scale >= s.policy.scale_matters
        and edit.norm is not None
        and edit.norm < scale * s.policy.scaled_limit
    )


def _edits_scaled(s: Signals, window: Window, edit: Call) -> bool:
    """An edit of gradients that a scaler will still divide, and that did not multiply all of them alike."""
    scale = window.scale or 1.0
    return (
        edit.scaled in ("scaled", "mixed")
        and scale >= s.policy.scale_matters
        and common_factor(edit, s.policy.same_factor) is None
        and window.via_scaler
    )


def _varies(s: Signals, edits: list[Call]) -> bool:
    """Whether the factors change from step to step, as noise and clamps make them do. Constant factors, such as
    one over the number of micro-batches or one per layer, commute with the scale and are healthy."""
    factors = [(e.value or 0.0, e.limit or 0.0) for e in edits]
    first = factors[0]
    near = s.policy.same_factor
    return any(
        not a / near <= b <= a * near for other in factors[1:] for a, b in zip(first, other, strict=True)
    )


def _drastic(s: Signals, edits: list[Call]) -> bool:
    """Whether the norms change as clamping makes them, which knows nothing of the scale. An average with the scaled
    gradients of other replicas, a projection or a centred gradient stays near what it was, and commutes."""
    mild = s.policy.mild_edit
    return any(e.value is not None and not 1.0 / mild <= e.value <= 2.0 for e in edits)


def _evidence(s: Signals, call: Call) -> list[Evidence | None]:
    chosen = f"call = '{call.call}' AND scaled IN ('scaled', 'mixed')"
    return [
        s.measure(
            "clips or edits of scaled gradients", f"SELECT count(*) FROM calls WHERE {chosen}", "calls"
        ),
        s.measure("median norm seen", f"SELECT median(value) FROM calls WHERE {chosen}"),
        s.measure("limit", f'SELECT median("limit") FROM calls WHERE {chosen}'),
        s.measure("median loss scale", "SELECT median(scale) FROM scaler"),
    ]
