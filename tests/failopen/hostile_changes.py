"""Models and parameters that change in training, strange optimizers, and hooks that raise or edit."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from tests.bitexact.snapshot import Trained
from tests.failopen.small import Net, case, fit


@case
def layers_added_removed_and_replaced() -> Trained:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))

    def change(step: int, optimizer: Any) -> None:
        if step == 1:
            model.insert(1, nn.Linear(4, 4))
            optimizer.add_param_group({"params": list(model[1].parameters()), "lr": 0.05})
        elif step == 2:
            del model[2]
        elif step == 3:
            model[2] = nn.Linear(4, 3)
            optimizer.add_param_group({"params": model[2].parameters()})
        elif step == 4:
            model.append(nn.Dropout(0.5))

    return fit(model, steps=6, each=change)


@case
def parameters_that_are_replaced() -> Trained:
    model = Net()

    def change(step: int, optimizer: Any) -> None:
        if step == 1:
            model.a.weight = nn.Parameter(model.a.weight.detach() * 2)
            optimizer.param_groups[0]["params"][0] = model.a.weight
        elif step == 2:
            model.b.weight.data = torch.randn(2, 5)
            model.double().float()
        elif step == 3:
            model.a.weight.requires_grad_(False)
        elif step == 4:
            model.a.weight.requires_grad_(True)
            optimizer.param_groups[0]["params"] = optimizer.param_groups[0]["params"][:2]

    return Trained([model], losses=fit(model, steps=6, each=change).losses)


@case
def models_and_optimizers_that_die_young() -> Trained:
    losses = []
    for _ in range(6):
        trained = fit(Net(), steps=1)
        losses += trained.losses
        del trained
    return Trained(losses=losses)


@case
def gradients_set_by_hand() -> Trained:
    model = Net()

    def change(step: int, optimizer: Any) -> None:
        if step == 1:
            model.a.weight.grad = torch.ones(5, 4)
            optimizer.step()
        elif step == 2:
            for p in model.parameters():
                p.grad = None
            optimizer.step()

    return fit(model, steps=4, each=change)


@case
def duplicate_and_frozen_parameters() -> Trained:
    model = Net()
    model.a.bias.requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = torch.optim.SGD([*model.parameters(), model.b.weight], lr=0.1)
    groups: list[dict[str, Any]] = [{"params": [model.b.weight]}, {"params": [], "lr": 1.0}]
    other = torch.optim.Adam(groups, lr=0.01)
    for _ in range(3):
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()
        other.step()
    return Trained([model], [optimizer, other])


@case
def an_optimizer_of_strange_groups() -> Trained:
    class Strange(torch.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(
                params, {"lr": torch.tensor(0.1), "betas": "none", "eps": None, "note": object()}
            )

        def step(self, closure: Any = None) -> Any:
            with torch.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is not None:
                            p -= group["lr"] * p.grad
                            self.state[p] = {"n": 1, "t": torch.ones(1), "exp_avg": "none", "step": None}
            return "done"

    model = Net()
    optimizer = Strange(model.parameters())
    for _ in range(3):
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()
    return Trained([model])


@case
def an_optimizer_that_is_none() -> Trained:
    class Own:
        """No torch.optim.Optimizer at all."""

        def __init__(self, params: Any) -> None:
            self.params = list(params)

        def step(self) -> None:
            for p in self.params:
                p.data.add_(p.grad, alpha=-0.1)

    model = Net()
    optimizer = Own(model.parameters())
    for _ in range(4):
        model.zero_grad()
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()
    return Trained([model])


@case
def a_step_that_raises() -> Trained:
    class Moody(torch.optim.SGD):
        calls = 0

        def step(self, closure: Any = None) -> Any:
            self.calls += 1
            if self.calls == 2:
                raise ValueError("not now")
            return super().step(closure)

    model = Net()
    optimizer = Moody(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(3, 4)).sum()).backward()
        with contextlib.suppress(ValueError):
            scaler.step(optimizer)
        scaler.update()
    with contextlib.suppress(AssertionError, RuntimeError):
        scaler.update()
    return Trained([model], [optimizer], [scaler])


@case
def closures_that_train() -> Trained:
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    inner = torch.optim.SGD(model.parameters(), lr=0.01)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.ones(3, 4)).pow(2).mean()
        loss.backward()
        inner.step()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    return Trained([model], [optimizer, inner])


@case
def hooks_that_raise() -> Trained:
    model = Net()
    raised: list[str] = []

    def bad(*args: Any) -> Any:
        raise ZeroDivisionError("in a hook")

    def attempt(step: int, optimizer: Any) -> None:
        for register in (
            lambda: model.a.register_forward_hook(bad),
            lambda: model.a.register_forward_pre_hook(bad),
            lambda: model.b.weight.register_hook(bad),
            lambda: model.b.weight.register_post_accumulate_grad_hook(bad),
            lambda: model.a.register_full_backward_hook(bad),
            lambda: nn.modules.module.register_module_forward_hook(bad),
            lambda: optimizer.register_step_pre_hook(bad),
            lambda: optimizer.register_step_post_hook(bad),
        ):
            handle = register()
            try:
                model(torch.randn(3, 4)).sum().backward()
                optimizer.step()
            except ZeroDivisionError as error:
                raised.append(str(error))
            handle.remove()

    trained = fit(model, each=attempt)
    return Trained([model], trained.optimizers, losses=trained.losses, extra=raised)


@case
def hooks_that_change_everything() -> Trained:
    def clamp(p: Tensor) -> None:
        assert p.grad is not None
        p.grad.clamp_(-0.1, 0.1)

    def replace(p: Tensor) -> None:
        assert p.grad is not None
        p.grad = p.grad * 2

    model = Net()
    model.a.register_forward_hook(lambda m, x, y: y * 2)
    model.b.register_forward_pre_hook(lambda m, x: (x[0] + 1,))
    model.a.weight.register_hook(lambda g: g * 3)
    model.b.weight.register_post_accumulate_grad_hook(clamp)
    for p in model.b.parameters():
        p.register_post_accumulate_grad_hook(replace)
    return fit(model)


@case
def an_optimizer_within_backward() -> Trained:
    model = Net()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(p: Tensor) -> None:
        optimizers[p].step()  # type: ignore[index]
        optimizers[p].zero_grad()  # type: ignore[index]

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    losses = []
    for _ in range(4):
        loss = model(torch.randn(3, 4)).pow(2).mean()
        loss.backward()
        losses.append(loss.detach())
    return Trained([model], losses=losses)
