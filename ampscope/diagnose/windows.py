"""What the API calls mean together: the life of one optimizer's gradients from step to step, and the order of
unscale_, step and update that a GradScaler demands. Says what happened, not whether it is a fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ampscope.diagnose.calls import Call, of_kind
from ampscope.diagnose.policy import Policy

Owners = Mapping[str, str]
"""Parameter name to the optimizer that holds it."""

CLIPS = ("clip_grad_norm_", "clip_grad_value_")
_GRADIENT_CALLS = ("grad_edit", *CLIPS)


@dataclass(frozen=True)
class Window:
    """The calls that concern one optimizer from the end of its last step to the end of this one.

    `step` is the scaler.step or optimizer.step that closed it, None when the run ended before one came.
    `scale` is the loss scale in force, None when no scaler was used.
    """

    opt: str
    calls: tuple[Call, ...]
    step: Call | None
    scale: float | None
    first_of_optimizer: bool

    def of_kind(self, *kinds: str) -> list[Call]:
        return of_kind(self.calls, *kinds)

    @property
    def live(self) -> tuple[Call, ...]:
        """The calls since the gradients were last cleared."""
        cleared = [i for i, c in enumerate(self.calls) if c.call == "optimizer.zero_grad" and c.error is None]
        return self.calls[cleared[-1] + 1 :] if cleared else self.calls

    @property
    def backwards(self) -> list[Call]:
        """The backward calls whose gradients the step used."""
        return [c for c in of_kind(self.live, "backward") if c.error is None]

    @property
    def via_scaler(self) -> bool:
        return self.step is not None and self.step.call == "scaler.step"

    @property
    def skipped(self) -> bool:
        return self.step is not None and self.step.has("skipped")

    @property
    def unscaled(self) -> Call | None:
        """The first unscale_ of this window that went through."""
        return next((c for c in self.of_kind("scaler.unscale_") if c.error is None), None)

    def hand_unscale(self, policy: Policy) -> Call | None:
        """An in-place edit of the gradients by 1/scale; None without one."""
        if self.scale is None or self.scale < policy.scale_matters:
            return None
        for edit in of_kind(self.live, "grad_edit"):
            factor = common_factor(edit, policy.same_factor)
            if factor is not None and abs(math.log2(factor * self.scale)) <= policy.hand_unscale_log2:
                return edit
        return None


def common_factor(edit: Call, spread: float) -> float | None:
    """The factor by which an edit multiplied every gradient that it touched; None where the factors of two of
    them are more than `spread` apart, as a ratio.

    The recorder gives the median ratio of the norms after and before as `value`, and the largest such ratio
    over the smallest as `limit`.
    """
    factor, apart = edit.value, edit.limit
    if factor is None or apart is None or not math.isfinite(factor) or factor <= 0.0 or apart > spread:
        return None
    return factor


def to_fixed_norm(edits: Sequence[Call], spread: float) -> bool:
    """Whether edits of one place multiplied all gradients of a step alike, by another factor in each step, so that they
    end with one and the same norm: a clip or a normalisation written by hand."""
    factors = [common_factor(e, spread) for e in edits]
    norms = [e.norm for e in edits if e.norm is not None]
    known = [f for f in factors if f is not None]
    if len(known) < len(edits) or len(norms) < len(edits) or min(norms, default=0.0) <= 0.0:
        return False
    return max(norms) <= spread * min(norms) and max(known) > spread * min(known)


@dataclass(frozen=True)
class Breach:
    """A scaler call that its protocol forbids. `prior` is the call that it collides with."""

    kind: Literal["unscale-after-unscale", "unscale-after-step", "step-after-step", "update-without-check"]
    call: Call
    prior: Call | None


@dataclass
class _Open:
    calls: list[Call] = field(default_factory=list)
    windows: int = 0


def optimizers_of(calls: Iterable[Call]) -> tuple[str, ...]:
    """The optimizers that a stream names, in order of first mention."""
    seen: dict[str, None] = {}
    for c in calls:
        if c.call.startswith("optimizer.") and c.object and not c.has("module"):
            seen.setdefault(c.object)
        elif c.call in ("scaler.step", "scaler.unscale_") and c.target:
            seen.setdefault(c.target)
    return tuple(seen)


def concerned(call: Call, optimizers: tuple[str, ...], owners: Owners) -> tuple[str, ...]:
    """The optimizers whose gradients a call may touch.

    A backward names those that it fed. For clips and edits the names of the parameters tell, where the trace
    knows who holds them; where it does not, every optimizer of the process that no known name rules out.
    """
    if call.has("module"):
        return _below_module(call.object or "", optimizers, owners)
    if call.call.startswith("optimizer."):
        return (call.object,) if call.object else ()
    if call.call in ("scaler.step", "scaler.unscale_"):
        return (call.target,) if call.target else ()
    if call.call == "backward":
        return tuple((call.target or "").split(",")) if call.target else ()
    if call.call not in _GRADIENT_CALLS:
        return ()
    owned = {owners[name] for name in call.params if name in owners}
    if call.all_params_named and all(name in owners for name in call.params):
        return tuple(o for o in optimizers if o in owned)
    known = set(owners.values())
    return tuple(o for o in optimizers if o in owned or o not in known or not call.all_params_named)


def _below_module(module: str, optimizers: tuple[str, ...], owners: Owners) -> tuple[str, ...]:
    """The optimizers with a parameter below a module; all for the root, whose name prefixes nothing."""
    below = {opt for name, opt in owners.items() if name.startswith(f"{module}.")}
    return tuple(o for o in optimizers if o in below) or optimizers


def windows_of(calls: tuple[Call, ...], owners: Owners) -> list[Window]:
    """The windows of every optimizer of a stream, in the order in which they closed; open ones come last.

    An edit of the gradients that is noticed on entry to a step stands behind the step in the calls, and
    belongs before it. So do the calls of a closure, with their backward.
    """
    calls = _closures_first(calls)
    optimizers = optimizers_of(calls)
    state = {o: _Open() for o in optimizers}
    scale: float | None = None
    done: list[Window] = []
    closing: tuple[str, Call] | None = None
    for c in calls:
        if c.has("via_scaler") or c.has("inside_step"):
            continue
        if closing is not None and c.call != "grad_edit":
            done.append(_close(closing[0], state[closing[0]], closing[1], scale))
            closing = None
        if c.call in ("scaler.scale", "scaler.step", "scaler.unscale_") and c.value is not None:
            scale = c.value
        for o in concerned(c, optimizers, owners):
            state[o].calls.append(c)
            if c.call in ("scaler.step", "optimizer.step"):
                closing = (o, c)
    if closing is not None:
        done.append(_close(closing[0], state[closing[0]], closing[1], scale))
    done.extend(_close(o, s, None, scale) for o, s in state.items() if s.calls)
    return done


def _closures_first(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """The calls with each `optimizer.step(closure)` moved behind what its closure did. A step ends its segment, so that
    a backward which follows it there ran inside of it; the gradients that it used are those of the last one."""
    moved: list[Call] = []
    place = 0
    while place < len(calls):
        step = calls[place]
        end = place + 1
        if step.call == "optimizer.step" and not step.has("via_scaler"):
            while end < len(calls) and calls[end].segment == step.segment:
                end += 1
        inside = calls[place + 1 : end]
        last = next((c for c in reversed(inside) if c.call == "backward" and c.error is None), None)
        if last is None or any(c.call in ("optimizer.step", "scaler.step") for c in inside):
            moved.append(step)
            place += 1
            continue
        moved += [*inside, replace(step, scaled=_after(last, inside))]
        place = end
    return tuple(moved)


def _after(backward: Call, inside: Sequence[Call]) -> str | None:
    """Whether gradients carry the scale at the end of a closure with this last backward."""
    later = inside[inside.index(backward) + 1 :]
    return "unscaled" if of_kind(later, "scaler.unscale_") else backward.scaled


def _close(opt: str, state: _Open, step: Call | None, scale: float | None) -> Window:
    window = Window(opt, tuple(state.calls), step, scale, first_of_optimizer=state.windows == 0)
    state.calls = []
    state.windows += 1
    return window


def breaches_of(calls: tuple[Call, ...]) -> list[Breach]:
    """Every unscale_, step or update of a stream that came in an order which GradScaler forbids.

    The stages are those of torch.amp.GradScaler (ready, unscaled, stepped, per optimizer, reset by update).
    Calls that raised are judged but change no stage, as in torch.
    """
    stage: dict[tuple[str | None, str | None], Call] = {}
    checked: dict[str | None, Call] = {}
    found: list[Breach] = []
    for c in calls:
        if c.has("inside_step"):
            continue
        key = (c.object, c.target)
        prior = stage.get(key)
        if c.call == "scaler.unscale_":
            if prior is not None:
                kind = "unscale-after-step" if prior.call == "scaler.step" else "unscale-after-unscale"
                found.append(Breach(kind, c, prior))  # type: ignore[arg-type]
        elif c.call == "scaler.step":
            if prior is not None and prior.call == "scaler.step":
                found.append(Breach("step-after-step", c, prior))
        elif c.call == "scaler.update":
            if c.object not in checked and c.error is not None:
                found.append(Breach("update-without-check", c, None))
        else:
            continue
        if c.error is not None or c.enabled is False:
            continue
        if c.call == "scaler.update":
            checked.pop(c.object, None)
            stage = {k: v for k, v in stage.items() if k[0] != c.object}
        else:
            checked[c.object] = c
            stage[key] = c
    return found
