"""The rest of the training loop's calls, with the user's line: clipping, schedulers, autocast contexts, state
dicts. Reads only what the calls return.
"""

from __future__ import annotations

import weakref
from collections import Counter
from types import GeneratorType
from typing import Any

import torch

from ampscope.hooks.backward import MAX_NAMES
from ampscope.hooks.clock import Segment
from ampscope.hooks.collector import Collector
from ampscope.hooks.members import parameters
from ampscope.hooks.modules import short_dtype
from ampscope.hooks.parameters import Parameters
from ampscope.hooks.patches import Call
from ampscope.hooks.source import Place, user_place

REPEATS = 8
"""Rows of one call from one line within one segment; the rest are counted."""


class ApiCalls(Collector):
    """`on_clip(params, scaled)` is called before gradients are clipped."""

    name = "api_calls"

    def __init__(self, session: Any, parameters: Parameters) -> None:
        super().__init__(session)
        self.parameters = parameters
        self._clip_listeners: list[Any] = []
        self._counts: Counter[tuple[str, Place | None]] = Counter()
        self._inside_norm = False
        self._refused: weakref.WeakSet[Any] = weakref.WeakSet()
        """Contexts that were asked for enabled, and that torch switched off because the device is not there."""

    def listen(self, clip: Any) -> None:
        self._clip_listeners.append(clip)

    def install(self) -> None:
        session = self.session

        def counting() -> bool:
            return bool(session.counting)

        clip = torch.nn.utils.clip_grad
        for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"):
            self.wrap(
                clip,
                name,
                self._before_clip(name),
                self._after_clip,
                aliases=(torch.nn.utils,),
                idle=counting,
                loop=True,
            )
        schedulers = torch.optim.lr_scheduler
        for cls in (schedulers.LRScheduler, schedulers.ReduceLROnPlateau):
            self.wrap(cls, "step", after=self._scheduler, idle=counting, loop=True)
        autocast = torch.amp.autocast_mode.autocast
        self.wrap(autocast, "__init__", after=self._autocast_made, idle=counting, loop=True)
        self.wrap(autocast, "__enter__", after=self._autocast_enter, idle=counting, loop=True)
        self.wrap(autocast, "__exit__", before=self._autocast_exit, idle=counting, loop=True)
        self.wrap(torch.nn.Module, "load_state_dict", after=self._model_loaded)
        self.wrap(
            torch.nn.Module,
            "zero_grad",
            before=self._module_zero_grad,
            idle=session.nothing_to_clear,
        )

    def segment_start(self, segment: Segment) -> None:
        self._counts.clear()

    def segment_end(self, segment: Segment) -> None:
        for (call, place), count in self._counts.items():
            if count > REPEATS:
                self.session.call_row(call, place=place, detail="repeated", value=float(count), phase="other")

    def _limited(self, call: str, place: Place | None) -> bool:
        """Whether this call from this line has had its share of rows in the segment."""
        self._counts[call, place] += 1
        return self._counts[call, place] > REPEATS

    # -- clipping -------------------------------------------------------------------------------------------------

    def _before_clip(self, name: str) -> Any:
        def before(call: Call) -> Any:
            if self._inside_norm:
                return None
            self._inside_norm = True
            graded = [p for p in _clipped(call) if isinstance(p, torch.Tensor) and p.grad is not None]
            scaled = self.parameters.state_of(graded)
            names = None
            if self.session.segment.sampled:
                for listener in self._clip_listeners:
                    listener(graded, scaled)
                names = [self.session.param_name(p) or "?" for p in graded[:MAX_NAMES]]
            limit = call.argument(1, "clip_value" if name == "clip_grad_value_" else "max_norm")
            return self.session.call_row(
                name,
                scaled=scaled,
                limit=float(limit) if isinstance(limit, (int, float)) else None,
                params=names,
                n_params=len(graded),
                dtype=short_dtype(graded[0].grad) if graded and graded[0].grad is not None else None,
                phase="other",
            )

        return before

    def _after_clip(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        if token is None:
            return
        self._inside_norm = False
        self.session.calls.failed(token, error)
        if isinstance(result, torch.Tensor) and result.numel() == 1:
            token["dtype"] = short_dtype(result)

            def receive(value: float) -> None:
                token["value"] = value

            self.session.deferred.put(result, receive)

    # -- schedulers -----------------------------------------------------------------------------------------------

    def _scheduler(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        scheduler = call.args[0]
        optimizer = getattr(scheduler, "optimizer", None)
        lr = optimizer.param_groups[0].get("lr") if optimizer is not None else None
        self.session.call_row(
            "scheduler.step",
            object=self.session.objects.name(scheduler),
            target=self.session.optimizers.name(optimizer) if optimizer is not None else None,
            value=float(lr) if isinstance(lr, (int, float)) else None,
            detail="initial" if getattr(scheduler, "_is_initial", False) else None,
            error=type(error).__name__ if error is not None else None,
            phase="other",
        )

    # -- autocast -------------------------------------------------------------------------------------------------

    def _autocast_made(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        self.session.saw_amp = True
        context = call.args[0]
        if call.argument(3, "enabled", True) and not getattr(context, "_enabled", True):
            self._refused.add(context)
        kind = type(context)
        if kind.__module__.startswith(("torch.cuda.amp", "torch.cpu.amp")):
            place = user_place()
            if not self._limited("deprecated", place):
                self.session.call_row(
                    "deprecated", place=place, object=f"{kind.__module__}.autocast", phase="other"
                )

    def _autocast_enter(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        self._autocast_row("autocast.enter", call.args[0], error)
        self.session.autocast_entered()

    def _autocast_exit(self, call: Call) -> None:
        self._autocast_row("autocast.exit", call.args[0], None)

    def _autocast_row(self, name: str, context: Any, error: BaseException | None) -> None:
        if getattr(context, "ampscope_override", False):
            return
        place = user_place()
        if self._limited(name, place):
            return
        self.session.call_row(
            name,
            place=place,
            target=getattr(context, "device", None),
            enabled=bool(getattr(context, "_enabled", False)),
            dtype=str(getattr(context, "fast_dtype", "")).removeprefix("torch.") or None,
            detail=_switches(context, context in self._refused),
            error=type(error).__name__ if error is not None else None,
        )

    # -- models ---------------------------------------------------------------------------------------------------

    def _model_loaded(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        self.session.call_row(
            "model.load_state_dict",
            object=self.session.names.module(call.args[0]),
            error=type(error).__name__ if error is not None else None,
            phase="other",
        )

    def _module_zero_grad(self, call: Call) -> None:
        module = call.args[0]
        held = {id(p) for _, p in parameters(module)}
        segment = self.session.segment
        if segment.fed and not segment.zeroed:
            segment.zeroed = segment.fed.keys() <= held
        self.session.call_row(
            "optimizer.zero_grad", object=self.session.names.module(module), detail="module", phase="other"
        )


def _switches(context: Any, refused: bool) -> str | None:
    words = ["disabled_by_torch"] if refused else []
    if not getattr(context, "_cache_enabled", True):
        words.append("cache_off")
    return " ".join(words) or None


def _clipped(call: Call) -> list[Any]:
    """The parameters that are about to be clipped; a generator among the arguments is replaced by a fresh one."""
    named = "parameters" in call.kwargs
    params = call.argument(0, "parameters")
    if isinstance(params, torch.Tensor):
        return [params]
    if isinstance(params, GeneratorType):
        held = list(params)
        again = (p for p in held)
        if named:
            call.kwargs = {**call.kwargs, "parameters": again}
        else:
            call.args = (again, *call.args[1:])
        return held
    return list(params) if isinstance(params, (list, tuple, set)) else []
