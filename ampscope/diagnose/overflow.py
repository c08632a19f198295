"""What the forward-overflow rules share: which transitions count, where they are, and the words for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ampscope.diagnose.finding import Abstain, Evidence, Where
from ampscope.diagnose.origins import origins_of
from ampscope.diagnose.signals import Signals, quoted
from ampscope.diagnose.text import at_module, sci
from ampscope.diagnose.transitions import Transition, by_cause

FP16_LARGEST = 65504.0


def no_census(s: Signals) -> Abstain | None:
    """Why overflow in single ops cannot be judged; None when it can."""
    if s.rows["ops"]:
        return None
    return Abstain("no op was recorded (no census or watch step)")


def forward_overflows(s: Signals, ops: frozenset[str]) -> list[list[Transition]]:
    """Forward transitions of these ops, into half precision, that float32 would not have made and at which trouble
    began; grouped by cause."""
    begun = {(o.flow.rank, o.flow.proc, o.flow.segment, o.op.seq): o.op for o in origins_of(s) if o.forward}
    found = []
    for t in s.transitions:
        op = begun.get((t.rank, t.proc, t.segment, t.seq))
        if op is not None and t.op in ops and t.in_half and t.float32_survives is not False:
            found.append(replace(t, module=op.module, file=op.file, line=op.line, function=op.function))
    return by_cause(found)


def where_of(group: list[Transition]) -> Where:
    """The place of the first, over the steps of all."""
    first = group[0]
    steps = [t.step for t in group]
    return Where(
        module=first.module,
        op=f"aten::{first.op}",
        file=first.file,
        line=first.line,
        steps=(min(steps), max(steps)),
    )


def place_phrase(group: list[Transition]) -> str:
    """` in blocks.2.wo`, ` in soft_dice`, or nothing."""
    first = group[0]
    if first.module:
        return f" in {at_module(first.module)}"
    return f" in {first.function}" if first.function and first.function != "<module>" else ""


def made_phrase(group: list[Transition]) -> str:
    """`7576 at most in, inf out; float32 gives 1.91e+05`."""
    first = group[0]
    kind = "NaN" if first.out_nan == first.out_nonfinite else "inf"
    text = (
        f"its inputs are finite (at most {sci(first.in_amax)}), its {first.out_dtypes[0]} output holds {kind}"
    )
    largest = max((t.shadow_amax for t in group if t.shadow_amax is not None), default=None)
    if largest is not None and largest > FP16_LARGEST:
        text += f"; in float32 it reaches {sci(largest)}, beyond 65504"
    elif first.shadow_nonfinite == 0:
        text += "; in float32 it is finite"
    return text


def overflow_evidence(s: Signals, group: list[Transition]) -> list[Evidence | None]:
    """The numbers of one cause, each with its query."""
    first = group[0]
    chosen = (
        f"FROM ops WHERE op = {quoted('aten::' + first.op)} AND module IS NOT DISTINCT FROM "
        f"{quoted(first.module)} AND function IS NOT DISTINCT FROM {quoted(first.function)} "
        "AND out_nonfinite > 0 AND coalesce(in_nonfinite, 0) = 0"
    )
    return [
        s.measure("calls that turned finite into non-finite", f"SELECT count(*) {chosen}", "calls"),
        s.measure("largest input", f"SELECT max(in_amax) {chosen}"),
        s.measure("largest output in float32", f"SELECT max(shadow_amax) {chosen}"),
        s.measure("non-finite elements in float32", f"SELECT max(shadow_nonfinite) {chosen}", "elements"),
    ]


def steps_hit(groups: Iterable[list[Transition]]) -> set[int]:
    """Steps in which any of these causes was seen."""
    return {t.step for group in groups for t in group}
