"""Threads, inference mode, training by hand, transforms, other defaults and scripted models."""

from __future__ import annotations

import contextlib
import threading
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from tests.bitexact.snapshot import Trained
from tests.failopen.small import Net, case, fit


@case
def forwards_in_many_threads() -> Trained:
    model, other = Net(), Net()
    stop = threading.Event()
    seen: list[Tensor] = []
    x = torch.ones(3, 4)

    def serve() -> None:
        while not stop.is_set():
            with torch.no_grad():
                seen.append(other(x))
            other(x).sum().backward()

    threads = [threading.Thread(target=serve) for _ in range(3)]
    for thread in threads:
        thread.start()
    trained = fit(model, steps=8)
    stop.set()
    for thread in threads:
        thread.join()
    assert all(torch.equal(seen[0], y) for y in seen)
    return trained


@case
def training_in_many_threads() -> Trained:
    models = [Net() for _ in range(3)]
    inputs = [torch.randn(3, 4) for _ in models]
    states: list[Any] = [None] * len(models)

    def learn(index: int) -> None:
        optimizer = torch.optim.AdamW(models[index].parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for _ in range(6):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = models[index](inputs[index]).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(models[index].parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        states[index] = optimizer.state_dict()

    threads = [threading.Thread(target=learn, args=(index,)) for index in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Trained(models, extra=states)


@case
def inference_in_between() -> Trained:
    model = Net()
    outs: list[Tensor] = []

    def look(step: int, optimizer: Any) -> None:
        with torch.inference_mode():
            outs.append(model(torch.randn(3, 4)).clone())
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            outs.append(model(torch.randn(3, 4)).float())
        outs.append(nn.Linear(2, 2)(torch.ones(1, 2)).detach())

    trained = fit(model, each=look)
    return Trained([model], trained.optimizers, losses=trained.losses, extra=[o.sum().item() for o in outs])


@case
def everything_in_inference_mode() -> Trained:
    outs = []
    with torch.inference_mode():
        model = Net()
        for _ in range(3):
            outs.append(float(model(torch.randn(3, 4)).sum()))
    trained = fit(Net())
    return Trained(trained.models, trained.optimizers, losses=trained.losses, extra=outs)


@case
def training_by_hand() -> Trained:
    w, b = torch.randn(4, 2, requires_grad=True), torch.zeros(2, requires_grad=True)
    losses = []
    for _ in range(6):
        loss = (torch.randn(3, 4) @ w + b).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for p in (w, b):
                assert p.grad is not None
                p -= 0.1 * p.grad
                p.grad.zero_()
        losses.append(loss.detach())
    for _ in range(3):
        grads = torch.autograd.grad((torch.randn(3, 4) @ w + b).pow(2).mean(), [w, b])
        with torch.no_grad():
            for p, g in zip((w, b), grads, strict=True):
                p.sub_(g, alpha=0.1)
    return Trained(losses=losses, extra=[w.detach(), b.detach()])


@case
def functional_transforms() -> Trained:
    from torch.func import functional_call, grad, grad_and_value, jacrev, jvp, vmap

    model = Net()
    params = {k: v.detach() for k, v in model.named_parameters()}

    def loss(p: Any, x: Tensor) -> Tensor:
        out: Tensor = functional_call(model, p, (x,))
        return out.pow(2).mean()

    losses = []
    for _ in range(4):
        x = torch.randn(3, 4)
        g, value = grad_and_value(loss)(params, x)
        each = vmap(grad(loss), in_dims=(None, 0))(params, x)
        params = {k: v - 0.1 * g[k] - 0.01 * each[k].mean(0) for k, v in params.items()}
        losses.append(value)
    tangent = jvp(lambda x: loss(params, x), (torch.ones(3, 4),), (torch.ones(3, 4),))
    jacobian = jacrev(lambda x: loss(params, x))(torch.ones(3, 4))
    return Trained([model], losses=losses, extra=[list(params.values()), list(tangent), jacobian])


@case
def forward_mode_derivatives() -> Trained:
    import torch.autograd.forward_ad as fwad

    model = Net()
    tangents = []

    def look(step: int, optimizer: Any) -> None:
        with fwad.dual_level():
            x = fwad.make_dual(torch.randn(3, 4), torch.ones(3, 4))
            tangents.append(fwad.unpack_dual(model(x)).tangent.detach())

    trained = fit(model, each=look)
    return Trained([model], trained.optimizers, losses=trained.losses, extra=tangents)


@case
def higher_derivatives() -> Trained:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(3, 4, requires_grad=True)
        loss = model(x).tanh().pow(2).mean()
        (g,) = torch.autograd.grad(loss, [x], create_graph=True)
        optimizer.zero_grad()
        (loss + g.pow(2).sum()).backward()
        optimizer.step()
        torch.autograd.functional.hessian(lambda x: model(x).tanh().sum(), torch.ones(1, 4))
    return Trained([model], [optimizer])


@case
def other_defaults() -> Trained:
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("cpu")
    trained = fit(Net(), dtype=torch.float64)
    with torch.device("meta"):
        ghost = nn.Linear(2, 2)
    with torch.device("cpu"):
        more = fit(Net(), dtype=torch.float64)
    torch.set_default_device("meta")
    again = fit_on_cpu()
    return Trained(
        [*trained.models, *more.models, *again.models],
        losses=[*trained.losses, *more.losses],
        extra=ghost.weight.device.type,
    )


def fit_on_cpu() -> Trained:
    """A loop that names its device everywhere, because the default is another."""
    model = Net().to_empty(device="cpu")
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(3, 4, device="cpu")).pow(2).mean().backward()
        optimizer.step()
    return Trained([model], [optimizer])


@case
def anomaly_and_saved_tensor_hooks() -> Trained:
    packed: list[int] = []

    def pack(t: Tensor) -> Any:
        packed.append(t.numel())
        return t.clone()

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t),
            torch.autograd.set_detect_anomaly(True),
        ):
            loss = model(torch.randn(3, 4)).pow(2).mean()
            loss.backward(retain_graph=True)
            loss.backward()
        optimizer.step()
    return Trained([model], [optimizer], extra=packed)


@case
def models_that_are_scripted_and_traced() -> Trained:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)))
        traced = torch.jit.trace(nn.Sequential(nn.Linear(4, 2), nn.Tanh()), torch.ones(1, 4))
    one, two = fit(scripted), fit(traced)
    return Trained(losses=[*one.losses, *two.losses])


@case
def lazy_and_parametrised_modules() -> Trained:
    model = nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.Linear(5, 2))
    model(torch.ones(3, 4))
    nn.utils.parametrizations.spectral_norm(model[2])
    nn.utils.parametrizations.weight_norm(model[0])
    return fit(model)


@case
def losses_of_every_shape() -> Trained:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        y = model(torch.randn(3, 4))
        y.backward(torch.ones_like(y), retain_graph=True)
        torch.autograd.backward(
            [y.sum(), y.mean(0, keepdim=True)], [None, torch.ones(1, 2)], retain_graph=True
        )
        y[0, 0].backward(retain_graph=True, inputs=[model.a.weight])
        y.sum().view(1, 1).backward()
        with contextlib.suppress(RuntimeError):
            y.sum().backward()
        with contextlib.suppress(RuntimeError):
            torch.ones(2).sum().backward()
        optimizer.step()
    return Trained([model], [optimizer])
