from __future__ import annotations

import pytest

from tests.patch.patching import patched, refusal

MIN = "torch.finfo(s.dtype).min"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("s = s.masked_fill(m, -1e9)", f"s = s.masked_fill(m, {MIN})"),
        ("s.masked_fill_(m, value=-1e9)", f"s.masked_fill_(m, value={MIN})"),
        ("s = s.masked_fill(m, float('-inf'))", f"s = s.masked_fill(m, {MIN})"),
        ("s = torch.where(m, s, -torch.inf)", f"s = torch.where(m, s, {MIN})"),
    ],
)
def test_a_mask_that_half_can_hold(before: str, after: str) -> None:
    assert patched("AMP406", f"import torch\n{before}  #! other\n") == f"import torch\n{after}\n"


def test_the_mask_stands_before_the_softmax_that_failed() -> None:
    source = """
    import torch
    def attend(s, m):
        s = s.masked_fill(m, float("-inf"))
        return s.softmax(-1)  #! other
    """
    assert f"    s = s.masked_fill(m, {MIN})\n" in patched("AMP406", source)


@pytest.mark.parametrize("source", ["s = s.masked_fill(m, -1e4)", "s = s.masked_fill(m, 0.0)", "s = f(s)"])
def test_constants_within_the_range_stay(source: str) -> None:
    assert "no mask constant beyond the half range" in refusal("AMP406", f"{source}  #! other\n")


@pytest.mark.parametrize("inner", ["torch.sigmoid(z)", "z.sigmoid()"])
def test_the_loss_on_logits(inner: str) -> None:
    source = f"import torch\nloss = F.binary_cross_entropy({inner}, y)  #! other\n"
    after = "import torch\nloss = F.binary_cross_entropy_with_logits(z, y)\n"
    assert patched("AMP304", source) == after


def test_probabilities_from_elsewhere_are_refused() -> None:
    assert "made elsewhere" in refusal("AMP304", "loss = F.binary_cross_entropy(p, y)  #! other\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("r = d if r is None else r + d", "r = d.float() if r is None else r + d.float()"),
        ("r = r + loss.detach()", "r = r + loss.detach().float()"),
        ("r += loss.detach()", "r = r + loss.detach().float()"),
    ],
)
def test_a_sum_in_float32(before: str, after: str) -> None:
    assert patched("AMP508", f"{before}  #! other\n") == f"{after}\n"


def test_what_is_no_sum_is_refused() -> None:
    assert "no sum that is kept in a variable" in refusal("AMP508", "f(r)  #! other\n")
