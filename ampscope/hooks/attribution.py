"""Which module and line a backward op belongs to: joins autograd nodes to the forward op that made them by autograd's
sequence numbers. Reads counters only.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch import _C

from ampscope.hooks.source import Place

ACCUMULATE_GRAD = 2**64 - 1
"""Sequence number of AccumulateGrad nodes: they run as soon as they can and belong to no forward op."""

_CAPACITY = 200_000


@dataclass
class Origin:
    """The forward op that made a node. `cast` is filled in when it is known (see casts)."""

    op: str
    module: str | None
    place: Place | None
    cast: str | None = None


class Attribution:
    """Call `forward_op` at the start of every dispatched op, in order, on the thread that dispatches it.

    A dispatch mode runs after autograd made the node of the op, so the counter has moved on by then: the node's
    number is the counter less one. It belongs to the first op dispatched after the counter moved; later ones
    (the inner ops of a composite kernel, of a custom Function, of an op without a node) join the same node.
    Numbers count per thread, and a node does not tell its thread: where two threads have used a number, the
    calling thread's is taken, else the one that was registered last.
    """

    def __init__(self) -> None:
        self._counters: dict[int, int] = {}
        self._origins: dict[int, dict[int, Origin]] = {}

    def start(self) -> None:
        """Begin on this thread: nodes made before now are unknown."""
        self._counters[threading.get_ident()] = _C._autograd._get_sequence_nr()

    def forward_op(self, origin: Origin) -> bool:
        """Register `origin` for the node made just before; False when no node was made since the last call."""
        thread = threading.get_ident()
        counter = _C._autograd._get_sequence_nr()
        if self._counters.get(thread, 0) == counter:
            return False
        self._counters[thread] = counter
        origins = self._origins.setdefault(thread, {})
        origins[counter - 1] = origin
        if len(origins) > _CAPACITY:
            for number in list(islice(origins, _CAPACITY // 2)):
                del origins[number]
        return True

    def of_running_node(self) -> Origin | None:
        """Origin of the autograd node that this thread is evaluating; None outside backward or when unknown."""
        node = _C._current_autograd_node()
        return None if node is None else self.of(node)

    def of(self, node: Any) -> Origin | None:
        number = node._sequence_nr()
        if number == ACCUMULATE_GRAD:
            return None
        own = self._origins.get(threading.get_ident())
        if own is not None and number in own:
            return own[number]
        for origins in reversed(self._origins.values()):
            if number in origins:
                return origins[number]
        return None
