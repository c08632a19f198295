from __future__ import annotations

import pytest

from tests.patch.patching import patched, refusal, text

LOOP = """
inv = 1.0 / scaler.get_scale()
for p in model.parameters():
    if p.grad is not None:
        {division}
clip(model)  #! grad_edit
scaler.step(opt)  #: scaler.step>SGD#0
"""


@pytest.mark.parametrize(
    "division",
    [
        "p.grad.mul_(inv)",
        "p.grad *= inv",
        "p.grad.data.mul_(inv)",
        "p.grad = p.grad * inv",
        "p.grad.div_(1 / inv)",
    ],
)
def test_a_loop_that_divides(division: str) -> None:
    assert (
        patched("AMP106", LOOP.format(division=division))
        == "scaler.unscale_(opt)\nclip(model)\nscaler.step(opt)\n"
    )


def test_a_factor_that_is_used_again_stays() -> None:
    source = LOOP.format(division="p.grad.mul_(inv)") + "print(inv)\n"
    assert patched("AMP106", source).startswith("inv = 1.0 / scaler.get_scale()\nscaler.unscale_(opt)\n")


def test_a_helper_that_divides_is_not_called_any_more() -> None:
    assert patched(
        "AMP106",
        """
        def unscale(net, scaler):
            '''True gradients.'''
            scale = scaler.get_scale()
            for p in net.parameters():
                p.grad.div_(scale)

        def train():
            unscale(net, scaler)
            scaler.step(opt)  #! scaler.step>SGD#0 grad_edit
        """,
    ).endswith("def train():\n    scaler.unscale_(opt)\n    scaler.step(opt)\n")


def test_a_loop_that_does_more_is_refused() -> None:
    said = refusal("AMP106", LOOP.format(division="p.grad.mul_(inv)\n        total += p.grad.norm()"))
    assert said == "the loop that divides at train.py:4 does other things too"


def test_a_helper_that_does_more_is_refused() -> None:
    said = refusal(
        "AMP106",
        """
        def unscale(net):
            log(net)
            for p in net.parameters():
                p.grad.div_(scaler.get_scale())

        def train():
            unscale(net)
            scaler.step(opt)  #! scaler.step>SGD#0 grad_edit
        """,
    )
    assert said == "the function that divides at train.py:4 does other things too"


def test_another_factor_is_no_division_by_the_scale() -> None:
    said = refusal("AMP106", LOOP.format(division="p.grad.mul_(0.5)"))
    assert said == "the division by the loss scale was not found as one statement on `.grad`"


def test_two_optimizers_are_refused() -> None:
    said = refusal(
        "AMP106",
        text(LOOP.format(division="p.grad.mul_(inv)")) + "scaler.step(other)  #: scaler.step>SGD#1\n",
    )
    assert said.startswith("several optimizers step")
