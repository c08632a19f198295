"""Run-time precision overrides of an unmodified script: `ampscope run --set autocast.dtype=bfloat16 train.py`.

The one collector that changes the run, and only when it is told to: compare and verify rest on it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import torch

from ampscope.hooks.collector import Collector
from ampscope.hooks.patches import unseen_by_warnings

_HALF = (torch.float16, torch.bfloat16)


class Overrides(Collector):
    """Applies the `--set` values of the settings. Installed first, so that the other collectors see the result.

    `autocast.enabled=true` opens a context round the root modules of a script that has none; a region that the
    script switches off inside an enabled one stays off. `module.fp32=PATTERN` runs the modules whose names
    match in float32; of the first call of a root module that matches, keyword arguments are left as they are.
    """

    name = "overrides"

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.values: dict[str, list[str]] = session.settings.overrides
        self._undo: list[tuple[Any, str, Any]] = []
        self._contexts = 0
        self._fp32: set[int] = set()
        self._own = False
        self._casting: torch.nn.Module | None = None
        """The root whose first call has begun: its arguments are to be cast."""
        self._hook: Any = None

    def _last(self, key: str) -> str | None:
        values = self.values.get(key)
        return values[-1] if values else None

    def install(self) -> None:
        if not self.values:
            return
        if "autocast.dtype" in self.values or "autocast.enabled" in self.values:
            self._change(torch.amp.autocast_mode.autocast, "__init__", self._autocast)
        if any(key.startswith("scaler.") for key in self.values):
            self._change(torch.amp.GradScaler, "__init__", self._scaler)
        eps = self._last("optimizer.eps")
        if eps is not None:
            self._after(torch.optim.Optimizer, "__init__", lambda optimizer: _set_eps(optimizer, float(eps)))
        precision = self._last("matmul.precision")
        if precision is not None:
            torch.set_float32_matmul_precision(precision)

    def remove(self) -> None:
        for owner, name, original in reversed(self._undo):
            setattr(owner, name, original)
        self._undo.clear()
        if self._hook is not None:
            self._hook.remove()
        super().remove()

    def segment_start(self, segment: Any) -> None:
        # Not in install: the hook has to run after the one that finds the roots.
        if "module.fp32" in self.values and self._hook is None:
            self._hook = torch.nn.modules.module.register_module_forward_pre_hook(self._before)

    def _before(self, module: torch.nn.Module, args: Any) -> Any:
        if torch.compiler.is_compiling() or module is not self._casting:
            return None
        self._casting = None
        return _cast(args, torch.float32)

    # -- arguments of constructors ------------------------------------------------------------------------------

    def _change(self, owner: Any, name: str, change: Callable[[Any, dict[str, Any]], None]) -> None:
        """Let `change` edit the bound arguments of a constructor."""
        original = vars(owner)[name]
        signature = inspect.signature(original)

        @unseen_by_warnings
        @functools.wraps(original)
        def changed(*args: Any, **kwargs: Any) -> Any:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                return original(*args, **kwargs)
            bound.apply_defaults()
            change(args[0], bound.arguments)
            return original(*bound.args, **bound.kwargs)

        setattr(owner, name, changed)
        self._undo.append((owner, name, original))

    def _after(self, owner: Any, name: str, act: Callable[[Any], None]) -> None:
        original = vars(owner)[name]

        @unseen_by_warnings
        @functools.wraps(original)
        def changed(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            act(args[0])
            return result

        setattr(owner, name, changed)
        self._undo.append((owner, name, original))

    def _autocast(self, context: Any, arguments: dict[str, Any]) -> None:
        if self._own:
            return
        self._contexts += 1
        kind = arguments.get("device_type")
        dtype = self._last("autocast.dtype")
        if dtype is not None:
            arguments["dtype"] = getattr(torch, dtype)
        enabled = self._last("autocast.enabled")
        if enabled == "false":
            arguments["enabled"] = False
        elif enabled == "true" and not _autocast_is_on(kind):
            arguments["enabled"] = True

    def _scaler(self, scaler: Any, arguments: dict[str, Any]) -> None:
        enabled = self._last("scaler.enabled")
        if enabled is not None:
            arguments["enabled"] = enabled == "true"
        for key in ("init_scale", "backoff_factor"):
            value = self._last(f"scaler.{key}")
            if value is not None:
                arguments[key] = float(value)
        interval = self._last("scaler.growth_interval")
        if interval is not None:
            arguments["growth_interval"] = int(interval)

    # -- modules ------------------------------------------------------------------------------------------------

    def new_root(self, root: torch.nn.Module) -> None:
        for module in root.modules():
            name = self.session.names.module(module)
            if any(fnmatchcase(name, pattern) for pattern in self.values.get("module.fp32", ())):
                self._run_in_float32(module, running=module is root)
        if (
            self._last("autocast.enabled") == "true"
            and self._contexts == 0
            and next(root.parameters(), None) is not None
        ):
            self._run_under_autocast(root)

    def _run_in_float32(self, module: torch.nn.Module, running: bool) -> None:
        """The region of the usual advice: inputs to float32, autocast off. A module that is stored in half is
        stored in float32 from now on and hands its results back in half. `running`: its call has begun."""
        if id(module) in self._fp32:
            return
        self._fp32.add(id(module))
        stored = next((t.dtype for t in (*module.parameters(), *module.buffers()) if t.dtype in _HALF), None)
        if stored is not None:
            module.float()
        original = module.forward
        known = next((p.device.type for p in module.parameters()), None)

        def back(out: Any, half: torch.dtype | None) -> Any:
            return out if half is None else _cast(out, half, (torch.float32,))

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            kind = known or _device_of(args) or "cpu"
            # What follows in a model that is stored in half takes no float32; autocast would cast it.
            half = stored or (None if _autocast_is_on(kind) else _half_of(args))
            with self._context(kind, enabled=False):
                out = original(*_cast(args, torch.float32), **_cast(kwargs, torch.float32))
            return back(out, half)

        module.forward = forward
        if running:
            self._casting = module
            context = self._context(known or "cpu", enabled=False)
            self._for_this_call(module, context, lambda out: back(out, stored))

    def _for_this_call(
        self, module: torch.nn.Module, context: torch.autocast, back: Callable[[Any], Any]
    ) -> None:
        """Hold `context` round the call of `module` that has begun: it calls the forward that it found."""
        context.__enter__()

        def leave(_module: torch.nn.Module, _args: Any, out: Any) -> Any:
            handle.remove()
            context.__exit__(None, None, None)
            return back(out)

        handle = module.register_forward_hook(leave, always_call=True)

    def _context(self, kind: str, **arguments: Any) -> torch.autocast:
        """An autocast context of ours: the overrides of the user's contexts do not apply to it, and it is no call
        of the user's to be recorded."""
        self._own = True
        try:
            context: Any = torch.autocast(kind, **arguments)
        finally:
            self._own = False
        context.ampscope_override = True
        return context  # type: ignore[no-any-return]

    def _run_under_autocast(self, root: torch.nn.Module) -> None:
        original = root.forward
        dtype = getattr(torch, self._last("autocast.dtype") or "bfloat16")

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            kind = next((p.device.type for p in root.parameters()), "cpu")
            with self._context(kind, dtype=dtype):
                return original(*args, **kwargs)

        root.forward = forward
        kind = next((p.device.type for p in root.parameters()), "cpu")
        self._for_this_call(root, self._context(kind, dtype=dtype), lambda out: out)


def _autocast_is_on(kind: Any) -> bool:
    try:
        return bool(torch.is_autocast_enabled(kind))
    except (RuntimeError, TypeError):
        return False


def _set_eps(optimizer: torch.optim.Optimizer, eps: float) -> None:
    for group in optimizer.param_groups:
        if "eps" in group:
            group["eps"] = eps


def _device_of(args: Any) -> str | None:
    return next((a.device.type for a in args if isinstance(a, torch.Tensor)), None)


def _half_of(args: Any) -> torch.dtype | None:
    return next((a.dtype for a in args if isinstance(a, torch.Tensor) and a.dtype in _HALF), None)


def _cast(value: Any, dtype: torch.dtype, of: tuple[torch.dtype, ...] = _HALF) -> Any:
    """`value` with the tensors in it that have one of the dtypes `of` cast to `dtype`."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.dtype in of else value
    if isinstance(value, dict):
        return {key: _cast(item, dtype, of) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_cast(item, dtype, of) for item in value)
    return value
