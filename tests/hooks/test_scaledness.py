from __future__ import annotations

import torch

from ampscope.hooks.scaledness import MAX_NODES, ONES, mark_penalty, mark_scaled, root_state, weighted

SCALES = (1024.0,)


def weight() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def scaled(loss: torch.Tensor) -> torch.Tensor:
    result = loss * torch.tensor(1024.0)
    mark_scaled(result, "loss")
    return result


def test_direct_result_of_scale() -> None:
    state = root_state(scaled(weight().sum()), SCALES)
    assert state.scaled == "scaled"
    assert state.loss == "loss"


def test_sums_and_averages_of_scaled_losses_stay_scaled() -> None:
    w = weight()
    losses = [scaled((w * i).sum()) for i in range(100)]
    assert root_state(torch.stack(losses).mean(), SCALES).scaled == "scaled"
    assert root_state(sum(losses[1:], losses[0]) / 100, SCALES).scaled == "scaled"


def test_a_root_that_was_never_scaled() -> None:
    assert root_state(weight().pow(2).sum(), SCALES).scaled == "unscaled"


def test_a_mixed_root() -> None:
    assert root_state(scaled(weight().sum()) + weight().pow(2).sum(), SCALES).scaled == "mixed"


def test_scaling_by_hand_is_recognised() -> None:
    assert root_state(weight().sum() * 1024.0, SCALES).scaled == "scaled"
    assert root_state(weight().sum() / (1.0 / 1024.0), SCALES).scaled == "scaled"


def test_another_factor_is_no_scaling() -> None:
    assert root_state(weight().sum() * 100.0, SCALES).scaled == "unscaled"


def test_without_a_scaler_nothing_is_walked() -> None:
    assert root_state(weight().sum() * 1024.0, ()).scaled == "unscaled"


def test_an_endless_graph_is_unknown() -> None:
    x = weight().sum()
    for _ in range(MAX_NODES + 10):
        x = x + 0.0
    assert root_state(x, SCALES).scaled == "unknown"


def test_penalty_on_scaled_gradients_and_the_documented_recipe() -> None:
    w = weight()
    out = scaled((w**3).sum())
    (gradient,) = torch.autograd.grad(out, w, create_graph=True)
    mark_penalty(gradient)
    assert root_state(gradient.norm(), SCALES).penalty
    assert not root_state((gradient * (1.0 / 1024.0)).norm(), SCALES).penalty


def test_a_leaf_root_has_no_graph() -> None:
    assert root_state(torch.tensor(1.0, requires_grad=True), SCALES).scaled == "unscaled"


def test_a_penalty_inside_the_scaled_loss_is_found_when_asked_for() -> None:
    w = weight()
    (gradient,) = torch.autograd.grad(scaled((w**3).sum()), w, create_graph=True)
    mark_penalty(gradient)
    total = scaled((w * 2).sum() + gradient.norm())
    assert root_state(total, SCALES, penalties=True).penalty
    assert root_state(total, SCALES, penalties=True).scaled == "scaled"
    assert not root_state(total, SCALES).penalty
    healthy = scaled((w * 2).sum() + (gradient / 1024.0).norm())
    assert not root_state(healthy, SCALES, penalties=True).penalty


def test_what_backward_is_given_to_begin_with() -> None:
    state = root_state(weight().sum(), SCALES)
    assert weighted(state, None, SCALES).scaled == "unscaled"
    assert weighted(state, torch.ones(()), SCALES).scaled == "unscaled"
    assert weighted(state, torch.ones(8), SCALES).scaled == "unscaled"
    assert weighted(state, torch.tensor(1024.0), SCALES).scaled == "scaled"
    assert weighted(state, torch.rand(8), SCALES).scaled == "unknown"
    assert weighted(state, torch.ones(ONES + 1), SCALES).scaled == "unknown"
    assert weighted(state, torch.ones(8, device="meta"), SCALES).scaled == "unknown"
    assert weighted(root_state(scaled(weight().sum()), SCALES), torch.rand(8), SCALES).scaled == "scaled"
