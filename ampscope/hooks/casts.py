"""Tells the casts that autocast inserts from those that the user wrote."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType

import torch
from torch import _C

AUTOCAST, USER, PROMOTION = "autocast", "user", "promotion"

Site = tuple[int, int, str]

_AUTOCAST_SOURCE = torch.amp.autocast_mode.__file__
_ENGINE_SOURCE = torch.autograd.graph.__file__
_DISPATCH = "__torch_dispatch__"
_TORCH = os.path.dirname(torch.__file__)
_WRAPPERS = (os.path.join(_TORCH, "_compile.py"), os.path.join(_TORCH, "_dynamo", "eval_frame.py"))
"""torch keeps Dynamo out of the handlers of modes by frames of its own, between the handler and its caller."""


def call_site() -> Site | None:
    """The instruction of Python code that this dispatch goes back to: (id of its frame, its offset, its file).

    Frames of dispatch handlers (ours, and those of modes that the user put above) are looked through. None
    where no Python code runs below the dispatcher (a thread of the autograd engine).
    """
    frame: FrameType | None = sys._getframe(1)
    site: FrameType | None = frame
    while frame is not None:
        if frame.f_code.co_name == _DISPATCH:
            site = frame.f_back
        frame = frame.f_back
    while site is not None and site.f_code.co_filename in _WRAPPERS:
        site = site.f_back
    return None if site is None else (id(site), site.f_lasti, site.f_code.co_filename)


class CastLabels:
    """One per thread. Feed it every op in order.

    Autocast casts the arguments of an op inside the call of that op, so that cast and op come from one and the
    same instruction of one Python frame; a cast that the user wrote is an instruction of its own. Whose a cast
    is can therefore be told when the next op is known.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[Site | None, Callable[[str], None]]] = []

    def cast(self, label: Callable[[str], None], backward_of: str | None) -> None:
        """A cast was dispatched: `label` is called with whose it is, now or at the next op. `backward_of` is
        the label of the cast that the running autograd node belongs to, if it belongs to one."""
        site = call_site()
        if self._pending and self._pending[-1][0] != site:
            self.flush()
        if site is None or site[2] == _ENGINE_SOURCE:
            label(backward_of or PROMOTION)
        elif site[2] == _AUTOCAST_SOURCE:
            label(AUTOCAST)  # custom_fwd(cast_inputs=...)
        elif autocast_on():
            self._pending.append((site, label))
        else:
            label(USER)

    def other_op(self) -> None:
        """An op that is not a cast was dispatched."""
        if not self._pending:
            return
        site = call_site()
        for seen, label in self._pending:
            label(AUTOCAST if seen == site else USER)
        self._pending.clear()

    def flush(self) -> None:
        """No op will follow: what is pending was written by the user."""
        for _, label in self._pending:
            label(USER)
        self._pending.clear()


def autocast_on() -> bool:
    """Whether autocast is on for any device type, asked from inside a dispatch mode (whose own thread state has
    it excluded)."""
    with _C._RestorePythonTLSSnapshot():  # type: ignore[attr-defined]
        return bool(_C._is_any_autocast_enabled())
