"""Loops with a shape of their own: several optimizers, closures, accumulation, custom functions, higher
derivatives, the user's own hooks and modes. As in zoo.py, nothing here may know that it is being recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel
from torch.utils.flop_counter import FlopCounterMode

from tests.bitexact.snapshot import Trained
from tests.bitexact.zoo import DTYPES, autocast, batch, fit, loop, mlp, scaler_for


@loop
def accumulation_and_clip(precision: str) -> Trained:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    scaler = scaler_for(precision)
    losses = []
    for _ in range(5):
        for _ in range(3):
            inputs, targets = batch()
            with autocast(precision):
                loss = F.cross_entropy(model(inputs), targets) / 3
            scaler.scale(loss).backward()
            losses.append(loss.detach())
        scaler.unscale_(optimizer)
        losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        optimizer.zero_grad()
    return Trained([model], [optimizer], [scaler], losses, schedule.state_dict())


def _gan(precision: str, scalers: list[torch.amp.GradScaler]) -> Trained:
    maker, critic = mlp(out=8), mlp(out=1)
    make_step, critic_step = (
        torch.optim.Adam(m.parameters(), lr=2e-3, betas=(0.5, 0.9)) for m in (maker, critic)
    )
    losses = []
    for step in range(6):
        for optimizer, scaler in ((critic_step, scalers[0]), (make_step, scalers[-1])):
            if optimizer is make_step and step % 2:
                continue
            optimizer.zero_grad()
            with autocast(precision):
                fake = maker(torch.randn(12, 8))
                if optimizer is critic_step:
                    logits = torch.cat([critic(torch.randn(12, 8)), critic(fake.detach().float())])
                    wanted = torch.cat([torch.ones(12, 1), torch.zeros(12, 1)])
                else:
                    logits, wanted = critic(fake), torch.ones(12, 1)
                loss = F.binary_cross_entropy_with_logits(logits.float(), wanted)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            losses.append(loss.detach())
        for scaler in scalers:
            if scaler is not scalers[-1] or len(scalers) == 1 or step % 2 == 0:
                scaler.update()
    return Trained([maker, critic], [make_step, critic_step], scalers, losses)


@loop
def gan_one_scaler(precision: str) -> Trained:
    return _gan(precision, [scaler_for(precision)])


@loop
def gan_two_scalers(precision: str) -> Trained:
    return _gan(precision, [scaler_for(precision, 2.0**12), scaler_for(precision, 2.0**6)])


@loop
def lbfgs_closure(precision: str) -> Trained:
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
    inputs, targets = batch()
    losses: list[Tensor] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        with autocast(precision):
            loss = F.cross_entropy(model(inputs).float(), targets)
        loss.backward()
        losses.append(loss.detach())
        return loss

    for _ in range(3):
        losses.append(optimizer.step(closure).detach())
    return Trained([model], [optimizer], losses=losses)


@loop
def sparse_embedding(precision: str) -> Trained:
    table, head = nn.EmbeddingBag(50, 8, mode="sum", sparse=True), nn.Linear(8, 4)
    sparse, dense = (
        torch.optim.SparseAdam(table.parameters(), lr=0.05),
        torch.optim.SGD(head.parameters(), lr=0.1),
    )
    scaler = scaler_for(precision)
    losses = []
    for _ in range(6):
        ids, targets = torch.randint(50, (10, 3)), torch.randint(4, (10,))
        sparse.zero_grad(), dense.zero_grad()
        with autocast(precision):
            loss = F.cross_entropy(head(table(ids)), targets)
        scaler.scale(loss).backward()
        scaler.step(sparse), scaler.step(dense)
        scaler.update()
        losses.append(loss.detach())
    return Trained([table, head], [sparse, dense], [scaler], losses)


class ScaledTanh(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y * 1.5

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad * (1 - y * y) * 1.5


@loop
def custom_function(precision: str) -> Trained:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.outer(ScaledTanh.apply(self.inner(x)))

    model = Net()
    return fit(precision, model, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def ema_averaged_model(precision: str) -> Trained:
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    average = AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    )
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    trained = fit(precision, model, optimizer, after_step=lambda step: average.update_parameters(model))
    trained.models = [model, average]
    return trained


@loop
def gradient_penalty(precision: str) -> Trained:
    """Double backward by the documented recipe: unscale the gradients by hand, then penalise their norm."""
    model = mlp(out=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = scaler_for(precision)
    losses = []
    for _ in range(6):
        inputs = torch.randn(12, 8, requires_grad=True)
        optimizer.zero_grad()
        with autocast(precision):
            score = model(inputs).float().mean()
        (grad,) = torch.autograd.grad(scaler.scale(score), inputs, create_graph=True)
        with autocast(precision):
            penalty = ((grad / scaler.get_scale()).norm(dim=1) - 1).square().mean()
            loss = score + 10 * penalty
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses += [loss.detach(), penalty.detach()]
    return Trained([model], [optimizer], [scaler], losses)


@loop
def functional_transforms(precision: str) -> Trained:
    """torch.func: per-sample gradients by vmap over grad, averaged and applied by a real optimizer."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []

    def one(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        with autocast(precision):
            out = torch.func.functional_call(model, parameters, (x.unsqueeze(0),))
        return F.cross_entropy(out.float(), y.unsqueeze(0))

    for _ in range(4):
        inputs, targets = batch()
        current = {name: p.detach() for name, p in model.named_parameters()}
        each, values = torch.func.vmap(torch.func.grad_and_value(one), in_dims=(None, 0, 0))(
            current, inputs, targets
        )
        for name, parameter in model.named_parameters():
            parameter.grad = each[name].mean(0)
        optimizer.step()
        losses.append(values)
    return Trained([model], [optimizer], losses=losses)


@loop
def evaluation_and_frozen_parts(precision: str) -> Trained:
    backbone, head = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2)), nn.Linear(16, 4)
    model = nn.Sequential(backbone, head)
    backbone.requires_grad_(False)
    groups: list[dict[str, Any]] = [
        {"params": backbone.parameters()},
        {"params": head.parameters(), "lr": 0.2},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    seen: list[Tensor] = []

    def evaluate(step: int) -> None:
        model.eval()
        with torch.no_grad(), autocast(precision):
            seen.append(model(torch.randn(5, 8)))
        with torch.inference_mode():
            seen.append(model(torch.randn(5, 8)).clone())
        model.train()
        if step == 3:
            backbone.requires_grad_(True)
        np.random.standard_normal(2)

    trained = fit(precision, model, optimizer, steps=7, after_step=evaluate)
    trained.extra = [tensor.float() for tensor in seen]
    return trained


@loop
def half_parameters(precision: str) -> Trained:
    """Weights stored in the precision itself, no autocast and no scaler."""
    dtype = DTYPES[precision]
    model = mlp().to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4)
    losses = []
    for _ in range(6):
        inputs, targets = batch()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs.to(dtype)), targets)
        loss.backward()
        losses.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        losses.append(loss.detach())
    return Trained([model], [optimizer], losses=losses)


@loop
def optimizer_in_backward(precision: str) -> Trained:
    """Each parameter steps as soon as its gradient is there, which then is gone."""
    model = mlp()
    optimizers = {p: torch.optim.SGD([p], lr=0.05, momentum=0.9) for p in model.parameters()}

    def step(parameter: Tensor) -> None:
        optimizers[parameter].step()  # type: ignore[index]
        optimizers[parameter].zero_grad()  # type: ignore[index]

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    losses = []
    for _ in range(6):
        inputs, targets = batch()
        with autocast(precision):
            loss = F.cross_entropy(model(inputs).float(), targets)
        loss.backward()
        losses.append(loss.detach())
    return Trained([model], list(optimizers.values()), losses=losses)


@loop
def users_own_hooks_and_modes(precision: str) -> Trained:
    """Forward, tensor, parameter and full-backward hooks of the user, and a dispatch mode that counts."""
    model = mlp()
    seen: list[Any] = []
    model[2].register_forward_hook(lambda module, args, out: out * 1.01)

    def backward_hook(module: nn.Module, grad_in: Any, grad_out: Any) -> None:
        seen.append(grad_out[0].float())

    model[2].register_full_backward_hook(backward_hook)
    model.get_parameter("0.weight").register_hook(lambda grad: grad * 0.5)
    counter = FlopCounterMode(display=False)
    with counter:
        trained = fit(precision, model, torch.optim.SGD(model.parameters(), lr=0.1))
    trained.extra = [seen, counter.get_total_flops()]
    return trained


@loop
def nested_outputs(precision: str) -> Trained:
    """A dict of tuples as output, a parametrized weight, an unused output and unused parameters."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.utils.parametrizations.weight_norm(nn.Linear(8, 16))
            self.heads = nn.ModuleList([nn.Linear(16, 4), nn.Linear(16, 2), nn.Linear(16, 3)])

        def forward(self, x: Tensor) -> dict[str, Any]:
            hidden = torch.tanh(self.body(x))
            return {"pair": (self.heads[0](hidden), self.heads[1](hidden)), "hidden": hidden, "none": None}

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, nesterov=True, momentum=0.5)
    scaler = scaler_for(precision)
    losses = []
    for _ in range(6):
        inputs, targets = batch()
        optimizer.zero_grad()
        with autocast(precision):
            out = model(inputs)
            loss = F.cross_entropy(out["pair"][0], targets) + out["pair"][1].square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return Trained([model], [optimizer], [scaler], losses)


@loop
def conditional(precision: str) -> Trained:
    """torch.cond with a branch that depends on the data."""

    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.first(x)
            hidden = torch.cond(x.sum() > 0, lambda h: h.sin(), lambda h: h.cos(), (hidden,))
            return self.second(hidden)

    model = Gate()
    return fit(precision, model, torch.optim.SGD(model.parameters(), lr=0.1), steps=4)
