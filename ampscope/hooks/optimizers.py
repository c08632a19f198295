"""Optimizers: construction, steps by torch's global step hooks, and what each holds. Ends the segments of a run
without a GradScaler; with one, the scaler's collector does, because only it knows of skipped steps.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ampscope.hooks.collector import Collector
from ampscope.hooks.modules import short_dtype
from ampscope.hooks.parameters import Parameters
from ampscope.hooks.patches import DECLINED, Call


class Stepping(threading.local):
    """The steps that one thread is in the middle of."""

    def __init__(self) -> None:
        self.scaler_steps: str | None = None
        """Optimizer whose step a GradScaler is running now."""
        self.stepped = False
        """That step reached the optimizer."""
        self.stack: list[str] = []
        self.began = 0.0


class Optimizers(Collector):
    """`before_step` and `after_step` listeners get the optimizer and its name, around every outermost step."""

    name = "optimizers"
    vital = True

    def __init__(self, session: Any, parameters: Parameters) -> None:
        super().__init__(session)
        self.parameters = parameters
        self.here = Stepping()
        self._handles: list[Any] = []
        self._before: list[Any] = []
        self._after: list[Any] = []
        self.described: dict[str, tuple[Any, ...]] = {}
        self.nested = False
        """An optimizer has stepped within the step of another."""

    def listen(self, before: Any, after: Any) -> None:
        self._before.append(before)
        self._after.append(after)

    def install(self) -> None:
        cls = torch.optim.Optimizer
        self.wrap(cls, "__init__", after=self._constructed)
        self.wrap(cls, "add_param_group", after=self._group_added)
        self.wrap(cls, "zero_grad", before=self._zero_grad, idle=self.session.nothing_to_clear, loop=True)
        self.wrap(cls, "load_state_dict", after=self._loaded)
        self._before_step = self.guarded(self._before_step_)
        self._after_step = self.guarded(self._after_step_)
        self._handles = [
            register_optimizer_step_pre_hook(self._pre),
            register_optimizer_step_post_hook(self._post),
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        super().remove()

    # -- construction and state -----------------------------------------------------------------------------------

    def _constructed(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        if error is not None:
            return
        optimizer = call.args[0]
        name = self.session.optimizers.name(optimizer)
        self.session.clock.constructed(name)
        self.parameters.own(optimizer, name)
        self.session.call_row("optimizer.init", object=name, phase="other")

    def _group_added(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        optimizer = call.args[0]
        if error is None and hasattr(optimizer, "_zero_grad_profile_name"):
            name = self.session.optimizers.name(optimizer)
            self.parameters.own(optimizer, name)
            self.session.call_row("optimizer.add_param_group", object=name, phase="other")

    def _loaded(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        name = self.session.optimizers.name(call.args[0])
        row = self.session.call_row("optimizer.load_state_dict", object=name, phase="other")
        self.session.calls.failed(row, error)

    def _zero_grad(self, call: Call) -> None:
        optimizer = call.args[0]
        name = self.session.optimizers.name(optimizer)
        self.session.call_row("optimizer.zero_grad", object=name)
        self.parameters.grad_state.pop(name, None)
        segment = self.session.segment
        if segment.fed and not segment.zeroed:
            held = {id(p) for group in optimizer.param_groups for p in group["params"]}
            segment.zeroed = segment.fed.keys() <= held

    # -- steps ------------------------------------------------------------------------------------------------------

    def _pre(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        rest = self.session.rest
        if rest.on and ((rest.optimizer() is optimizer and not rest.stepped) or rest.interrupted()):
            return
        short = self.session.shortcuts
        if not short.on or short.optimizer.begin((optimizer,), {}) is DECLINED:
            self._before_step(optimizer)

    def _post(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        here = self.here
        short = self.session.shortcuts
        rest = self.session.rest
        if rest.on:
            if rest.scaled:
                rest.stepped = True
            else:
                rest.tick()
        elif short.on and len(here.stack) == 1 and here.stack[0] == self.session.optimizers.name(optimizer):
            short.optimizer.end(here.stack[0], None, None)
        else:
            self._after_step(optimizer)

    def _before_step_(self, optimizer: torch.optim.Optimizer) -> None:
        session = self.session
        name = session.optimizers.name(optimizer)
        here = self.here
        if name in here.stack:
            # Its last step raised, and torch calls no post hook then.
            here.stack.clear()
        here.stack.append(name)
        session.here.in_optimizer = len(here.stack)
        if len(here.stack) > 1:
            self.nested = True
            return
        session.trains()
        session.work_begins()
        if not session.counting:
            self.parameters.own(optimizer, name)
        session.call_row(
            "optimizer.step",
            object=name,
            phase="optimizer",
            scaled=self.parameters.grad_state.get(name),
            detail="via_scaler" if here.scaler_steps == name else None,
        )
        session.segment.lr = learning_rate(optimizer)
        if session.segment.sampled or name not in self.described:
            self.describe(optimizer, name)
            for listener in self._before:
                listener(optimizer, name)
        session.mark("optimizer", True)
        here.began = time.perf_counter()
        if session.last_backward_end:
            session.segment.spent["unscale"] += max(0.0, here.began - session.last_backward_end)

    def _after_step_(self, optimizer: torch.optim.Optimizer) -> None:
        session = self.session
        name = session.optimizers.name(optimizer)
        here = self.here
        if name not in here.stack:
            return
        outermost = here.stack[0]
        while here.stack and here.stack.pop() != name:
            pass
        session.here.in_optimizer = len(here.stack)
        if here.stack or outermost != name:
            return
        session.mark("optimizer", False)
        session.segment.spent["optimizer"] += time.perf_counter() - here.began
        here.stepped = True
        if session.segment.sampled:
            for listener in self._after:
                listener(optimizer, name)
        if here.scaler_steps is None:
            self.finish(name, "stepped")

    def finish(self, name: str, outcome: str) -> None:
        """End the segment of this optimizer."""
        self.parameters.grad_state.pop(name, None)
        self.session.end_segment(outcome, name)

    def abort(self) -> None:
        """A step raised: forget it."""
        self.here.stack.clear()
        self.session.here.in_optimizer = 0

    # -- parameters -------------------------------------------------------------------------------------------------

    def describe(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        """Emit `params` rows when the optimizer first steps, and again when a dtype or a group changed."""
        described = tuple(
            (id(p), p.dtype, p.grad is None, len(optimizer.state.get(p, ())))
            for group in optimizer.param_groups
            for p in group["params"]
        )
        if self.described.get(name) == described:
            return
        self.described[name] = described
        for index, group in enumerate(optimizer.param_groups):
            for param in group["params"]:
                self._describe_one(optimizer, name, index, group, param)

    def _describe_one(self, optimizer: Any, name: str, index: int, group: Any, param: torch.Tensor) -> None:
        found = self.session.names.param(param)
        state = optimizer.state.get(param, {})
        eps = group.get("eps")
        self.session.emit(
            "params",
            phase="optimizer",
            name=found[0] if found else "?",
            module=found[1] if found else None,
            dtype=short_dtype(param),
            shape="x".join(str(n) for n in param.shape),
            numel=param.numel(),
            device=param.device.type,
            requires_grad=param.requires_grad,
            owner=name,
            group=index,
            in_model=self.session.names.in_model(param),
            got_grad=param.grad is not None,
            state_dtypes=[
                f"{key}={short_dtype(value)}"
                for key, value in state.items()
                if isinstance(value, torch.Tensor) and value.dim() > 0
            ],
            eps=float(eps) if isinstance(eps, (int, float)) else None,
            betas=[float(b) for b in group.get("betas", ()) if isinstance(b, (int, float))] or None,
        )


def learning_rate(optimizer: torch.optim.Optimizer) -> float | None:
    """Of the first parameter group."""
    lr = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    return float(lr) if isinstance(lr, (int, float)) else _host_float(lr)


def _host_float(value: Any) -> float | None:
    """A learning rate held in a CPU tensor; one on a device would need a synchronisation."""
    if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.numel() == 1:
        return float(value.detach())
    return None
