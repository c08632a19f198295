"""Casts that are made again and again: the same weight for one backward, the same result within one step.

Follows recorded data flow; how much of that is too much is for the rule to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ampscope.diagnose.census import Census, censuses
from ampscope.diagnose.opflow import Op
from ampscope.diagnose.signals import Signals


@dataclass(frozen=True)
class Recast:
    """One source that was cast `times` times where once would do, for one backward of one segment.

    `weight` is the name of the parameter, None for a result of the step. `avoidable_s` is host time under the census
    of all casts but the first, and of their backward.
    """

    segment: int
    step: int
    weight: str | None
    times: int
    by_user: bool
    first: Op
    avoidable_s: float
    avoidable_bytes: float


@dataclass(frozen=True)
class Casting:
    """The casts of one census: all of them, and those made again. Times are host seconds of all ops."""

    segment: int
    step: int
    total_s: float
    cast_s: float
    recasts: tuple[Recast, ...]

    @property
    def avoidable(self) -> float:
        """Share of the host time of all ops that casts made again take."""
        return sum(r.avoidable_s for r in self.recasts) / self.total_s if self.total_s else 0.0


def castings_of(s: Signals, least: int) -> tuple[Casting, ...]:
    """The last censuses with their casts, and the sources among them that were cast at least `least` times."""
    return tuple(_casting(c, least) for c in censuses(s))


def _casting(census: Census, least: int) -> Casting:
    flow, seconds = census.flow, census.seconds
    casts = [op for op in flow.ops if op.cast is not None]
    backward = [op for op in casts if op.backward]
    passes = _passes(flow.ops)
    recasts = []
    for weight, made, needed in _repeated(census, casts, passes):
        if len(made) < least:
            continue
        back = _backward_of(made, backward)
        if not needed and sum(passes[op.seq] == passes[made[0].seq] for op in back) < len(made):
            continue
        again = [*made[1:], *(back[len(back) // len(made) :] if len(back) >= len(made) else [])]
        recasts.append(
            Recast(
                segment=flow.segment,
                step=flow.step,
                weight=weight,
                times=len(made),
                by_user=all(op.cast == "user" for op in made),
                first=made[0],
                avoidable_s=sum(seconds[op.seq] for op in again),
                avoidable_bytes=sum(census.bytes[op.seq] for op in again),
            )
        )
    total, cast = sum(seconds.values()), sum(seconds[op.seq] for op in casts)
    return Casting(flow.segment, flow.step, total, cast, tuple(recasts))


def _repeated(
    census: Census, casts: Sequence[Op], passes: Mapping[int, int]
) -> Iterator[tuple[str | None, list[Op], bool]]:
    """(weight, casts to half of one source for one backward in order, whether backward reads what they gave). Casts
    that backward does not read belong to evaluation, or to a bias or the weight of a first layer, whose gradient has to
    be cast back as often; those of a part of a tensor (a time step) are no repetition."""
    flow = census.flow
    needed = {i for op in flow.ops if op.backward for i in op.ins}
    groups: dict[tuple[object, ...], list[Op]] = {}
    for op in casts:
        if op.backward or op.to_half is None or not op.ins:
            continue
        read = bool(set(op.outs) & needed)
        if not read and op.cast_source is None:
            continue
        which = passes[op.seq]
        if op.cast_source is not None:
            key: tuple[object, ...] = (op.cast_source, op.phase, which, op.to_half, read)
        else:
            writer = flow.writer(op.ins[-1], op)
            if writer is None or writer.out_shapes[:1] != op.in_shapes[-1:]:
                continue
            key = (op.ins[-1], writer.seq, op.phase, which, op.to_half, read)
        groups.setdefault(key, []).append(op)
    for key, made in groups.items():
        yield made[0].cast_source, made, bool(key[-1])


def _passes(ops: Sequence[Op]) -> dict[int, int]:
    """By `seq`: how many passes of the autograd engine had ended before an op. Every pass needs casts of its own, those
    of `autograd.grad` (per-sample gradients, penalties, attacks on the input) as well."""
    ended, within = 0, False
    found = {}
    for op in ops:
        if op.phase == "forward" and within:
            ended += 1
        within = op.phase != "forward" and (within or op.backward)
        found[op.seq] = ended
    return found


def _backward_of(made: Sequence[Op], backward: Sequence[Op]) -> list[Op]:
    """The casts of gradients back to float32 that belong to casts of one source: same module and shape."""
    module, shape = made[0].module, made[0].out_shapes[:1]
    return [
        op for op in backward if op.module == module and op.out_shapes[:1] == shape and op.to_half is None
    ]


def contexts(s: Signals) -> Counter[tuple[str | None, int | None]]:
    """How often, at most, autocast was entered within one segment, by the user's line."""
    most: Counter[tuple[str | None, int | None]] = Counter()
    here: Counter[tuple[int, int, int, str | None, int | None]] = Counter()
    for c in s.calls:
        if c.call == "autocast.enter":
            key = (c.rank, c.proc, c.segment, c.file, c.line)
            here[key] = int(c.value or 0) if c.detail == "repeated" else here[key] + 1
            most[c.place] = max(most[c.place], here[key])
    return most
