"""Models whose attributes, methods and outputs are not made for being looked at."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tests.bitexact.snapshot import Trained
from tests.failopen.small import Net, case, fit


@case
def attributes_that_raise() -> Trained:
    class Hostile(Net):
        def __getattr__(self, name: str) -> Any:
            if name in ("a", "b", "training"):
                return super().__getattr__(name)
            raise RuntimeError(f"no {name} here")

    return fit(Hostile())


@case
def attributes_that_are_always_there() -> Trained:
    class Hostile(Net):
        def __getattr__(self, name: str) -> Any:
            if name in ("a", "b"):
                return super().__getattr__(name)
            return self

    return fit(Hostile())


@case
def attributes_of_odd_types() -> Trained:
    class Odd:
        def __getattr__(self, name: str) -> Any:
            return 0

        def __bool__(self) -> bool:
            raise RuntimeError("neither")

        def __iter__(self) -> Any:
            raise RuntimeError("no items")

    class Hostile(Net):
        def __getattr__(self, name: str) -> Any:
            return super().__getattr__(name) if name in ("a", "b") else Odd()

    return fit(Hostile())


@case
def truth_length_and_equality() -> Trained:
    class Hostile(Net):
        def __len__(self) -> int:
            return 0

        def __bool__(self) -> bool:
            raise RuntimeError("ambiguous")

        def __eq__(self, other: object) -> Any:
            raise RuntimeError("not comparable")

        __hash__ = nn.Module.__hash__

        def __repr__(self) -> str:
            raise RuntimeError("no words")

    return fit(Hostile())


@case
def methods_of_another_signature() -> Trained:
    class Hostile(Net):
        def parameters(self, kind: str = "", *, must: int = 0) -> Any:  # type: ignore[override]
            if must != 1:
                raise TypeError("which ones?")
            return super().parameters()

        def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
            return [(name, p) for name, p in nn.Module.named_parameters(self, *args, **kwargs)]

        def named_modules(self, *args: Any, **kwargs: Any) -> Any:
            return list(super().named_modules(*args, **kwargs))

        def children(self, deep: bool) -> Any:  # type: ignore[override]
            return iter(())

    model = Hostile()
    optimizer = torch.optim.SGD([*model.a.parameters(), *model.b.parameters()], lr=0.1)
    for _ in range(3):
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return Trained([model.a, model.b], [optimizer])


@case
def a_forward_that_deletes_and_rebuilds() -> Trained:
    class Hostile(Net):
        def forward(self, x: Tensor) -> Any:
            a, b = self.a, self.b
            del self.a, self.b
            self.extra = nn.ReLU()
            y = b(self.extra(a(x)))
            del self.extra
            self.a, self.b = a, b
            self.register_buffer("seen", y.detach().mean())
            return y

    return fit(Hostile())


@case
def a_forward_that_raises_now_and_then() -> Trained:
    class Hostile(Net):
        calls = 0

        def forward(self, x: Tensor) -> Any:
            self.calls += 1
            h = self.a(x)
            if self.calls % 2:
                raise KeyError("not yet")
            return self.b(h)

    model = Hostile()

    def again(step: int, optimizer: Any) -> None:
        with contextlib.suppress(KeyError):
            model(torch.randn(3, 4))

    return fit(model, each=again)


@case
def a_model_that_calls_itself() -> Trained:
    class Hostile(Net):
        def forward(self, x: Tensor, depth: int = 3) -> Any:
            return self.b(self.a(x).relu()) if depth == 0 else self(x * 0.5, depth - 1)

    return fit(Hostile())


@case
def a_model_that_trains_another_inside() -> Trained:
    inner = Net()
    inner_optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)

    class Hostile(Net):
        def forward(self, x: Tensor) -> Any:
            with torch.enable_grad():
                inner(x.detach()).sum().backward()
            inner_optimizer.step()
            return self.b(self.a(x).relu())

    trained = fit(Hostile())
    return Trained([*trained.models, inner], trained.optimizers, losses=trained.losses)


@dataclass
class Output:
    y: Tensor
    more: Any = None


@dataclass(frozen=True)
class Slotted:
    __slots__ = ("y",)
    y: Tensor


Named = namedtuple("Named", ["y", "rest"])


class Untouchable:
    """Whatever is asked of it, it raises."""

    def __init__(self, y: Tensor) -> None:
        object.__setattr__(self, "_y", y)

    def __getattribute__(self, name: str) -> Any:
        if name == "take":
            return lambda: object.__getattribute__(self, "_y")
        raise RuntimeError(f"{name} is not for you")


class BadDict(dict[str, Any]):
    def values(self) -> Any:
        raise RuntimeError("no values")

    def items(self) -> Any:
        raise RuntimeError("no items")


class BadList(list[Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("no order")


def returning(make: Callable[[Tensor], Any], take: Callable[[Any], Tensor]) -> Trained:
    """A model whose layers and root return `make(y)`; `take` gets the tensor back."""

    class Layer(nn.Linear):
        def forward(self, x: Any) -> Any:
            return make(super().forward(x))

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Layer(4, 5), Layer(5, 2)

        def forward(self, x: Tensor) -> Any:
            return make(take(self.b(take(self.a(x)).relu())))

    return fit(Odd(), lambda out: take(out).pow(2).mean())


@case
def outputs_in_a_dataclass() -> Trained:
    return returning(Output, lambda out: out.y)


@case
def outputs_in_a_slotted_dataclass() -> Trained:
    return returning(Slotted, lambda out: out.y)


@case
def outputs_in_a_namedtuple() -> Trained:
    return returning(lambda y: Named(y, {"z": [y, None, "x"]}), lambda out: out.y)


@case
def outputs_in_nested_dicts() -> Trained:
    return returning(
        lambda y: OrderedDict(a={"b": [{"c": (y,)}]}, n=None, s="text", f=1.5),
        lambda out: out["a"]["b"][0]["c"][0],
    )


@case
def outputs_from_a_generator() -> Trained:
    def make(y: Tensor) -> Iterator[Tensor]:
        yield y

    return returning(make, next)


@case
def no_output_at_all() -> Trained:
    class Silent(Net):
        def forward(self, x: Tensor) -> None:
            self.y = self.b(self.a(x).relu())

    model = Silent()
    return fit(model, lambda out: model.y.pow(2).mean())


@case
def outputs_that_cannot_be_looked_at() -> Trained:
    return returning(Untouchable, lambda out: out.take())


@case
def containers_that_cannot_be_walked() -> Trained:
    class Both(BadDict):
        pass

    trained = returning(lambda y: Both(y=y), lambda out: out["y"])
    more = returning(lambda y: BadList([y]), lambda out: out[0])
    return Trained([*trained.models, *more.models], losses=[*trained.losses, *more.losses])


@case
def a_list_that_contains_itself() -> Trained:
    def make(y: Tensor) -> Any:
        held: list[Any] = [y]
        held.append(held)
        return held

    return returning(make, lambda out: out[0])


@case
def a_hundred_thousand_outputs() -> Trained:
    return returning(lambda y: [y, *[y] * 1000, *range(100_000)], lambda out: out[0])


@case
def expanded_and_overlapping_outputs() -> Trained:
    return returning(
        lambda y: (y, y.expand(4, *y.shape), y.as_strided((2, 2), (1, 1)), y[:0], y.t(), y.unsqueeze(0)[0]),
        lambda out: out[0] + out[1].sum(0) + out[2].sum(),
    )


@case
def leaves_and_detached_outputs() -> Trained:
    free = nn.Parameter(torch.zeros(2))
    trained = returning(lambda y: (y, free, y.detach(), free[:1], torch.ones(2)), lambda out: out[0])
    return Trained([*trained.models], losses=trained.losses, extra=free.grad)
