"""Names for modules, parameters, optimizers and scalers that stay the same over a run and between two runs.

Holds no strong reference to anything of the user's.
"""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from ampscope.hooks.members import children, modules, parameters

_WRAPPERS = re.compile(
    r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|module)(?:\.|$)"
)


def plain_name(name: str) -> str:
    """`name` without the prefixes that torch.compile, DDP, FSDP and checkpoint wrappers put into it."""
    return _WRAPPERS.sub("", name).rstrip(".")


def _class_name(module: torch.nn.Module) -> str:
    """Class of the user's own model inside the wrappers of torch.compile, DDP and FSDP."""
    while True:
        below = dict(children(module))
        inner = below.get("_orig_mod", below.get("module"))
        if inner is None:
            return type(module).__name__
        module = inner


class Ordinals:
    """`Class#K`: objects numbered per class in the order in which they were first seen."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._counts: dict[str, Iterator[int]] = {}

    def name(self, thing: Any) -> str:
        entry = self._names.get(id(thing))
        if entry is not None and entry[0]() is thing:
            return entry[1]
        kind = type(thing).__name__
        # Threads that make objects at once get numbers of their own: each of these calls is one to the interpreter.
        name = f"{kind}#{next(self._counts.setdefault(kind, itertools.count()))}"
        self._names[id(thing)] = (weakref.ref(thing), name)
        return name

    def things(self) -> Iterator[tuple[str, Any]]:
        """Name and object of all that still live."""
        for ref, name in tuple(self._names.values()):
            thing = ref()
            if thing is not None:
                yield name, thing


class ModelNames:
    """Names of modules and parameters, learned when a root module first runs forward.

    The first root that has parameters gives plain names (`blocks.0.attn`); every other root prefixes its class
    name and its ordinal (`Discriminator#1.conv1`). The root itself is called by its class name. A root whose
    submodule ran on its own before takes over: from then on the submodule has its name within the root. One that
    runs on its own later keeps that name.
    """

    def __init__(self) -> None:
        self._modules: dict[int, tuple[weakref.ref[torch.nn.Module], str, weakref.ref[torch.nn.Module]]] = {}
        """Module, its name, and the root that gave it."""
        self._params: dict[int, tuple[weakref.ref[torch.Tensor], str, str]] = {}
        self._roots: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._plain_root: weakref.ref[torch.nn.Module] | None = None
        self._ordinals = Ordinals()
        self._unnamed: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}

    def add_root(self, root: torch.nn.Module) -> bool:
        """Learn the names below `root`; False when it was known already."""
        known = self._roots.get(id(root))
        if known is not None and known() is root:
            return False
        self._roots[id(root)] = weakref.ref(root)
        if not self.knows(root):
            self._learn(root)
        return True

    def _learn(self, root: torch.nn.Module) -> None:
        below = modules(root)
        has_params = next(parameters(root), None) is not None
        old = self._plain_root() if self._plain_root is not None else None
        if has_params and (old is None or any(m is old for _, m in below)):
            self._plain_root = weakref.ref(root)
            self._ordinals.name(root)
            prefix, own = "", _class_name(root)
        else:
            own = self._ordinals.name(root)
            prefix = f"{own}."
        for name, module in below:
            short = plain_name(name)
            full = prefix + short if short else own
            self._modules[id(module)] = (weakref.ref(module), full, weakref.ref(root))
        for name, param in parameters(root):
            short = plain_name(name)
            holder = short.rpartition(".")[0]
            module_name = prefix + holder if holder else own
            self._params[id(param)] = (weakref.ref(param), prefix + short, module_name)

    def module(self, module: torch.nn.Module) -> str:
        """Its name; a module that no root knows yet is called by its class."""
        entry = self._modules.get(id(module))
        if entry is not None and entry[0]() is module:
            return entry[1]
        return type(module).__name__

    def knows(self, module: torch.nn.Module) -> bool:
        entry = self._modules.get(id(module))
        return entry is not None and entry[0]() is module

    def relearn(self, root: torch.nn.Module) -> None:
        """Read the names below `root` again: modules were added since."""
        whole = self._modules[id(root)][2]() if self.knows(root) else None
        self._learn(root if whole is None else whole)

    def param(self, tensor: torch.Tensor) -> tuple[str, str] | None:
        """(parameter name, name of its module), or None when no root and no optimizer holds it."""
        entry = self._params.get(id(tensor))
        if entry is not None and entry[0]() is tensor:
            return entry[1], entry[2]
        unnamed = self._unnamed.get(id(tensor))
        if unnamed is not None and unnamed[0]() is tensor:
            return unnamed[1], ""
        return None

    def buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, buffer) of every live root."""
        for ref in self._roots.values():
            root = ref()
            if root is not None:
                for _, owner in modules(root):
                    for name, buffer in owner._buffers.items():
                        if buffer is not None:
                            yield f"{self.module(owner)}.{name}", buffer

    def in_model(self, tensor: torch.Tensor) -> bool:
        entry = self._params.get(id(tensor))
        return entry is not None and entry[0]() is tensor

    def name_unnamed(self, tensor: torch.Tensor, name: str) -> None:
        """Give a parameter that only an optimizer knows a name of last resort."""
        self._unnamed[id(tensor)] = (weakref.ref(tensor), name)
