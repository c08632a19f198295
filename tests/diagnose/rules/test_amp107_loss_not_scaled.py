from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(16, 32)
        self.main, self.aux = nn.Linear(32, 4), nn.Linear(32, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.relu(self.trunk(x))
        return self.main(h), self.aux(h.detach())


def two_losses(how: str) -> None:
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for _ in range(8):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            main, aux = model(x)
            first, second = F.cross_entropy(main, y), F.mse_loss(aux.float(), x[:, 4:6])
        scaler.scale(first).backward()
        if how == "bare":
            second.backward()
        elif how == "by hand":
            (second * scaler.get_scale()).backward()
        elif how == "after unscale":
            scaler.unscale_(optimizer)
            second.backward()
        else:
            scaler.scale(second).backward()
        scaler.step(optimizer)
        scaler.update()


def forgotten(scale_something: bool) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for _ in range(6):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        if scale_something:
            scaler.scale(loss.detach())
        scaler.step(optimizer)
        scaler.update()


def generator_and_critic() -> None:
    """The critic is trained in float32 with a plain step; only the generator goes through the scaler."""
    generator, critic = nn.Linear(8, 16), nn.Linear(16, 1)
    opt_g = torch.optim.SGD(generator.parameters(), lr=0.01)
    opt_c = torch.optim.SGD(critic.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for _ in range(6):
        opt_c.zero_grad()
        fake = generator(torch.randn(32, 8)).detach()
        (critic(fake).mean() - critic(torch.randn(32, 16)).mean()).backward()
        opt_c.step()
        opt_g.zero_grad()
        with half():
            loss = -critic(generator(torch.randn(32, 8))).float().mean()
        scaler.scale(loss).backward()
        scaler.step(opt_g)
        scaler.update()


def test_auxiliary_loss_bypasses_the_scaler(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: two_losses("bare"))
    assert serious(found) == ["AMP107"]
    finding = only(found, "AMP107")
    assert finding.where.line == line_of(two_losses, "second.backward()")
    assert "aux.weight" in finding.claim


def test_no_loss_is_scaled(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: forgotten(scale_something=True))
    assert serious(found)[0] == "AMP107"
    assert found.findings[0].where.line == line_of(forgotten, "loss.backward()")


def test_scale_was_never_called(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: forgotten(scale_something=False), raises=True)
    assert serious(found) == ["AMP107"]
    assert any("AssertionError" in s for s in only(found, "AMP107").symptoms)


@pytest.mark.parametrize("how", ["both scaled", "by hand", "after unscale"])
def test_silent_when_the_loss_is_scaled_or_added_later(tmp_path: Path, how: str) -> None:
    assert serious(judge(tmp_path, lambda: two_losses(how))) == []


def test_silent_on_an_optimizer_of_its_own(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, generator_and_critic)) == []


def cached_gradients() -> None:
    """The loss stops at detached features, whose scaled gradient the encoder is handed afterwards."""
    encoder, head = nn.Linear(16, 8), nn.Linear(8, 4)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            features = encoder(x)
            held = features.detach().requires_grad_()
            loss = F.cross_entropy(head(held), y)
        scaler.scale(loss).backward()
        features.backward(held.grad)
        scaler.step(optimizer)
        scaler.update()


def test_a_gradient_that_is_handed_on_may_be_scaled(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, cached_gradients)) == []


def prior_added_by_hand(how: str) -> None:
    """The gradient of a regulariser is taken on its own and added to what backward left."""
    model = classifier()
    params = list(model.parameters())
    optimizer = torch.optim.SGD(params, lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for _ in range(8):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        prior = 1e-2 * torch.stack([p.square().sum() for p in params]).sum()
        if how == "after unscale":
            scaler.unscale_(optimizer)
        extra = torch.autograd.grad(scaler.scale(prior) if how == "scaled" else prior, params)
        for p, g in zip(params, extra, strict=True):
            assert p.grad is not None
            if how == "times the scale":
                p.grad.add_(g * scaler.get_scale())
            elif how == "weighted by the scale":
                p.grad.add_(g, alpha=scaler.get_scale())
            else:
                p.grad.add_(g)
        scaler.step(optimizer)
        scaler.update()


def test_gradients_of_an_unscaled_loss_are_added_by_hand(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: prior_added_by_hand("bare"))
    assert serious(found) == ["AMP107"]
    assert only(found, "AMP107").where.line == line_of(prior_added_by_hand, "    p.grad.add_(g)")


@pytest.mark.parametrize("how", ["scaled", "times the scale", "weighted by the scale", "after unscale"])
def test_silent_where_what_is_added_carries_the_scale_or_nothing_does(tmp_path: Path, how: str) -> None:
    assert "AMP107" not in serious(judge(tmp_path, lambda: prior_added_by_hand(how)))
