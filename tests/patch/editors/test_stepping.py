from __future__ import annotations

from ampscope.patch.sites import Facts
from tests.patch.patching import patched, refusal, text


def test_an_update_that_is_nowhere() -> None:
    assert patched(
        "AMP103",
        """
        for x in data:
            scaler.step(a)  #! scaler.step
            scaler.step(b)  #: scaler.step
        """,
    ) == text(
        """
        for x in data:
            scaler.step(a)
            scaler.step(b)
            scaler.update()
        """
    )


def test_a_continue_that_jumps_over_the_update() -> None:
    assert patched(
        "AMP103",
        """
        for x in data:
            if x is None:
                continue
            scaler.unscale_(opt)  #! scaler.unscale_
            if bad(x): continue
            for y in x:
                continue
            scaler.step(opt)
            scaler.update()
        """,
    ) == text(
        """
        for x in data:
            if x is None:
                continue
            scaler.unscale_(opt)
            if bad(x):
                scaler.update()
                continue
            for y in x:
                continue
            scaler.step(opt)
            scaler.update()
        """
    )


def test_an_update_that_is_reached_is_left_alone() -> None:
    said = refusal(
        "AMP103",
        """
        scaler.step(opt)  #! scaler.step
        scaler.update()
        """,
    )
    assert said == "scaler.update() is called at train.py:2, and no `continue` jumps over it"


def test_update_moves_into_the_branch_that_steps() -> None:
    assert patched(
        "AMP104",
        """
        for i in range(8):
            if i % 2:
                scaler.step(opt)
                opt.zero_grad()
            # the scale adapts
            scaler.update()  #! scaler.update
        """,
    ) == text(
        """
        for i in range(8):
            if i % 2:
                scaler.step(opt)
                # the scale adapts
                scaler.update()
                opt.zero_grad()
        """
    )


def test_update_beside_the_step_is_another_fault() -> None:
    said = refusal("AMP104", "scaler.step(opt)\nscaler.update()  #! scaler.update\n")
    assert said == "update() and scaler.step run equally often"


def test_a_plain_step_goes_through_the_scaler() -> None:
    assert patched(
        "AMP105",
        """
        for x in data:
            grad_scaler.scale(loss).backward()  #: scaler.scale
            if x: opt.step()  #! optimizer.step
        """,
    ) == text(
        """
        for x in data:
            grad_scaler.scale(loss).backward()
            if x:
                grad_scaler.step(opt)
                grad_scaler.update()
        """
    )


def test_a_second_optimizer_before_the_update() -> None:
    assert patched(
        "AMP105",
        """
        scaler.scale(loss).backward()  #: scaler.scale
        scaler.step(a)  #: scaler.step
        b.step()  #! optimizer.step
        scaler.update()
        """,
    ).endswith("scaler.step(a)\nscaler.step(b)\nscaler.update()\n")


def test_an_update_that_came_too_early_moves_behind_the_last_step() -> None:
    assert patched(
        "AMP105",
        """
        scaler.scale(loss).backward()  #: scaler.scale
        scaler.step(a)
        scaler.update()
        b.step()  #! optimizer.step
        """,
    ).endswith("scaler.step(a)\nscaler.step(b)\nscaler.update()\n")


def test_a_closure_is_refused() -> None:
    said = refusal(
        "AMP105",
        """
        scaler.scale(loss).backward()  #: scaler.scale
        opt.step(closure)  #! optimizer.step
        """,
    )
    assert said == "a step with a closure cannot go through a GradScaler"


def test_a_scaler_of_another_function_is_refused() -> None:
    said = refusal(
        "AMP105",
        """
        def loss_of(x):
            amp = make()
            amp.scale(x).backward()  #: scaler.scale

        def train():
            opt.step()  #! optimizer.step
        """,
    )
    assert said == "the scaler that scales the loss is not visible where the optimizer steps"


def test_gradients_are_cleared_before_backward() -> None:
    assert patched(
        "AMP109",
        """
        for x in data:
            scaler.scale(loss).backward()  #! backward
            scaler.step(opt)  #: scaler.step
        """,
    ) == text(
        """
        for x in data:
            opt.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(opt)
        """
    )


def test_accumulation_is_not_cleared() -> None:
    said = refusal("AMP109", "loss.backward()  #! backward\n", facts=Facts(micro=4))
    assert said.startswith("several backward calls lead to one step")
