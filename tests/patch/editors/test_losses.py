from __future__ import annotations

import pytest

from tests.patch.patching import patched, refusal

STEP = "scaler.step(opt)  #: scaler.step>SGD#0\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("aux.backward()", "scaler.scale(aux).backward()"),
        ("(a + b).backward()", "scaler.scale(a + b).backward()"),
        (
            "loss(x).mean().backward(retain_graph=True)",
            "scaler.scale(loss(x).mean()).backward(retain_graph=True)",
        ),
        ("(scaler.scale(a) + 0.1 * b).backward()", "scaler.scale(a + 0.1 * b).backward()"),
        ("(scaler.scale(a + c) - b).backward()", "scaler.scale((a + c) - b).backward()"),
    ],
)
def test_the_loss_is_scaled(before: str, after: str) -> None:
    assert patched("AMP107", f"{before}  #! backward\n{STEP}") == f"{after}\nscaler.step(opt)\n"


def test_by_the_functional_spelling() -> None:
    source = f"import torch\ntorch.autograd.backward([a, b])  #! backward\n{STEP}"
    assert "torch.autograd.backward(scaler.scale([a, b]))\n" in patched("AMP107", source)


def test_a_sum_that_was_put_together_before() -> None:
    source = f"total = scaler.scale(main) + aux\nlog(total)\ntotal.backward()  #! backward\n{STEP}"
    assert patched("AMP107", source).startswith(
        "total = main + aux\nlog(total)\nscaler.scale(total).backward()\n"
    )


def test_a_term_that_is_scaled_in_part_is_refused() -> None:
    said = refusal("AMP107", f"(2 * scaler.scale(a) + b).backward()  #! backward\n{STEP}")
    assert said == "one term at train.py:1 is scaled only in part"


def test_a_loss_that_is_scaled_already_is_refused() -> None:
    said = refusal("AMP107", f"scaler.scale(a).backward()  #! backward\n{STEP}")
    assert said == "every loss at train.py:1 is scaled in the source"


def test_a_scaler_that_is_not_visible_is_refused() -> None:
    said = refusal(
        "AMP107",
        """
        def penalty(x):
            x.backward()  #! backward

        def train(scaler, opt):
            scaler.step(opt)  #: scaler.step>SGD#0
        """,
    )
    assert said == "the scaler is not visible where the loss is propagated back"


@pytest.mark.parametrize(
    ("statement", "added"),
    [
        ("(g,) = torch.autograd.grad(scaler.scale(y), x)", "g = g * (1.0 / scaler.get_scale())"),
        ("g = torch.autograd.grad(scaler.scale(y), x)[0]", "g = g * (1.0 / scaler.get_scale())"),
        (
            "gs = torch.autograd.grad(scaler.scale(y), xs)",
            "gs = [g * (1.0 / scaler.get_scale()) for g in gs]",
        ),
    ],
)
def test_the_gradients_of_a_penalty_are_unscaled(statement: str, added: str) -> None:
    source = f"{statement}  #: autograd.grad~scaled\nscaler.scale(loss).backward()  #! backward\n"
    assert patched("AMP111", source) == f"{statement}\n{added}\nscaler.scale(loss).backward()\n"


def test_gradients_without_a_name_are_refused() -> None:
    source = "use(torch.autograd.grad(scaler.scale(y), x))  #! autograd.grad~scaled backward\n"
    assert refusal("AMP111", source) == "the gradients of train.py:1 are not assigned to a name"
