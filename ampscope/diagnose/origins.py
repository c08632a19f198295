"""Where the trouble of a run began: the op, in data-flow order, that first made a non-finite value which reached a loss
or a gradient, and of what kind it was. Which code a kind gets, and what to do, is for the rules to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from weakref import WeakKeyDictionary

from ampscope.diagnose.alignment import named_like
from ampscope.diagnose.census import recorded_ops, sampled_segments
from ampscope.diagnose.lineage import (
    SOFTMAX,
    cancelled,
    functional,
    is_mask,
    mask_constant,
    masked_row,
    safeguard_lost,
    saturated,
)
from ampscope.diagnose.opflow import Op, SegmentOps
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.transitions import MATMUL, REDUCTION
from ampscope.diagnose.troubles import Key, Trouble, troubles_of

CASTS = frozenset({"_to_copy", "copy_", "to"})
EXPONENTIALS = frozenset({"exp", "exp2", "expm1", "sinh", "cosh", "softplus", "logaddexp"})
AT_ZERO = frozenset(
    (
        "log log2 log10 log1p sqrt rsqrt div true_divide reciprocal pow logit acos asin atanh acosh "
        "linalg_vector_norm norm xlogy binary_cross_entropy addcdiv _euclidean_dist"
    ).split()
)
"""Ops that have no finite value, or slope, at a zero, a negative number or a one."""
OF_POSITIVE = frozenset({"sqrt", "rsqrt", "log", "log2", "log10", "pow"})
"""NaN from finite numbers says that one of them was negative."""
ELEMENTWISE = frozenset(
    (
        "add sub rsub mul addcmul lerp div addcdiv reciprocal cat gelu silu softplus square hypot dist elu "
        "mish leaky_relu _prelu_kernel cumsum"
    ).split()
)
DIVIDES_BY_PROBABILITY = frozenset({"binary_cross_entropy_backward", "div", "reciprocal", "pow", "mul"})
BCE_CLAMP = 2.0**14
"""A slope of BCE above this comes from a probability within 2^-14 of 0 or 1: half has none but 0 and 1 themselves."""
FP16_OVERFLOW = 65520.0
"""From here on rounding to float16 gives inf (IEEE 754-2019, binary16, round to nearest even)."""

MOST_SEGMENTS = 6
"""Segments in trouble whose ops are looked at, first ones: a fault repeats. As many again of those with a census,
where everything was recorded."""


class Kind(Enum):
    """What made the value non-finite."""

    CAST = "cast"
    MATMUL = "matmul"
    REDUCTION = "reduction"
    ELEMENTWISE = "elementwise"
    EXP = "exp"
    MASK = "mask"
    SAFEGUARD = "safeguard"
    SATURATED = "saturated"
    CANCELLED = "cancelled"
    SINGULAR = "singular"
    GRADIENT = "gradient"
    ENTRY = "entry"
    OTHER = "other"


@dataclass(frozen=True)
class Origin:
    """One op at which a segment's trouble began.

    `key` is the op before it that explains it (the constant that vanished, the probability that saturated, the
    difference that cancelled), None where none does. `precision`: half precision has a part in it.
    """

    kind: Kind
    op: Op
    key: Op | None
    flow: SegmentOps
    trouble: Trouble
    precision: bool

    @property
    def step(self) -> int:
        return self.flow.step

    @property
    def forward(self) -> bool:
        """The op computed something; it did not carry in what was bad before."""
        return not self.op.backward and self.kind is not Kind.ENTRY


_cache: WeakKeyDictionary[Signals, tuple[Origin, ...]] = WeakKeyDictionary()


def origins_of(s: Signals) -> tuple[Origin, ...]:
    """The origins of every recorded segment in trouble, in order of (rank, proc, segment, seq)."""
    known = _cache.get(s)
    if known is None:
        troubles = troubles_of(s)
        found = [o for flow in bad_segments(s, troubles) for o in _origins(flow, troubles[_key(flow)])]
        known = _cache[s] = tuple(_without_guesses(found))
    return known


def _without_guesses(origins: list[Origin]) -> Iterator[Origin]:
    """The origins without those of autograd graphs that recorded ops show to be consequences: a graph keeps few values,
    so that the first op known to have failed may stand far behind the one that did."""
    behind: set[tuple[str, str | None, int | None]] = set()
    if any(o.flow.graph for o in origins):
        behind = {
            (later.op, later.file, later.line)
            for o in origins
            if not o.flow.graph
            for later in o.flow.spread(o.op)
            if later.line is not None
        }
        behind -= {(o.op.op, o.op.file, o.op.line) for o in origins if not o.flow.graph}
    for o in origins:
        if not (o.flow.graph and (o.op.op, o.op.file, o.op.line) in behind):
            yield o


def bad_segments(s: Signals, troubles: Mapping[Key, Trouble]) -> Iterator[SegmentOps]:
    """The recorded ops of segments in trouble, the first few of each process."""
    seen: dict[tuple[int, int, bool], int] = {}
    for sample in sampled_segments(s):
        if not sample.bad:
            continue
        key = sample.key
        kept = (*key[:2], sample.level == "census")
        trouble = troubles.get(key)
        taken = seen.get(kept, 0)
        if (
            trouble is None
            or taken >= MOST_SEGMENTS
            or (trouble.searching and not trouble.bad_forward and taken)
        ):
            continue
        flow = load_segment(s, key)
        if flow is not None:
            seen[kept] = taken + 1
            yield flow


_flows: WeakKeyDictionary[Signals, dict[Key, SegmentOps | None]] = WeakKeyDictionary()


def load_segment(s: Signals, key: Key) -> SegmentOps | None:
    """The recorded ops of one segment; None when none were recorded. Those of an autograd graph have the names and
    lines of the census before."""
    known = _flows.setdefault(s, {})
    if key not in known:
        known[key] = _load(s, key)
    return known[key]


def _load(s: Signals, key: Key) -> SegmentOps | None:
    rank, proc, segment = key
    flow = recorded_ops(s, key)
    if flow is None or not flow.graph:
        return flow
    known = s.frame(
        f"SELECT max(segment) AS segment FROM steps WHERE rank = {rank} AND coalesce(proc, 0) = {proc} AND "
        f"segment < {segment} AND level = 'census' AND outcome <> 'abandoned'"
    )["segment"]
    before = None if known.isna().all() else load_segment(s, (rank, proc, int(known.iloc[0])))
    return flow if before is None else named_like(flow, before)


def _key(flow: SegmentOps) -> Key:
    return flow.rank, flow.proc, flow.segment


def _origins(flow: SegmentOps, trouble: Trouble) -> Iterator[Origin]:
    """The origins of one segment. Where its forward went wrong, what backward did is a consequence."""
    forward = list(_candidates(flow, trouble, backward=False))
    if trouble.bad_forward or (forward and not trouble.searching and not trouble.poisoned):
        yield from forward
    if not (trouble.bad_forward and forward):
        # Everything nearer the inputs may overflow on its own as well: the first in backward order tells.
        yield from islice(_candidates(flow, trouble, backward=True), 1)


def _candidates(flow: SegmentOps, trouble: Trouble, *, backward: bool) -> Iterator[Origin]:
    for op in flow.ops:
        if op.backward is not backward or op.phase == "optimizer":
            continue
        if masked_row(flow, op):
            kind, key, precision = Kind.MASK, _mask_of(flow, op), op.from_half is not None
        elif op.born and (mask_constant(op) is not None or op.out_nan or not is_mask(op)):
            kind, key, precision = classify(flow, op)
        elif enters(flow, op):
            kind, key, precision = Kind.ENTRY, None, False
        else:
            continue
        if flow.reached(op) is not None:
            yield Origin(kind, op, key, flow, trouble, precision)


def enters(flow: SegmentOps, op: Op) -> bool:
    """It read non-finite values that no recorded op of the segment wrote."""
    if not op.in_nonfinite or not op.out_nonfinite or op.view:
        return False
    if flow.watched and op.reached is None:
        return False
    writers = flow.writers(op)
    return not any(w is not None and w.out_nonfinite for w in writers) and any(w is None for w in writers)


def _mask_of(flow: SegmentOps, op: Op) -> Op | None:
    return next((a for _, a in flow.ancestors(op) if (a.out_nonfinite or flow.graph) and is_mask(a)), None)


def classify(flow: SegmentOps, op: Op) -> tuple[Kind, Op | None, bool]:
    """(kind, the op that explains it, whether half precision has a part in it) of an op that made non-finite values
    of finite ones."""
    name = functional(op)
    half = op.to_half or op.from_half
    if flow.graph and not op.in_known and not _tells_itself(name, op):
        return Kind.OTHER, None, half is not None
    if op.op in CASTS:
        if op.to_half != "float16" or (op.in_amax or 0.0) < FP16_OVERFLOW:
            return Kind.OTHER, None, half is not None
        maker = next(flow.sources(op), None)
        if not op.backward:
            return Kind.CAST, maker, True
        certain = _certain(flow, maker)
        return (Kind.SATURATED, certain, True) if certain is not None else (Kind.GRADIENT, maker, True)
    if name in AT_ZERO and _at_zero(flow, op):
        return _singular(flow, op)
    by_magnitude = op.to_half is not None and _float32_survives(op) is not False
    if name in EXPONENTIALS or (name in ("pow", "square", "mul") and _power_of_exp(flow, op)):
        return Kind.EXP, None, by_magnitude
    if op.backward and by_magnitude:
        return Kind.GRADIENT, None, True
    if mask_constant(op) is not None:
        return Kind.MASK, op, True
    if name in MATMUL or op.op in MATMUL:
        return Kind.MATMUL, None, by_magnitude
    if name in REDUCTION or op.op in REDUCTION:
        return Kind.REDUCTION, None, by_magnitude
    if name in ELEMENTWISE:
        return Kind.ELEMENTWISE, None, by_magnitude
    if name in SOFTMAX:
        return Kind.MASK, None, half is not None
    return Kind.OTHER, None, by_magnitude


def _float32_survives(op: Op) -> bool | None:
    return None if op.shadow_nonfinite is None else op.shadow_nonfinite < op.out_nonfinite


def _tells_itself(name: str, op: Op) -> bool:
    """What such an op returns says what it got: a negative number, or one beyond the range of exp."""
    return (name in OF_POSITIVE and op.out_nan > 0) or (name in EXPONENTIALS and op.out_nan == 0)


def _certain(flow: SegmentOps, maker: Op | None) -> Op | None:
    """The saturated probability behind a gradient that is too large; BCE backward itself where it is not recorded."""
    if maker is None or functional(maker) not in DIVIDES_BY_PROBABILITY:
        return None
    found = saturated(flow, maker)
    if found is None and maker.op == "binary_cross_entropy_backward" and maker.in_amax and maker.out_amax:
        return maker if maker.out_amax / max(maker.in_amax, 1.0) >= BCE_CLAMP else None
    return found


def _power_of_exp(flow: SegmentOps, op: Op) -> bool:
    made = list(flow.sources(op))
    return bool(made) and all(functional(m) in EXPONENTIALS for m in made)


def _at_zero(flow: SegmentOps, op: Op) -> bool:
    """It failed at a zero, a negative number or a one, not because its result is too large."""
    name = functional(op)
    if _float32_survives(op):
        return False
    if op.out_nan and name in OF_POSITIVE:
        return True
    if name in ("div", "true_divide", "addcdiv"):
        if op.out_nan:
            return True
        below = flow.writers(op)[-1] if op.ins else None
        return below.out_zeros > 0 if below is not None and not below.view else op.in_zeros > 0
    if name in ("pow", "linalg_vector_norm", "norm", "square"):
        exponent = op.scalars[0] if op.scalars else 1.0
        if name == "pow" and not op.scalars and len(op.ins) > 1:
            # The exponent is a tensor; it or the base holds the least value.
            exponent = 1.0 if op.in_amin is None else op.in_amin
        return (op.in_zeros > 0 and exponent < 0.0) or (
            op.in_amin is not None and op.in_amin < 0.0 and op.out_nan > 0
        )
    if name in ("acos", "asin", "atanh", "logit"):
        return op.in_amax is not None and op.in_amax >= 1.0
    return op.in_zeros > 0 or (op.in_amin is not None and op.in_amin < 0.0)


def _singular(flow: SegmentOps, op: Op) -> tuple[Kind, Op | None, bool]:
    name = functional(op)
    argument = len(op.ins) - 1 if name in ("div", "true_divide", "addcdiv") and len(op.ins) > 1 else None
    if name in OF_POSITIVE and (op.out_nan or (op.in_amin is not None and op.in_amin < 0.0)):
        found = cancelled(flow, op, argument)
        return (Kind.CANCELLED, found, True) if found is not None else (Kind.SINGULAR, None, False)
    lost = safeguard_lost(flow, op, argument)
    if lost is not None:
        return Kind.SAFEGUARD, lost, True
    certain = saturated(flow, op, argument)
    if certain is not None:
        return Kind.SATURATED, certain, True
    found = cancelled(flow, op, argument)
    if found is not None:
        return Kind.CANCELLED, found, True
    return Kind.SINGULAR, None, op.from_half is not None
