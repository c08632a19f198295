"""Calls an op from inside a dispatch mode as the dispatcher would have called it without one, where torch by itself
does not: the state of autocast for ops that are made of other ops, numbers that stand for tensors, version counters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import _C
from torch.overrides import has_torch_function

from ampscope.hooks.quiet import quiet

_MADE_OF_OTHERS = frozenset(
    f"aten::{name}"
    for name in (
        "_transformer_encoder_layer_fwd",
        "_native_multi_head_attention",
        "_triton_multi_head_attention",
        "_trilinear",
    )
)
"""Ops of aten that no autocast op is made of, and whose kernels dispatch ops that autocast knows."""

_LEAF_NAMESPACES = frozenset(("aten", "prim", "prims", "profiler", "inductor", "c10d", "_c10d_functional"))

_WRAPPED = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}

_autocast_keys: dict[str, Any] = {}
_Call = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_ways: dict[Any, _Call] = {}


def redispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`func(*args, **kwargs)` for an OpOverload; its own exceptions pass."""
    way = _ways.get(func)
    if way is None:
        way = _ways[func] = _way(func)
    return way(func, args, kwargs)


def _way(func: Any) -> _Call:
    name: str = func._schema.name
    if func.namespace not in _LEAF_NAMESPACES or name in _MADE_OF_OTHERS:
        return _under_autocast_of_caller
    if name.startswith("aten::_foreach_") and func._schema.is_mutable:
        return _counting_versions
    return _plain


def _plain(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        if has_torch_function(args):
            # Only calls from Python ask __torch_function__, and this one came from the dispatcher.
            with _C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        return func(*args, **kwargs)
    except RuntimeError as error:
        retry = _numbers_as_tensors(func, args, error)
        if retry is None:
            raise
    return func(*retry, **kwargs)


def _counting_versions(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Under any dispatch mode the foreach ops leave the version counters alone, and autograd would miss that a
    saved tensor was changed."""
    out = func(*args, **kwargs)
    for tensor in args[0]:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
    return out


def _under_autocast_of_caller(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    lifted = _lift_autocast()
    try:
        return _plain(func, args, kwargs)
    finally:
        for key in lifted:
            _C._dispatch_tls_set_dispatch_key_excluded(key, True)


def _lift_autocast() -> tuple[Any, ...]:
    """Bring autocast back for what the op dispatches; returns the dispatch keys to exclude again.

    The dispatcher excludes autocast for all that runs below a mode. Without one, the body of a custom op or of
    a fused layer runs under the autocast of its caller. Lifting is not right for every op: what autocast ops are
    made of has to run without.
    """
    with _C._RestorePythonTLSSnapshot():  # type: ignore[attr-defined]
        if not _C._is_any_autocast_enabled():
            return ()
        keys = tuple(key for device, key in _keys().items() if torch.is_autocast_enabled(device))
    for key in keys:
        _C._dispatch_tls_set_dispatch_key_excluded(key, False)
    return keys


def _keys() -> dict[str, Any]:
    if not _autocast_keys:
        for device in ("cpu", "cuda", "xpu", "mps", "hpu", "mtia"):
            key = getattr(_C.DispatchKey, f"Autocast{device.upper()}", None)
            if key is not None and torch.amp.is_autocast_available(device):
                _autocast_keys[device] = key
    return _autocast_keys


def _numbers_as_tensors(func: Any, args: tuple[Any, ...], error: RuntimeError) -> list[Any] | None:
    """Arguments for a second try, when an op refused what the dispatcher itself did to them.

    The dispatcher gives a mode Python numbers for tensors that wrap one (constants of TorchScript are such),
    and most operators then do not take them back. They refuse before they do anything.
    """
    if "Expected a value of type 'Tensor'" not in str(error):
        return None
    wanted = [str(a.type) == "Tensor" for a in func._schema.arguments]
    numbers = [w and type(a) in _WRAPPED for w, a in zip(wanted, args, strict=False)]
    if not any(numbers):
        return None
    with quiet():
        return [
            torch.scalar_tensor(a, dtype=_WRAPPED[type(a)], device="cpu") if number else a
            for a, number in zip(args, numbers, strict=False)
        ]
