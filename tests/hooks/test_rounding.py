from __future__ import annotations

import pytest
import torch

from ampscope.hooks import rounding
from ampscope.hooks.rounding import Rounding


def weights() -> torch.Tensor:
    return (torch.randn(40_000, generator=torch.Generator().manual_seed(2)) * 0.02).bfloat16()


def signs(seed: int) -> torch.Tensor:
    return 1e-5 * torch.randn(40_000, generator=torch.Generator().manual_seed(seed)).sign()


def nearest(w: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    return (w.float() + update).bfloat16()


def stochastic(w: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    noise = torch.randint(0, 1 << 16, w.shape, generator=torch.Generator().manual_seed(5), dtype=torch.int32)
    return (((w.float() + update).view(torch.int32) + noise) >> 16 << 16).view(torch.float32).bfloat16()


def course(kind: str, steps: int) -> list[torch.Tensor]:
    """Weights before each step and after the last; the compensated kind carries what rounding lost."""
    seen = [weights()]
    carry = torch.zeros(40_000)
    for _ in range(steps):
        w, update = seen[-1], signs(0)
        if kind == "compensated":
            new = nearest(w, update + carry)
            carry = update + carry - (new.float() - w.float())
        else:
            new = (stochastic if kind == "stochastic" else nearest)(w, update)
        seen.append(new)
    return seen


@pytest.mark.parametrize("adam_lr", [None, 1e-5])
@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [("nearest", False, False), ("stochastic", True, True), ("compensated", False, True)],
)
def test_what_becomes_of_small_updates(kind: str, first: bool, last: bool, adam_lr: float | None) -> None:
    seen, judge = course(kind, 60), Rounding()
    found = [judge.survives(1, seen[k - 1], seen[k], k, adam_lr) for k in (1, 60)]
    assert found == [first, last]


@pytest.mark.parametrize(("kind", "expected"), [("nearest", None), ("compensated", True)])
def test_where_no_update_is_fine_enough_to_be_seen_the_rate_of_adam_bounds_it(
    kind: str, expected: bool | None
) -> None:
    """Weights of one size: each update is far below their unit in the last place."""
    w, judge, carry = torch.full((4096,), 0.05).bfloat16(), Rounding(), torch.zeros(4096)
    found = []
    for k in range(1, 40):
        update = torch.full((4096,), -1e-5) + (carry if kind == "compensated" else 0.0)
        new = nearest(w, update)
        carry = update - (new.float() - w.float())
        found.append(judge.survives(7, w, new, k, 1e-5))
        w = new
    assert found[31] is expected
    assert found[30] is None, "it looks at powers of two only"


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding, "MOST_BYTES", 100_000)
    seen, judge = course("compensated", 60), Rounding()
    for key in (1, 2):
        judge.survives(key, seen[0], seen[1], 1, None)
    assert judge.survives(1, seen[-2], seen[-1], 60, None) is True
    assert judge.survives(2, seen[-2], seen[-1], 60, None) is False
