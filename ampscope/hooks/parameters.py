"""Which parameters exist, who owns them, and which of them each backward fed. One hook per parameter, which only
notes an identity; reads no values.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ampscope.hooks.collector import Collector
from ampscope.hooks.members import parameters


class Parameters(Collector):
    """Registers a post-accumulate hook on every parameter of an optimizer or a root module, once.

    Registration at construction of the optimizer puts ours before an optimizer-in-backward hook, which would
    leave us with `grad is None`.
    """

    name = "parameters"

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self._handles: dict[int, tuple[weakref.ref[torch.Tensor], Any]] = {}
        self._owners: dict[int, tuple[str, int]] = {}
        self._groups: dict[str, tuple[int, ...]] = {}
        self.fed_now: list[torch.Tensor] = []
        self._last_fed: tuple[int, ...] = ()
        self._last_names: tuple[list[str], list[str]] = ([], [])
        self.grad_state: dict[str, str] = {}
        """Per optimizer: whether its gradients carry the loss scale now. Absent: no gradient since it stepped."""

    def remove(self) -> None:
        self.stop_noting()
        self._handles.clear()
        super().remove()

    def stop_noting(self) -> None:
        """Take the hooks off the parameters: nobody asks any more what a backward has fed."""
        for _, handle in self._handles.values():
            handle.remove()
        self.fed_now.clear()

    def new_root(self, root: torch.nn.Module) -> None:
        for _, param in parameters(root):
            self.watch(param)

    def watch(self, param: torch.Tensor) -> None:
        """Note the parameter's arrival in each backward."""
        known = self._handles.get(id(param))
        if (known is not None and known[0]() is param) or not param.requires_grad or not param.is_leaf:
            return
        if known is not None:
            # Of a parameter that is gone: what it was fed must not count for this one, which has its identity now.
            self.session.segment.fed.pop(id(param), None)
        # A builtin: the engine calls it for each parameter of each backward, also in steps that are only counted.
        handle = param.register_post_accumulate_grad_hook(self.fed_now.append)
        self._handles[id(param)] = (weakref.ref(param), handle)

    def own(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        """Take over an optimizer's parameter groups; at once when they are known already."""
        known = tuple(len(group["params"]) for group in optimizer.param_groups)
        if self._groups.get(name) == known:
            return
        self._groups[name] = known
        for index, group in enumerate(optimizer.param_groups):
            for position, param in enumerate(group["params"]):
                if not isinstance(param, torch.Tensor):
                    continue
                self._owners[id(param)] = (name, index)
                self.watch(param)
                if self.session.names.param(param) is None:
                    self.session.names.name_unnamed(param, f"{name}.group{index}.param{position}")

    def owner(self, param: torch.Tensor) -> tuple[str, int] | None:
        """(optimizer, parameter group) of a parameter."""
        return self._owners.get(id(param))

    def all(self) -> Iterator[torch.Tensor]:
        """Every live parameter that is watched."""
        for ref, _ in tuple(self._handles.values()):
            param = ref()
            if param is not None:
                yield param

    # -- what a backward feeds --------------------------------------------------------------------------------

    def backward_begins(self) -> None:
        self.fed_now.clear()

    def backward_ends(self, scaled: str) -> tuple[list[str], list[str]]:
        """(names of the parameters that this backward fed, their optimizers)."""
        fed = self.session.segment.fed
        now = tuple(map(id, self.fed_now))
        self.fed_now.clear()
        for key in now:
            fed.setdefault(key, len(fed))
        if now != self._last_fed:
            self._last_fed, self._last_names = now, self._names_of(now)
        names, owners = self._last_names
        for name in owners:
            before = self.grad_state.get(name)
            self.grad_state[name] = scaled if before in (None, scaled) else "mixed"
        return names, owners

    def _names_of(self, keys: tuple[int, ...]) -> tuple[list[str], list[str]]:
        names: list[str] = []
        owners: dict[str, None] = {}
        for key in keys:
            entry = self._handles.get(key)
            param = entry[0]() if entry is not None else None
            if param is not None:
                found = self.session.names.param(param)
                names.append(found[0] if found is not None else "?")
            owner = self._owners.get(key)
            if owner is not None:
                owners[owner[0]] = None
        return names, list(owners)

    def state_of(self, params: Iterable[Any]) -> str | None:
        """Whether the gradients of these parameters carry the scale; None when none has a gradient."""
        states = set()
        for param in params:
            owner = self._owners.get(id(param))
            state = self.grad_state.get(owner[0]) if owner is not None else None
            if state is not None:
                states.add(state)
        if not states:
            return None
        return states.pop() if len(states) == 1 else "mixed"
