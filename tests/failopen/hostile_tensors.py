"""Tensors that are no plain float tensors: nested, quantised, complex, sparse, meta, fake, subclasses."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from tests.bitexact.snapshot import Trained
from tests.failopen.small import Net, case, fit


@case
def nested_tensors() -> Trained:
    def loss_of(y: Tensor) -> Tensor:
        return sum((part.pow(2).mean() for part in y.unbind()), torch.zeros(()))

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for layout in (torch.strided, torch.jagged):
        for _ in range(2):
            x = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=layout)
            loss = loss_of(model(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return Trained([model], [optimizer], losses=losses)


@case
def quantised_tensors() -> Trained:
    class Quantised(Net):
        def forward(self, x: Tensor) -> Any:
            q = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
            return self.b(self.a(self.c(q)).relu()), q

        def __init__(self) -> None:
            super().__init__()
            self.c = nn.Identity()
            self.d = Dequantise()

    class Dequantise(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return q.dequantize()

    model = Quantised()
    model.add_module("c", Dequantise())
    return fit(model, lambda out: out[0].pow(2).mean() + out[1].dequantize().sum())


@case
def complex_numbers() -> Trained:
    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 2, dtype=torch.complex64))
            self.v = nn.Parameter(torch.randn(2, 2, dtype=torch.complex128))

        def forward(self, x: Tensor) -> Any:
            z = torch.fft.fft(x.to(torch.complex64) @ self.w)
            return (z.conj().to(torch.complex128) @ self.v.conj()).imag.neg() + z.real

    model = Complex()
    trained = fit(model)
    return Trained(losses=trained.losses, extra=[model.w.detach(), model.v.detach()])


@case
def complex_losses() -> Trained:
    model = nn.Linear(4, 2, dtype=torch.complex64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        out = model(torch.randn(3, 4, dtype=torch.complex64)).sum()
        out.backward(torch.ones((), dtype=torch.complex64))
        optimizer.step()
    return Trained(extra=[p.detach() for p in model.parameters()])


@case
def sparse_tensors() -> Trained:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb = nn.EmbeddingBag(10, 4, sparse=True, mode="sum")
            self.w = nn.Parameter(torch.randn(4, 4))
            self.id = nn.Identity()

        def forward(self, x: Tensor) -> Any:
            i = (x.abs() * 3).long().clamp(0, 9)
            h = self.emb(i)
            coo = self.id((self.w * (self.w > 0)).to_sparse())
            return torch.sparse.mm(coo, h.t()).t(), coo, coo.detach().to_sparse_csr()

    model = Sparse()
    return fit(model, lambda out: out[0].pow(2).mean() + torch.sparse.sum(out[1]))


@case
def compressed_parameters() -> Trained:
    class Csr(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = nn.Buffer(torch.eye(4).to_sparse_csr())
            self.lin = nn.Linear(4, 2)
            self.id = nn.Identity()

        def forward(self, x: Tensor) -> Any:
            return self.lin((self.id(self.mask) @ x.t()).t()), self.id(self.mask)

    model = Csr()
    trained = fit(model, lambda out: out[0].pow(2).mean())
    return Trained([model.lin], trained.optimizers, losses=trained.losses)


@case
def meta_models_in_between() -> Trained:
    with torch.device("meta"):
        ghost = Net()

    def look(step: int, optimizer: Any) -> None:
        ghost(torch.randn(3, 4, device="meta")).sum().backward()

    return fit(Net(), each=look)


@case
def fake_tensors_in_between() -> Trained:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def look(step: int, optimizer: Any) -> None:
        with FakeTensorMode():
            Net()(torch.randn(3, 4)).sum().backward()

    return fit(Net(), each=look)


class Grumpy(torch.Tensor):
    """Counts every torch function that touches it, and refuses the innocent ones."""

    seen = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Grumpy.seen += 1
        if getattr(func, "__name__", "") in ("numel", "is_floating_point", "isfinite", "item", "dim"):
            raise RuntimeError("not with me")
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


@case
def subclasses_with_functions_of_their_own() -> Trained:
    class Wraps(Net):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x.as_subclass(Grumpy)).as_subclass(torch.Tensor)

    class Inside(Net):
        def __init__(self) -> None:
            super().__init__()
            self.id = nn.Identity()

        def forward(self, x: Tensor) -> Any:
            return self.id(super().forward(x).as_subclass(Grumpy))

    losses = []
    one, two = Wraps(), Inside()
    for model in (one, two):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(3, 4)).as_subclass(torch.Tensor).pow(2).mean()
            loss.backward()
            for p in model.parameters():
                assert p.grad is not None
                p.grad = p.grad.as_subclass(torch.Tensor)
            optimizer.step()
            losses.append(loss.detach())
    return Trained([one, two], losses=losses, extra=Grumpy.seen)


class Wrapped(torch.Tensor):
    """A wrapper subclass with a dispatch of its own, which logs every op."""

    seen: list[str] = []  # noqa: RUF012
    held: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapped:
        made: Any = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=inner.requires_grad
        )
        made.held = inner
        return made  # type: ignore[no-any-return]

    def __init__(self, inner: Tensor) -> None:
        pass

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        Wrapped.seen.append(str(func))

        def down(value: Any) -> Any:
            return value.held if isinstance(value, Wrapped) else value

        def up(value: Any) -> Any:
            return Wrapped(value) if isinstance(value, Tensor) and not isinstance(value, Wrapped) else value

        tree_map = torch.utils._pytree.tree_map
        out = func(*tree_map(down, args), **tree_map(down, kwargs or {}))
        return tree_map(up, out)


def held(tensor: Any) -> Tensor:
    return tensor.held  # type: ignore[no-any-return]


@case
def subclasses_with_a_dispatch_of_their_own() -> Trained:
    weights = [nn.Parameter(Wrapped(torch.randn(4, 4))), nn.Parameter(torch.randn(4, 2))]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.v = weights
            self.id = nn.Identity()

        def forward(self, x: Tensor) -> Any:
            return self.id((Wrapped(x) @ self.w).relu() @ self.v)

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).pow(2).mean().backward()
        optimizer.step()
    return Trained(extra=[held(weights[0]), weights[1].detach(), Wrapped.seen])


@case
def two_tensor_subclass() -> Trained:
    from torch.testing._internal.two_tensor import TwoTensor

    w: Any = nn.Parameter(TwoTensor(torch.randn(4, 2), torch.randn(4, 2)))
    optimizer = torch.optim.SGD([w], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (torch.randn(3, 4) @ w).pow(2).mean().backward()
        optimizer.step()
    return Trained(extra=[w.a.detach(), w.b.detach()])


@case
def requires_grad_views() -> Trained:
    base = torch.randn(6, 4, requires_grad=True)
    model = Net()

    def loss_of(out: Tensor) -> Tensor:
        view = base.view(-1)[::2]
        return (out + view[:2]).pow(2).mean()

    trained = fit(model, loss_of)
    return Trained([model], losses=trained.losses, extra=base.grad)


@case
def every_dtype_there_is() -> Trained:
    class Mixed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.id = nn.Identity()

        def forward(self, x: Tensor) -> Any:
            y = super().forward(x)
            for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
                          torch.int8, torch.uint8, torch.bool, torch.complex32, torch.uint16):  # fmt: skip
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    self.id(y.detach().to(dtype))
            return y

    return fit(Mixed())
