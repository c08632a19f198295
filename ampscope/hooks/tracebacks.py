"""Tracebacks as they would be without ampscope: our frames, and the detours that torch takes because of our hooks,
are left out. Works on the traceback objects only; the exception itself stays what it is.
"""

from __future__ import annotations

import dis
import functools
import linecache
import os
from types import CodeType, TracebackType
from typing import Any

import torch
from torch.nn.modules import module as module_file

from ampscope.hooks.patches import INVISIBLE_FILE

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MODULE = module_file.__file__
_OPS = torch._ops.__file__
_DISPATCH = os.path.join(_OURS, "hooks", "dispatch.py")
_SOMEBODY = functools.update_wrapper.__code__
"""Stands for the code of a hook that has none of its own, such as a functools.partial."""

_FAST_PATH = "return forward_call(*args, **kwargs)"
_OWN_HOOKS = (
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks",
    "_forward_pre_hooks",
)


def clean(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    """`trace` without the marks of ampscope; the causes and contexts of `error` are cleaned in place."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error.__cause__, error.__context__]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = _cleaned(one.__traceback__)
            todo += [one.__cause__, one.__context__]
    cleaned = _cleaned(trace)
    error.__traceback__ = cleaned
    return cleaned


def is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(_OURS) or code.co_filename == INVISIBLE_FILE


def _cleaned(trace: TracebackType | None) -> TracebackType | None:
    entries = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    kept: list[tuple[TracebackType, int, int]] = []
    below_dispatch = False
    for position, entry in enumerate(entries):
        code = entry.tb_frame.f_code
        if is_ours(code):
            below_dispatch = below_dispatch or code.co_filename == _DISPATCH
            continue
        if below_dispatch and code.co_filename == _OPS:
            continue
        below_dispatch = False
        if code.co_filename == _MODULE and code.co_name == "inner" and kept and _only_for_us(kept[-1][0]):
            continue
        lasti, line = entry.tb_lasti, entry.tb_lineno
        following = entries[position + 1].tb_frame.f_code if position + 1 < len(entries) else None
        if following is not None and following.co_name == "inner" and following.co_filename == _MODULE:
            lasti, line = _fast_path(code) if _only_for_us(entry) else (lasti, line)
        kept.append((entry, lasti, line))
    result: TracebackType | None = None
    for entry, lasti, line in reversed(kept):
        result = TracebackType(result, entry.tb_frame, lasti, line)
    return result


def _only_for_us(entry: TracebackType) -> bool:
    """`Module._call_impl` took its slow path for our global hooks and not for hooks of the user's."""
    if entry.tb_frame.f_code.co_name != "_call_impl":
        return False
    module: Any = entry.tb_frame.f_locals.get("self")
    theirs = any(getattr(module, name, None) for name in _OWN_HOOKS)
    return not theirs and not has_foreign_hook()


def has_foreign_hook() -> bool:
    """Whether somebody else has registered a hook for all modules."""
    return any(
        not is_ours(getattr(getattr(hook, "__func__", hook), "__code__", _SOMEBODY))
        for registry in (
            module_file._global_forward_hooks,
            module_file._global_forward_pre_hooks,
            module_file._global_backward_hooks,
            module_file._global_backward_pre_hooks,
        )
        for hook in registry.values()
    )


@functools.cache
def _fast_path(code: CodeType) -> tuple[int, int]:
    """(instruction offset, line) of the call in `_call_impl` that a module without hooks makes."""
    line = code.co_firstlineno
    while _FAST_PATH not in (text := linecache.getline(code.co_filename, line)):
        line += 1
        if not text:
            return 0, code.co_firstlineno
    for instruction in dis.get_instructions(code):
        start = instruction.positions.lineno if instruction.positions is not None else None
        if start == line and instruction.opname.startswith("CALL"):
            return instruction.offset, line
    return 0, line
