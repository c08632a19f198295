"""What the rules on non-finite values share: origins grouped by cause and place, and the words and "
"numbers for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ampscope.diagnose.advice import module_change
from ampscope.diagnose.families import RUINED, SKIPPING
from ampscope.diagnose.finding import Abstain, Change, Evidence, Severity, Where
from ampscope.diagnose.opflow import Op, SegmentOps
from ampscope.diagnose.origins import Origin, origins_of
from ampscope.diagnose.overflow import FP16_LARGEST
from ampscope.diagnose.signals import Signals, quoted
from ampscope.diagnose.text import at_module, sci
from ampscope.diagnose.troubles import lasting, troubles_of

STARVED = ("AMP203", "AMP205", "AMP301")
"""What is seen at a loss scale that overflow has driven down."""

FOLLOWS = (*SKIPPING, *STARVED, *RUINED)
"""What follows when a step cannot be taken, or ruins the weights."""

SPOILED = ("AMP302", "AMP303", *FOLLOWS)
"""What follows from a forward that is not finite: its gradients are not either."""

OVERFLOWS = ("AMP302", "AMP303", "AMP401", "AMP402", "AMP403", "AMP404")
"""Arithmetic that fails on what it was given."""

BROKEN = (*FOLLOWS, *OVERFLOWS)
"""What follows from a deeper cause: the arithmetic that met it is not to blame."""


MOST_ANCESTORS = 200
"""Ops before an op among which a cast of autocast is looked for."""


def no_ops(s: Signals) -> Abstain | None:
    """Why single ops cannot be judged; None when they can."""
    if s.rows["ops"]:
        return None
    return Abstain("no op was recorded (no census or watch step)")


def groups(
    s: Signals, chosen: Callable[[Origin], bool], at: Callable[[Origin], Op] | None = None
) -> list[list[Origin]]:
    """The chosen origins, those of one op (or of the op that `at` gives) at one place together, in order of first
    occurrence."""
    found: dict[tuple[str | None, ...], list[Origin]] = {}
    for o in origins_of(s):
        if chosen(o):
            op = at(o) if at is not None else o.op
            found.setdefault((op.op, op.file, op.function, op.module if op.file else None), []).append(o)
    unplaced = [k for k, group in found.items() if k[1] is None or all(o.flow.graph for o in group)]
    for key in unplaced:
        same = next(
            (k for k, group in found.items() if k != key and _seen_before(found[key][0], group)), None
        )
        if same is not None:
            found[same] += found.pop(key)
    return list(found.values())


def _seen_before(of_graph: Origin, group: list[Origin]) -> bool:
    """Whether the op at which a graph that nobody watched went bad is one of a group that was watched. Its line may not
    be known, and what came before it in the forward, a mask or a constant, never is."""
    op = of_graph.op
    return any(
        op.op in (o.op.op, o.key.op if o.key is not None else None)
        and (op.file is None or (op.file, op.function) == (o.op.file, o.op.function))
        for o in group
        if not o.flow.graph
    )


def where_of(group: list[Origin], at: Op | None = None) -> Where:
    """The place of the first (or of `at`), over the steps of all."""
    op = at or next((o.op for o in group if o.op.file), group[0].op)
    steps = [o.step for o in group]
    return Where(
        module=op.module or group[0].op.module,
        op=f"aten::{op.op}",
        file=op.file,
        line=op.line,
        steps=(min(steps), max(steps)),
    )


def place_phrase(op: Op) -> str:
    """` in blocks.2.wo`, ` in soft_dice`, or nothing."""
    if op.module:
        return f" in {at_module(op.module)}"
    return f" in {op.function}" if op.function and op.function != "<module>" else ""


def spoken(op: Op) -> str:
    """`float16 exp`."""
    return f"{op.to_half or op.from_half or next(iter(op.out_dtypes), '')} {op.op.rstrip('_')}".strip()


def reach_phrase(group: list[Origin]) -> str:
    """What float32 gives for the same inputs, where it was tried; else nothing."""
    largest = max((o.op.shadow_amax for o in group if o.op.shadow_amax is not None), default=None)
    if largest is not None and largest > FP16_LARGEST:
        return f"; in float32 it reaches {sci(largest)}, beyond 65504"
    if any(o.op.shadow_nonfinite == 0 for o in group):
        return "; in float32 it is finite"
    return ""


def severity_of(s: Signals, group: Iterable[Origin]) -> Severity:
    """Critical when the trouble lasts or comes back; info for a batch or two that a scaler skipped and that left
    nothing behind."""
    seen = list(group)
    bad = [t for t in troubles_of(s).values() if t.bad_forward or (t.skipped and not t.searching)]
    last = max((o.trouble.key for o in seen), default=None)
    if last is not None and lasting(s, last):
        return "critical"
    if len(bad) <= s.policy.one_off_steps and all(o.trouble.skipped for o in seen):
        return "info"
    return "critical" if len(bad) > s.policy.one_off_steps else "warning"


def ops_where(op: Op) -> str:
    """The SQL condition for all rows of the same op at the same place."""
    return (
        f"op = {quoted('aten::' + op.op)} AND module IS NOT DISTINCT FROM {quoted(op.module)} AND "
        f"function IS NOT DISTINCT FROM {quoted(op.function)}"
    )


def op_evidence(s: Signals, op: Op) -> list[Evidence | None]:
    """The numbers of one failing op, each with its query."""
    chosen = f"FROM ops WHERE {ops_where(op)} AND out_nonfinite > 0 AND coalesce(in_nonfinite, 0) = 0"
    return [
        s.measure("calls that turned finite into non-finite", f"SELECT count(*) {chosen}", "calls"),
        s.measure("largest input", f"SELECT max(in_amax) {chosen}"),
        s.measure("smallest input", f"SELECT min(in_amin) {chosen}"),
        s.measure("zeros among the inputs", f"SELECT max(in_zeros) {chosen}", "elements"),
        s.measure("non-finite results", f"SELECT max(out_nonfinite) {chosen}", "elements"),
        s.measure("largest result in float32", f"SELECT max(shadow_amax) {chosen}"),
    ]


def change_for(s: Signals, flow: SegmentOps, op: Op, diff: str = "") -> Change:
    """Float32 for the module of the op where it is known, else bf16 where that is native and autocast has a part in
    what the op got; and a diff to read."""
    if op.module is None and not by_autocast(flow, op):
        return Change(diff=diff)
    return Change(set=module_change(s, op.module).set, diff=diff)


def by_autocast(flow: SegmentOps, op: Op) -> bool:
    """Whether autocast cast anything on the way to this op. Of a graph that nobody watched, casts are not known."""
    if flow.graph or op.backward:
        return True
    return any(a.cast == "autocast" for a in (op, *(a for _, a in flow.ancestors(op, MOST_ANCESTORS))))
