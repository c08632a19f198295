"""Which line of the user's program is running: a walk over frames. Reads no source file, keeps no frame."""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass, field
from types import FrameType

import torch

from ampscope.hooks.written import half_casts

_NEVER, _LIBRARY, _USER = 0, 1, 2

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")})
_ENGINE = os.path.join(_TORCH, "autograd", "graph.py")

_KINDS: dict[str, int] = {}
_PLACES: dict[tuple[str, int, str], Place] = {}


@dataclass(frozen=True)
class Place:
    """A line of a source file, the qualified name of the function that it is in, and how many casts to float16 are
    written on that line."""

    file: str
    line: int
    function: str
    half_casts: int = field(default=0, compare=False)


def user_place(skip: int = 0, within_backward: bool = False) -> Place | None:
    """The innermost frame of the user's own code; failing that, of an installed library other than torch.

    Frames of torch, ampscope and the standard library never count. `skip` leaves out that many callers.
    `within_backward` stops at the call that runs the autograd engine: inside a backward it finds a custom
    `Function.backward`, a hook or a recomputed forward, and not the line that called `backward()`.
    None on a thread that runs none of it (the autograd threads of a CUDA device).
    """
    frame: FrameType | None = sys._getframe(skip + 1)
    library: FrameType | None = None
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        kind = _KINDS.get(name)
        if kind is None:
            kind = _kind(name, frame)
        if kind == _USER:
            return _place(frame)
        if kind == _LIBRARY:
            library = library or frame
        elif within_backward and code.co_name == "_engine_run_backward" and name == _ENGINE:
            break
        frame = frame.f_back
    return None if library is None else _place(library)


def user_files() -> list[str]:
    """The files of the user's own code that a call was found in so far, as the interpreter names them."""
    return [name for name, kind in list(_KINDS.items()) if kind == _USER]


def _place(frame: FrameType) -> Place:
    code = frame.f_code
    function = getattr(code, "co_qualname", code.co_name)
    key = (code.co_filename, frame.f_lineno, function)
    place = _PLACES.get(key)
    if place is None:
        place = _PLACES[key] = Place(*key, half_casts=half_casts(code, frame.f_lineno))
    return place


def _kind(name: str, frame: FrameType) -> int:
    if name in ("<string>", "<stdin>"):
        # `python -c` and stdin scripts, but also code that dataclasses and namedtuple generate.
        return _USER if frame.f_globals.get("__name__") == "__main__" else _NEVER
    if "inductor_ops" in frame.f_globals and "AsyncCompile" in frame.f_globals:
        kind = _NEVER  # code that Inductor wrote
    elif name.startswith((_TORCH, _OURS, "<frozen ", "<eval_with_key>", "<@")):
        kind = _NEVER
    elif f"{os.sep}site-packages{os.sep}" in name or f"{os.sep}dist-packages{os.sep}" in name:
        kind = _LIBRARY
    elif name.startswith(_STDLIB):
        kind = _NEVER
    else:
        kind = _USER
    _KINDS[name] = kind
    return kind
