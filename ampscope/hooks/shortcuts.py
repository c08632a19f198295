"""The hooks of the training loop in segments that are only counted: the same facts, at a fraction of the code.

A counted step costs what its Python costs, and between two kernels that costs several times what it does in a tight
loop, because none of it is in the processor's caches. So each hook has a short way for the usual call (one plain loss,
one backward, one optimizer at a time), and leaves every other call to the hook itself, which is right in all segments.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import _C

from ampscope.hooks.collector import Collector, dtype_name
from ampscope.hooks.optimizers import learning_rate
from ampscope.hooks.patches import DECLINED, Shortcut
from ampscope.hooks.scaledness import mark_scaled, marked_state
from ampscope.hooks.scaler import ScaledLoss

if TYPE_CHECKING:
    from ampscope.hooks.backward import Backward
    from ampscope.hooks.census_control import CensusControl
    from ampscope.hooks.optimizers import Optimizers
    from ampscope.hooks.parameters import Parameters
    from ampscope.hooks.scaler import Scaler


class Shortcuts(Collector):
    """`on` while the segment is only counted. When a shortcut fails, all are off, and the hooks do their work."""

    name = "shortcuts"

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.on = False
        self.own_s = 0.0
        self._connected = False

    def connect(
        self,
        parameters: Parameters,
        optimizers: Optimizers,
        scaler: Scaler,
        backward: Backward,
        census: CensusControl,
    ) -> None:
        """The collectors whose state the shortcuts keep true."""
        self._parameters = parameters
        self._optimizers = optimizers
        self._scaler = scaler
        self._backward = backward
        self._census = census
        self.scale = Shortcut(self, self._before_scale, self._after_scale)
        self.backward = Shortcut(self, self._before_backward, self._after_backward)
        self.unscale = Shortcut(self, self._before_unscale, self._after_unscale)
        self.step = Shortcut(self, self._before_step, self._after_step)
        self.update = Shortcut(self, self._before_update, self._after_update)
        self.optimizer = Shortcut(self, self._before_optimizer, self._after_optimizer)
        self._connected = True

    @property
    def ready(self) -> bool:
        """Whether there are shortcuts to take."""
        return self._connected and not self.dead

    def failed(self, error: Exception) -> None:
        """A shortcut raised."""
        self.on = False
        with contextlib.suppress(Exception):
            self.session.rest.end()
        self.session.fail(self, error)

    def take_own_s(self) -> float:
        """Seconds that shortcuts have taken since the last call."""
        own_s, self.own_s = self.own_s, 0.0
        self.host_s += own_s
        return own_s

    def _withhold(self, row: dict[str, Any]) -> dict[str, Any]:
        return self.session.calls.withhold(row)

    # -- GradScaler -----------------------------------------------------------------------------------------------

    def _before_scale(self, args: Any, kwargs: Any) -> Any:
        if len(args) != 2 or kwargs or type(args[1]) is not torch.Tensor or _C._len_torch_function_stack():
            return DECLINED
        scaler, loss = args
        name = self.session.objects.name(scaler)
        scale = self._scaler.known_scales.get(name)
        if scale is None:
            return DECLINED
        return name, scale, loss

    def _after_scale(self, token: Any, result: Any, error: BaseException | None) -> None:
        session = self.session
        name, scale, loss = token
        with _C.DisableTorchFunction():
            dtype = dtype_name(loss.dtype)
            row = self._withhold(
                {"call": "scaler.scale", "object": name, "enabled": True, "value": scale, "dtype": dtype}
            )
            if error is not None:
                session.calls.failed(row, error)
                return
            session.segment.scale = scale
            held = ScaledLoss(dtype)
            mark_scaled(result, held)
            if loss.numel() == 1:
                session.deferred.put(loss, held.receive)

    def _before_unscale(self, args: Any, kwargs: Any) -> Any:
        if len(args) != 2:
            return DECLINED
        scaler, optimizer = args
        if not scaler.is_enabled():
            return None
        session = self.session
        name = session.objects.name(scaler)
        if name not in self._scaler.known_scales:
            return DECLINED
        opt = session.optimizers.name(optimizer)
        row = {
            "call": "scaler.unscale_",
            "object": name,
            "target": opt,
            "value": self._scaler.known_scales[name],
            "scaled": self._parameters.grad_state.get(opt),
            "detail": "inside_step" if self._optimizers.here.scaler_steps == opt else None,
            "phase": "other",
        }
        return self._withhold(row)

    def _after_unscale(self, row: Any, result: Any, error: BaseException | None) -> None:
        if row is None:
            return
        if error is None:
            self._parameters.grad_state[row["target"]] = "unscaled"
        else:
            self.session.calls.failed(row, error)

    def _before_step(self, args: Any, kwargs: Any) -> Any:
        if len(args) != 2 or kwargs:
            return DECLINED
        scaler, optimizer = args
        if not scaler.is_enabled():
            return None
        session = self.session
        name, opt = session.objects.name(scaler), session.optimizers.name(optimizer)
        if (
            name not in self._scaler.known_scales
            or opt not in self._optimizers.described
            or not session.segment.work_began
        ):
            return DECLINED
        call_row = self._withhold(
            {
                "call": "scaler.step",
                "object": name,
                "target": opt,
                "enabled": True,
                "value": self._scaler.known_scales[name],
                "phase": "optimizer",
                "scaled": self._parameters.grad_state.get(opt),
            }
        )
        return self._scaler.step_begins(scaler, optimizer, name, opt, call_row)

    def _after_step(self, token: Any, result: Any, error: BaseException | None) -> None:
        if token is not None:
            self._scaler.step_ends(token, error)

    def _before_update(self, args: Any, kwargs: Any) -> Any:
        rest = self.session.rest
        if len(args) != 1 or kwargs:
            rest.end()
            return DECLINED
        if not args[0].is_enabled():
            return None
        if rest.on:
            rest.no_step(args[0])
            return DECLINED
        name = self.session.objects.name(args[0])
        # The update of a step that was recorded is recorded as well.
        if name not in self._scaler.known_scales or self._scaler.step_recorded.get(name):
            return DECLINED
        return args[0], name

    def _after_update(self, token: Any, result: Any, error: BaseException | None) -> None:
        if token is None:
            return
        scaler, name = token
        self._scaler.step_recorded.pop(name, None)
        row = self._withhold(
            {
                "call": "scaler.update",
                "object": name,
                "value": self._scaler.known_scales[name],
                "phase": "other",
            }
        )
        self._scaler.update_ends(scaler, name, row, error)

    # -- backward -------------------------------------------------------------------------------------------------

    def _before_backward(self, args: Any, kwargs: Any) -> Any:
        """`_engine_run_backward(roots, gradients, retain_graph, create_graph, inputs, ...)`."""
        session = self.session
        segment = session.segment
        if (
            len(args) != 5
            or args[3]
            or len(args[0]) != 1
            or type(args[0][0]) is not torch.Tensor
            or not kwargs.get("accumulate_grad")
            or (segment.zeroed and segment.micro)
            or self._backward.penalised
            or _C._len_torch_function_stack()
            or _C._current_graph_task_id() != -1
        ):
            return DECLINED
        root = args[0][0]
        with _C.DisableTorchFunction():
            state = marked_state(root)
            loss = state.loss
            if loss is None and self._scaler.known_scales:
                return DECLINED
            if not segment.work_began:
                segment.work_began = time.perf_counter()
            self._parameters.backward_begins()
            row = self._withhold(
                {
                    "call": "backward",
                    "phase": "backward",
                    "scaled": state.scaled,
                    "dtype": dtype_name(root.dtype),
                }
            )
            known = len(segment.losses)
            self._backward.read_loss(root, state, (), row)
            if len(segment.losses) > known and not math.isfinite(segment.losses[-1]):
                self._backward.bad_loss([root])
        session.here.in_backward += 1
        session.backward_scaled = state.scaled
        return row

    def _after_backward(self, row: Any, result: Any, error: BaseException | None) -> None:
        session = self.session
        session.here.in_backward -= 1
        if session.timeline is not None:
            session.mark("backward", False)
        if self._census.waits:
            self._census.after_backward()
        self._backward.note_fed(row)
        if error is None:
            session.segment.micro += 1
        else:
            session.calls.failed(row, error)

    # -- optimizers -----------------------------------------------------------------------------------------------

    def _before_optimizer(self, args: Any, kwargs: Any) -> Any:
        session = self.session
        optimizer = args[0]
        name = session.optimizers.name(optimizer)
        here = self._optimizers.here
        segment = session.segment
        if here.stack or name not in self._optimizers.described or not segment.work_began:
            return DECLINED
        here.stack.append(name)
        session.here.in_optimizer = 1
        self._withhold(
            {
                "call": "optimizer.step",
                "object": name,
                "phase": "optimizer",
                "scaled": self._parameters.grad_state.get(name),
                "detail": "via_scaler" if here.scaler_steps == name else None,
            }
        )
        segment.lr = learning_rate(optimizer)
        return name

    def _after_optimizer(self, name: Any, result: Any, error: BaseException | None) -> None:
        session = self.session
        here = self._optimizers.here
        here.stack.pop()
        session.here.in_optimizer = 0
        if session.timeline is not None:
            session.mark("optimizer", False)
        here.stepped = True
        if here.scaler_steps is None:
            self._optimizers.finish(name, "stepped")
