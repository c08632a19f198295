from __future__ import annotations

from tests.patch.patching import patched, refusal, text


def test_the_scheduler_steps_when_the_optimizer_did() -> None:
    assert patched(
        "AMP112",
        """
        for x in data:
            scaler.step(opt)  #: scaler.step
            scaler.update()
            sched.step()  #! scheduler.step
        """,
    ) == text(
        """
        for x in data:
            scale_before = scaler.get_scale()
            scaler.step(opt)
            scaler.update()
            if scaler.get_scale() >= scale_before:
                sched.step()
        """
    )


def test_a_scheduler_before_the_update_moves_behind_it() -> None:
    assert patched(
        "AMP112",
        """
        scaler.step(opt)  #: scaler.step
        sched.step()  #! scheduler.step
        scaler.update()
        """,
    ) == text(
        """
        scale_before = scaler.get_scale()
        scaler.step(opt)
        scaler.update()
        if scaler.get_scale() >= scale_before:
            sched.step()
        """
    )


def test_a_condition_of_the_users_stays() -> None:
    assert patched(
        "AMP112",
        """
        scale_before = 3
        scaler.step(opt)  #: scaler.step
        scaler.update()
        if warm: sched.step()  #! scheduler.step
        """,
    ).endswith(
        "loss_scale_before = scaler.get_scale()\nscaler.step(opt)\nscaler.update()\n"
        "if warm:\n    if scaler.get_scale() >= loss_scale_before:\n        sched.step()\n"
    )


def test_a_scheduler_of_another_function_is_refused() -> None:
    said = refusal(
        "AMP112",
        """
        def a():
            scaler.step(opt)  #: scaler.step
            scaler.update()

        def b():
            sched.step()  #! scheduler.step
        """,
    )
    assert said == "the scheduler and scaler.step stand in different functions, or several optimizers step"
