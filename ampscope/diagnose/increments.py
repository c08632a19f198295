"""Half-precision values that are read, changed a little and written back: which of them are running averages, which
running sums, and how many of their increments were rounded away. Follows recorded data flow, never names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from ampscope.diagnose.census import Census, censuses
from ampscope.diagnose.opflow import COPIES, Op, SegmentOps, elements
from ampscope.diagnose.signals import Signals, quoted

ULP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Spacing of the values of a half format at 1."""

_RANDOM = frozenset(
    {"bernoulli", "rand", "rand_like", "randint", "randint_like", "random", "uniform", "randn", "randn_like"}
)
_BITS = frozenset(
    {"bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__rshift__", "bitwise_right_shift", "__lshift__"}
)
_DEPTH = 4
"""How many ops deep the expression of one update is looked at: decay, product, difference, sum."""


@dataclass(frozen=True)
class Write:
    """One op that wrote a half-precision value which existed before the segment: its own old value plus something.

    `tree` is the user's expression that ends in `op`, `key` the storage of the old value, `absorbed` the elements that
    kept their value although the increment was not zero (None where the op does not tell), `weight` the share of the
    new value in a running average (None: it is no average). `chained`: it goes on from the write before it in the same
    segment, by the same line.
    """

    flow: SegmentOps
    op: Op
    tree: tuple[Op, ...]
    key: int
    dtype: str
    numel: int
    absorbed: int | None
    weight: float | None
    chained: bool

    @property
    def place(self) -> tuple[str | None, int | None, str | None]:
        return self.op.file, self.op.line, self.op.function

    @property
    def rounds_once(self) -> bool:
        """A single op of the expression rounds to half: what it absorbed is all that was lost."""
        return sum(p.to_half is not None and not p.view and p.op not in COPIES for p in self.tree) == 1

    @property
    def repaired(self) -> bool:
        """Rounding is random, or what it lost is carried along."""
        return _repaired(self.flow, self.op, self.tree, self.key)

    @property
    def trained(self) -> bool:
        """Backward reads what it wrote."""
        return any(later.backward for later in self.flow.readers(self.op))

    @property
    def asked(self) -> int:
        """Elements that had an increment, at least: those that are zero nowhere in the arguments."""
        return max(self.absorbed or 0, self.numel - self.op.in_zeros)


def name_of(op: Op) -> str:
    """Name of an op without the marks of its foreach and in-place forms."""
    return op.op.removeprefix("_foreach_").rstrip("_")


def in_place(op: Op) -> bool:
    return op.op.endswith("_")


_cache: WeakKeyDictionary[Signals, tuple[Write, ...]] = WeakKeyDictionary()


def writes_of(s: Signals) -> tuple[Write, ...]:
    """The writes of the last censuses, outside of the optimizer and of backward, in order."""
    known = _cache.get(s)
    if known is None:
        known = _cache[s] = tuple(w for c in censuses(s) for w in _writes(c))
    return known


def _writes(census: Census) -> Iterator[Write]:
    sums: dict[int, Op] = {}
    for op in census.flow.ops:
        if op.phase in ("forward", "other", "recompute"):
            write = _write(census, op, sums)
            if write is not None:
                yield write


# -- one write -------------------------------------------------------------------------------------------------------

_SUMS = frozenset({"add", "sub", "rsub"})
_WRITERS = _SUMS | {"lerp", "copy", "addcmul"}


def _write(census: Census, op: Op, sums: dict[int, Op]) -> Write | None:
    """`op` as a write of a value from outside the segment; None when it is none."""
    flow, name = census.flow, name_of(op)
    if (
        name not in _WRITERS
        or not op.outs
        or op.to_half is None
        or any(d != op.to_half for d in op.out_dtypes)
    ):
        return None
    tree = _expression(flow, op)
    key = _kept(flow, op, tree, sums)
    if key is None:
        return None
    chained = key in sums and sums[key].line == op.line
    if name in _SUMS:
        sums[op.outs[0]] = op
    weight = _weight(op, tree, key)
    if weight is None and name not in _SUMS:
        return None
    return Write(
        flow, op, tree, key, str(op.to_half), sum(elements(x) for x in op.out_shapes), census.absorbed.get(op.seq),
        weight, chained,
    )  # fmt: skip


def _kept(flow: SegmentOps, op: Op, tree: tuple[Op, ...], sums: dict[int, Op]) -> int | None:
    """Storage of the old value that `op` goes on from: in half, and made before the segment or by the same sum."""
    olds = op.outs[:1] if in_place(op) else op.ins[:2]
    local = {o.seq for o in tree}
    for place, key in enumerate(olds):
        if not key or (not in_place(op) and place < len(op.in_dtypes) and op.in_dtypes[place] != op.to_half):
            continue
        if key in sums:
            return key
        first = flow.writer(key, op)
        while first is not None and first.seq in local and key in first.outs and key in first.ins:
            first = flow.writer(key, first)
        if first is None:
            return key
    # A weighted sum that replaces the old value: decay * old + (1 - decay) * new.
    for part in tree:
        decays = (
            name_of(part) == "mul" and part.scalars and 0.5 < part.scalars[0] < 1.0 and not in_place(part)
        )
        if decays and part.from_half == op.to_half and flow.writer(part.ins[0], part) is None:
            return part.ins[0]
    return None


def _expression(flow: SegmentOps, op: Op) -> tuple[Op, ...]:
    """The ops of the user's expression that ends in `op`: what made its arguments, in the same function."""
    found = [op]
    front = [(0, op)]
    while front:
        depth, here = front.pop(0)
        if depth >= _DEPTH:
            continue
        for writer in flow.writers(here):
            if (
                writer is None
                or writer in found
                or writer.function != op.function
                or writer.phase != op.phase
            ):
                continue
            found.append(writer)
            front.append((depth + 1, writer))
    return tuple(found)


def _weight(op: Op, tree: tuple[Op, ...], key: int) -> float | None:
    """Share of the new value in a running average of the storage `key`; None when the expression is no average."""
    holds = {key}
    for part in sorted(tree, key=lambda o: o.seq):
        if (part.view or part.op in COPIES) and holds & set(part.ins[:1]):
            holds |= set(part.outs)
    for part in tree:
        if (
            name_of(part) == "lerp"
            and part.scalars
            and holds & set(part.ins[:1])
            and 0.0 < part.scalars[0] < 0.5
        ):
            return part.scalars[0]
    decays = [p.scalars[0] for p in tree if name_of(p) == "mul" and p.scalars and holds & set(p.ins)]
    factors = [
        c for p in tree if name_of(p) in ("add", "sub", "mul", "addcmul") for c in p.scalars if 0.0 < c < 0.5
    ]
    factors += [1.0 / c for p in tree if name_of(p) == "div" for c in p.scalars[:1] if c > 2.0]
    for decay in decays:
        for factor in factors:
            if 0.5 < decay < 1.0 and abs(decay + factor - 1.0) <= 1e-3 * factor:
                return factor
    towards = any(name_of(p) in ("sub", "rsub") and holds & set(p.ins) for p in tree if p is not op)
    return factors[0] if towards and factors and name_of(op) in ("add", "sub", "copy") else None


def _repaired(flow: SegmentOps, op: Op, tree: tuple[Op, ...], key: int) -> bool:
    """Whether rounding is random, or a later op takes the difference of the new value and what it was made of."""
    if any(name_of(p) in _RANDOM | _BITS for p in tree):
        return True
    before = {key} - (set(op.outs) if in_place(op) else set())
    for earlier in flow.ops:
        if earlier.seq >= op.seq:
            break
        if not earlier.view and {key, *before} & set(earlier.ins) and not {key} & set(earlier.outs):
            before |= set(earlier.outs)
    after = set(op.outs)
    for later in flow.readers(op):
        if later.function != op.function:
            continue
        if later.op in COPIES and not set(later.outs) & before:
            after |= set(later.outs)
        if name_of(later) in _SUMS and before & set(later.ins) and after & set(later.ins):
            return True
    return False


# -- several writes --------------------------------------------------------------------------------------------------


def groups(writes: Iterable[Write]) -> list[list[Write]]:
    """The writes of one line, function and dtype of one process, in order."""
    found: dict[tuple[object, ...], list[Write]] = {}
    for w in writes:
        key = (w.flow.rank, w.flow.proc, w.op.file, w.op.line, w.op.function, w.dtype)
        found.setdefault(key, []).append(w)
    return list(found.values())


def lost_share(writes: Sequence[Write]) -> float | None:
    """Share of the increments that were rounded away; None where no op tells."""
    known = [w for w in writes if w.absorbed is not None]
    asked = sum(w.asked for w in known)
    return sum(w.absorbed or 0 for w in known) / asked if asked else None


def lost_query(write: Write) -> str:
    """SQL for the share of elements that kept their value at the line of a write, over all censuses."""
    numel = "list_sum(list_transform(out_shapes, lambda d: CASE WHEN d = '' THEN 1 ELSE list_product(list_transform("
    numel += "string_split(d, 'x'), lambda n: CAST(n AS DOUBLE))) END))"
    at = f"line = {write.op.line}" if write.op.line is not None else "line IS NULL"
    return (
        f"SELECT sum(absorbed) / sum(greatest(absorbed, {numel} - coalesce(in_zeros, 0))) FROM ops WHERE {at} AND "
        f"file IS NOT DISTINCT FROM {quoted(write.op.file)} AND op = 'aten::{write.op.op}' AND phase = "
        f"'{write.op.phase}' AND absorbed IS NOT NULL"
    )
