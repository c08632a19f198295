"""GradScaler: the scale in force, found_inf per optimizer, skipped steps and the growth tracker, read around its
methods. Ends the segment of a scaled step; changes nothing of the scaler's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.amp.grad_scaler import OptState

from ampscope.hooks.clock import Row
from ampscope.hooks.collector import Collector
from ampscope.hooks.modules import short_dtype, tensors_in
from ampscope.hooks.optimizers import Optimizers
from ampscope.hooks.patches import Call
from ampscope.hooks.scaledness import mark_scaled


class ScaledLoss:
    """The value of a loss before scaling, delivered to the segments whose backward starts from it."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self._value: float | None = None
        self._targets: list[tuple[Any, Any]] = []

    def receive(self, value: float) -> None:
        self._value = value
        targets, self._targets = self._targets, []
        for segment, row in targets:
            self.deliver_to(segment, row)

    def deliver_to(self, segment: Any, row: Any) -> None:
        if self._value is None:
            self._targets.append((segment, row))
            return
        row["value"] = self._value
        segment.losses.append(self._value)
        if self._value - self._value != 0.0:
            segment.nonfinite_forward = True


class Scaler(Collector):
    """`on_scaled_gradients(optimizer, name)` is called while the gradients still carry the scale, before
    `unscale_` or `step` takes it out; `on_skip(optimizer, name, scale)` after a step was skipped."""

    name = "scaler"

    def __init__(self, session: Any, optimizers: Optimizers) -> None:
        super().__init__(session)
        self.optimizers = optimizers
        self.known_scales: dict[str, float] = {}
        """The loss scale in force of each enabled scaler seen so far, by its name."""
        self._open_rows: dict[str, list[dict[str, Any]]] = {}
        self._scaled_listeners: list[Any] = []
        self._skip_listeners: list[Any] = []
        self.step_recorded: dict[str, bool] = {}
        """Scalers that have stepped since their last update: whether a row of `calls` says so, as it then has to of
        the update."""

    def listen(self, scaled: Any, skipped: Any) -> None:
        self._scaled_listeners.append(scaled)
        self._skip_listeners.append(skipped)

    def scales(self) -> tuple[float, ...]:
        """The loss scales in force of the enabled scalers seen so far."""
        return tuple(self.known_scales.values())

    def install(self) -> None:
        cls = torch.amp.GradScaler
        self.wrap(cls, "__init__", after=self._constructed)
        short = self.session.shortcuts
        self.wrap(cls, "scale", after=self._scale, shortcut=short.scale, loop=True)
        self.wrap(
            cls, "unscale_", self._before_unscale, self._after_unscale, shortcut=short.unscale, loop=True
        )
        self.wrap(cls, "step", self._before_step, self._after_step, shortcut=short.step, loop=True)
        self.wrap(
            cls,
            "update",
            after=self._update,
            shortcut=short.update,
            stand_in=self.session.rest.observed_update,
        )
        self.wrap(cls, "load_state_dict", after=self._loaded)

    # -- construction -------------------------------------------------------------------------------------------

    def _constructed(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        self.session.saw_amp = True
        if error is not None:
            return
        scaler = call.args[0]
        name = self.session.objects.name(scaler)
        enabled, asked = bool(scaler.is_enabled()), bool(call.argument(6, "enabled", True))
        if enabled:
            self.known_scales[name] = float(scaler.get_scale())
        self.session.call_row(
            "scaler.init",
            object=name,
            phase="other",
            enabled=enabled,
            value=float(getattr(scaler, "_init_scale", 1.0)) if enabled else None,
            target=getattr(scaler, "_device", None),
            detail=_policy(scaler) if enabled else "disabled_by_torch" if asked else "disabled",
        )
        module = type(scaler).__module__
        if module.startswith(("torch.cuda.amp", "torch.cpu.amp")):
            self.session.call_row("deprecated", object=f"{module}.GradScaler", phase="other")

    def _loaded(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        scaler = call.args[0]
        row = self.session.call_row(
            "scaler.load_state_dict", object=self.session.objects.name(scaler), phase="other"
        )
        self.session.calls.failed(row, error)

    # -- scale --------------------------------------------------------------------------------------------------

    def _scale(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        scaler = call.args[0]
        name = self.session.objects.name(scaler)
        enabled = bool(scaler.is_enabled())
        losses = tensors_in(call.argument(1, "outputs"))
        row = self.session.call_row(
            "scaler.scale",
            object=name,
            enabled=enabled,
            value=self.known_scales.get(name),
            dtype=short_dtype(losses[0]) if losses else None,
        )
        self.session.calls.failed(row, error)
        if error is not None or not enabled:
            return
        scale = self.known_scales.setdefault(name, float(getattr(scaler, "_init_scale", 1.0)))
        self.session.segment.scale = scale
        for loss, scaled in zip(losses, tensors_in(result), strict=False):
            held = ScaledLoss(short_dtype(loss))
            mark_scaled(scaled, held)
            if loss.numel() == 1:
                self.session.deferred.put(loss, held.receive)

    # -- unscale_ -------------------------------------------------------------------------------------------------

    def _before_unscale(self, call: Call) -> Any:
        scaler, optimizer = call.args[0], call.argument(1, "optimizer")
        if not scaler.is_enabled():
            return None
        name, opt = self.session.objects.name(scaler), self.session.optimizers.name(optimizer)
        inside_step = self.optimizers.here.scaler_steps == opt
        row = self.session.call_row(
            "scaler.unscale_",
            object=name,
            target=opt,
            value=self.known_scales.get(name),
            scaled=self.optimizers.parameters.grad_state.get(opt),
            detail="inside_step" if inside_step else None,
            phase="other",
        )
        if not inside_step and stage_of(scaler, optimizer) is not OptState.UNSCALED:
            self._tell_scaled(optimizer, opt)
        return row, opt

    def _after_unscale(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        if token is None:
            return
        row, opt = token
        self.session.calls.failed(row, error)
        if error is None:
            self.optimizers.parameters.grad_state[opt] = "unscaled"

    def _tell_scaled(self, optimizer: Any, opt: str) -> None:
        if self.session.segment.sampled:
            for listener in self._scaled_listeners:
                listener(optimizer, opt)

    # -- step -----------------------------------------------------------------------------------------------------

    def _before_step(self, call: Call) -> Any:
        scaler, optimizer = call.args[0], call.argument(1, "optimizer")
        name, opt = self.session.objects.name(scaler), self.session.optimizers.name(optimizer)
        if not scaler.is_enabled():
            return None
        session = self.session
        session.trains()
        session.work_begins()
        if not session.counting:
            self.optimizers.parameters.own(optimizer, opt)
        if session.segment.sampled or opt not in self.optimizers.described:
            self.optimizers.describe(optimizer, opt)
        call_row = session.call_row(
            "scaler.step", object=name, target=opt, enabled=True, value=self.known_scales.get(name), phase="optimizer",
            scaled=self.optimizers.parameters.grad_state.get(opt),
        )  # fmt: skip
        if stage_of(scaler, optimizer) is not OptState.UNSCALED:
            self._tell_scaled(optimizer, opt)
        return self.step_begins(scaler, optimizer, name, opt, call_row)

    def step_begins(self, scaler: Any, optimizer: Any, name: str, opt: str, call_row: Row) -> Any:
        """A scaler is about to run the step of an optimizer; returns what `step_ends` needs."""
        segment = self.session.segment
        scale = self.known_scales.get(name)
        row = {
            "micro": segment.micro,
            "phase": "optimizer",
            "scaler": name,
            "scale": scale,
            **policy_of(scaler),
        }
        segment.rows.append(("scaler", row))
        segment.scale = scale
        here = self.optimizers.here
        here.scaler_steps = opt
        here.stepped = False
        return scaler, optimizer, name, opt, call_row, row

    def _after_step(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        if token is None:
            self.optimizers.here.scaler_steps = None
        else:
            self.step_ends(token, error)

    def step_ends(self, token: Any, error: BaseException | None) -> None:
        """The step that began with `step_begins` is over, or raised `error`: ends the segment."""
        self.optimizers.here.scaler_steps = None
        scaler, optimizer, name, opt, call_row, row = token
        self.session.calls.failed(call_row, error)
        if error is not None:
            self.optimizers.abort()
            if not scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]:
                self.session.segment.rows.remove(("scaler", row))
            return
        fused = bool(getattr(optimizer, "_step_supports_amp_scaling", False))
        skipped = self._decide(scaler, optimizer, row, call_row, fused)
        self._open_rows.setdefault(name, []).append(row)
        if skipped:
            scale = row["scale"] if row["scale"] is not None else 1.0
            for listener in self._skip_listeners:
                listener(optimizer, opt, scale)
        segment = self.session.segment
        self.session.outbox.hold = True
        self.optimizers.finish(opt, "skipped" if skipped else "stepped")
        self.step_recorded[name] = self.step_recorded.get(name, False) or segment.told

    def _decide(self, scaler: Any, optimizer: Any, row: Any, call_row: Any, fused: bool) -> bool:
        """Whether the step was skipped. A fused optimizer is called on skipped steps too: ask found_inf."""
        found: list[float] = []
        flags = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
        segment = self.session.segment

        def receive(value: float) -> None:
            found.append(value)
            row["found_inf"] = any(v > 0.0 for v in found)
            row["skipped"] = row["found_inf"]
            if row["skipped"]:
                call_row["detail"] = "skipped"
                segment.outcome = "skipped"

        if not fused:
            receive(0.0 if self.optimizers.here.stepped else 1.0)
            return not self.optimizers.here.stepped
        for flag in flags:
            self.session.deferred.put(flag, receive)
        return any(v > 0.0 for v in found)

    # -- update -----------------------------------------------------------------------------------------------------

    def _update(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        scaler = call.args[0]
        if not scaler.is_enabled():
            return
        session = self.session
        name = session.objects.name(scaler)
        call_row = session.call_row(
            "scaler.update",
            recorded=self.step_recorded.pop(name, None),
            object=name,
            value=self.known_scales.get(name),
            phase="other",
        )
        if call.argument(1, "new_scale") is not None:
            call_row["detail"] = "new_scale"
        self.update_ends(scaler, name, call_row, error)

    def update_ends(self, scaler: Any, name: str, call_row: Row, error: BaseException | None) -> None:
        """A scaler has decided on its scale, or raised `error`: completes the rows of the steps before."""
        session = self.session
        session.calls.failed(call_row, error)
        if error is not None:
            return
        self.read(scaler, name, self._open_rows.pop(name, []), call_row)
        session.release(scaler)

    def read(self, scaler: Any, name: str, rows: list[Row], call_row: Row | None = None) -> None:
        """Note the scale and the growth tracker that an update has left, in the `rows` of the steps before it."""

        def scale(value: float) -> None:
            self.known_scales[name] = value
            if call_row is not None:
                call_row["value"] = value
            for row in rows:
                row["scale_after"] = value

        def tracker(value: float) -> None:
            for row in rows:
                row["growth_tracker"] = int(value)

        for source, receive in ((scaler._scale, scale), (scaler._growth_tracker, tracker)):
            if source is not None:
                self.session.deferred.put(source, receive)


def stage_of(scaler: Any, optimizer: Any) -> OptState | None:
    """What the scaler has done with the optimizer since the last update; None when it has not met it."""
    state = scaler._per_optimizer_states.get(id(optimizer))
    return None if state is None else state["stage"]


def policy_of(scaler: Any) -> Row:
    """Columns of `scaler` that say by which rule it changes its scale."""
    return {
        "growth_factor": float(scaler.get_growth_factor()),
        "backoff_factor": float(scaler.get_backoff_factor()),
        "growth_interval": int(scaler.get_growth_interval()),
        "init_scale": float(getattr(scaler, "_init_scale", 1.0)),
    }


def _policy(scaler: Any) -> str:
    return f"growth_interval={getattr(scaler, '_growth_interval', '')}"
