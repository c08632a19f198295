"""The members of a module as torch keeps them, whatever its class makes of `named_modules`, `parameters`, `children`,
`__getattr__`, `__len__` or `__eq__`. Calls no method of the module.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch


def children(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """(name, submodule) of those directly below `module`, in order; one that is held twice comes twice."""
    return [(name, child) for name, child in module._modules.items() if child is not None]


def modules(root: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """(dotted name, module) of `root`, called "", and all below it, each once, in the order of `named_modules`."""
    found: list[tuple[str, torch.nn.Module]] = []
    seen: set[int] = set()
    stack = [("", root)]
    while stack:
        name, module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        found.append((name, module))
        prefix = f"{name}." if name else ""
        stack += [(prefix + own, child) for own, child in reversed(children(module))]
    return found


def parameters(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """(dotted name, parameter) of `root` and all below it, each once, in the order of `named_parameters`."""
    seen: set[int] = set()
    for name, module in modules(root):
        prefix = f"{name}." if name else ""
        for own, param in module._parameters.items():
            if param is not None and id(param) not in seen:
                seen.add(id(param))
                yield prefix + own, param
