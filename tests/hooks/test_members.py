from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ampscope.hooks.members import children, modules, parameters


def model() -> nn.Module:
    """Shared modules and parameters, an empty slot, a list and a module without a forward."""
    shared = nn.Linear(2, 2)
    inner = nn.ModuleDict({"x": shared, "y": nn.Sequential(shared, nn.BatchNorm1d(2))})
    made = nn.Module()
    made.first, made.inner = nn.Linear(2, 3, bias=False), inner
    made.register_module("none", None)
    made.again = inner
    made.tied = made.first.weight
    return made


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_the_order_and_the_names_are_those_of_torch() -> None:
    roots: tuple[nn.Module, ...] = (
        model(),
        nn.Linear(2, 2),
        torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.Tanh())),
    )
    for root in roots:
        assert [(n, id(m)) for n, m in modules(root)] == [(n, id(m)) for n, m in root.named_modules()]
        assert [(n, id(p)) for n, p in parameters(root)] == [(n, id(p)) for n, p in root.named_parameters()]


def test_nothing_of_the_class_is_asked() -> None:
    class Hostile(nn.Module):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __len__(self) -> int:
            raise RuntimeError("no length")

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("not comparable")

        __hash__ = None  # type: ignore[assignment]

    def refuse(self: nn.Module, kind: str, recurse: bool = True) -> Any:
        raise RuntimeError(kind)

    for name in ("parameters", "named_parameters", "modules", "named_modules", "children", "named_children"):
        setattr(Hostile, name, refuse)
    root = Hostile()
    root.layer = nn.Linear(2, 2)
    assert [name for name, _ in children(root)] == ["layer"]
    assert [name for name, _ in modules(root)] == ["", "layer"]
    assert [name for name, _ in parameters(root)] == ["layer.weight", "layer.bias"]
