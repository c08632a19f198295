"""What stood before an op that failed at a zero, a negative number or a masked row: a constant that its dtype cannot
hold, a probability that saturated, a difference that cancelled, a mask. Follows recorded data flow, never names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from ampscope.diagnose.opflow import COPIES, Op, SegmentOps
from ampscope.diagnose.transitions import MASKS

SOFTMAX = frozenset(
    "_softmax _log_softmax _safe_softmax softmax log_softmax logsumexp _masked_softmax".split()
)
SQUASHING = frozenset({"sigmoid", "_softmax", "softmax", "_safe_softmax", "hardsigmoid"})
BOUNDING = frozenset({"clamp", "clamp_min", "clamp_max", "maximum", "minimum", "hardtanh", "clip"})
SUBTRACTING = frozenset("sub rsub add addmm baddbmm addcmul addbmm addmv _euclidean_dist var".split())
OFFSETTING = frozenset("add sub rsub addcdiv fill full scalar_tensor native_layer_norm".split())
PASSING = frozenset(
    (
        "sqrt rsqrt pow square mul div sum mean linalg_vector_norm norm relu exp index_add scatter_add "
        "scatter_reduce prod cumprod reciprocal tanh log threshold_backward neg abs"
    ).split()
)
"""Ops that carry a zero, or the lack of a safeguard, on to what divides by it."""

SQUARES = frozenset("pow square sum mean mm bmm linalg_vector_norm var".split())

NEAR = 8
"""How many ops back a safeguard still belongs to the op that fails."""

_UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
_FLUSHED = {"float16": 2.0**-25, "bfloat16": 2.0**-134}
"""At or below these magnitudes a number rounds to zero (IEEE 754-2019, half of the smallest subnormal)."""


def functional(op: Op) -> str:
    """Name of an op without the underscore of its in-place form."""
    return op.op.rstrip("_") if not op.op.startswith("_") else op.op


def rounds_away(constant: float, dtype: str, *, bound: bool) -> bool:
    """Whether `dtype` turns a nonzero constant into 0, or (a bound of a clamp, an offset from one) into 1."""
    if constant == 0.0 or not math.isfinite(constant):
        return False
    if abs(constant) <= _FLUSHED[dtype]:
        return True
    away = abs(abs(constant) - 1.0)
    unit = _UNIT[dtype] / 2 if abs(constant) < 1.0 else _UNIT[dtype]
    return bound and 0.0 < away <= unit


def constants(flow: SegmentOps, op: Op) -> Iterator[float]:
    """The Python numbers that an op got, and the values of 0-d tensors that were made of one."""
    yield from op.scalars
    for shape, writer in zip(op.in_shapes, flow.writers(op), strict=False):
        if (
            shape == ""
            and writer is not None
            and writer.op in ("scalar_tensor", "lift_fresh_copy", "full", "_to_copy")
        ):
            yield from writer.scalars or ((writer.out_amax,) if writer.out_amax is not None else ())


def vanished_constant(flow: SegmentOps, op: Op) -> float | None:
    """A constant of `op` that the half dtype of its result cannot hold, when the result shows it: it holds the zero,
    or the one, that the constant was to keep away. None otherwise."""
    name, dtype = functional(op), op.to_half
    if dtype is None or name not in OFFSETTING | BOUNDING:
        return None
    for c in constants(flow, op):
        if rounds_away(c, dtype, bound=name in BOUNDING or name == "rsub"):
            zeros = op.out_zeros > 0 or (flow.graph and op.out_amax is None and op.in_zeros > 0)
            shows = zeros if abs(c) < 0.5 else (op.out_amax == 1.0 or zeros)
            if shows:
                return c
    return None


def _upstream(
    flow: SegmentOps, op: Op, through: Callable[[Op], bool], argument: int | None = None
) -> Iterator[Op]:
    """The ops before `op` that are reached through ops for which `through` holds, nearest first."""
    writers = flow.writers(op)
    front = [(1, w) for i, w in enumerate(writers) if w is not None and argument in (None, i)]
    seen: set[int] = {op.seq}
    while front:
        distance, here = front.pop(0)
        if here.seq in seen or distance > NEAR:
            continue
        seen.add(here.seq)
        yield here
        if through(here):
            front.extend((distance + 1, w) for w in flow.writers(here) if w is not None)


def _carries(op: Op) -> bool:
    return op.view or functional(op) in COPIES | PASSING | BOUNDING | OFFSETTING


def safeguard_lost(flow: SegmentOps, op: Op, argument: int | None = None) -> Op | None:
    """The nearest op before `op` whose constant vanished in half."""
    return next(
        (u for u in _upstream(flow, op, _carries, argument) if vanished_constant(flow, u) is not None), None
    )


def saturated(flow: SegmentOps, op: Op, argument: int | None = None) -> Op | None:
    """The sigmoid or softmax in half before `op` whose probabilities are exactly 0 or 1."""

    def hands_on(u: Op) -> bool:
        return functional(u) in COPIES | BOUNDING | {"add", "sub", "rsub", "mul", "pow"}

    for u in _upstream(flow, op, hands_on, argument):
        if functional(u) in SQUASHING and u.to_half and (u.out_zeros or u.out_amax == 1.0):
            return u
    return None


def cancelled(flow: SegmentOps, op: Op, argument: int | None = None) -> Op | None:
    """The difference in half before `op` whose rounding made a result zero or negative that should be positive.

    What is negative by rounding is small beside the operands: within a few units in the last place of them.
    """

    def hands_on(u: Op) -> bool:
        return functional(u) in COPIES | BOUNDING | {"relu", "mul", "div", "sum", "mean", "sqrt", "add"}

    for u in _upstream(flow, op, hands_on, argument):
        if not _subtracts(u) or u.to_half is None or (u.in_amax is None and not flow.graph):
            continue
        lowest = min(
            [r.in_amin for r in flow.readers(u) if not r.backward and r.in_amin is not None], default=None
        )
        if flow.graph and lowest is None:
            return u
        if lowest is not None and lowest < 0.0:
            if -lowest <= 16 * _UNIT[u.to_half] * (u.in_amax or 0.0):
                return u
        elif u.out_zeros and (not op.backward or _of_squares(flow, u)):
            return u
    return None


def _of_squares(flow: SegmentOps, op: Op) -> bool:
    """Its operands are squares, products or means: a formula that cancels, not two things that are equal."""
    made = _upstream(flow, op, lambda u: functional(u) in COPIES | {"add", "sub", "mul"})
    return any(functional(u) in SQUARES or (functional(u) == "mul" and not u.scalars) for u in made)


def _subtracts(op: Op) -> bool:
    name = functional(op)
    if name not in SUBTRACTING:
        return False
    if name in ("sub", "rsub", "_euclidean_dist", "var"):
        return True
    mixed = op.in_amin is not None and op.in_amin < 0.0
    return mixed or any(c < 0.0 for c in op.scalars)


def births(flow: SegmentOps, op: Op) -> list[Op]:
    """The recorded ops that made the non-finite values which `op` read, out of finite ones."""
    found: list[Op] = []
    seen: set[int] = {op.seq}
    front = [w for w in flow.writers(op) if w is not None and w.out_nonfinite]
    while front:
        here = front.pop(0)
        if here.seq in seen:
            continue
        seen.add(here.seq)
        before = [w for w in flow.writers(here) if w is not None and w.out_nonfinite]
        if before and here.in_nonfinite:
            front.extend(before)
        else:
            found.append(here)
    return found


def is_mask(op: Op) -> bool:
    """It writes -inf on purpose, or multiplies a mask by a constant that half cannot hold."""
    return (
        functional(op) in {m.rstrip("_") for m in MASKS} or mask_constant(op) is not None or _log_of_mask(op)
    )


def _masks(op: Op) -> bool:
    """In a graph: an op that writes a mask, or adds to the scores something that needs no gradient."""
    return is_mask(op) or (functional(op) == "add" and len(op.in_dtypes) == 1 and op.out_amax is None)


def mask_constant(op: Op) -> float | None:
    """The negative constant beyond the half range with which an op masks; None when it does not."""
    if op.to_half != "float16" or functional(op) not in ("mul", "add", "sub", "rsub", "masked_fill", "where"):
        return None
    far = [c for c in op.scalars if math.isfinite(c) and c <= -65504.0]
    return far[0] if far else None


def _log_of_mask(op: Op) -> bool:
    """The logarithm of a mask of zeros and ones, to be added to scores."""
    return functional(op) == "log" and op.in_amax == 1.0 and not op.out_nan and op.out_amax == 0.0


def makes_nan(flow: SegmentOps, op: Op) -> bool:
    """Its result holds NaN, and what it read held infinities at most."""
    if not op.out_nan:
        return False
    return all(w is None or not w.out_nan for w in flow.writers(op))


def masked_row(flow: SegmentOps, op: Op) -> bool:
    """NaN out of a softmax (or of the subtraction of the largest value) over infinities that are masks only."""
    if flow.graph and functional(op) in SOFTMAX:
        return op.reached is not None and op.out_nan > 0 and any(_masks(a) for _, a in flow.ancestors(op))
    if not op.in_nonfinite or not makes_nan(flow, op):
        return False
    made = births(flow, op)
    if functional(op) in SOFTMAX:
        return all(is_mask(b) for b in made)
    return functional(op) == "sub" and bool(made) and all(is_mask(b) for b in made)
