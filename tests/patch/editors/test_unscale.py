from __future__ import annotations

from tests.patch.patching import patched, refusal, text


def test_unscale_before_the_clip() -> None:
    assert patched(
        "AMP101",
        """
        for x in data:
            scaler.scale(loss(x)).backward()

            # keep it small
            clip_grad_norm_(model.parameters(), 1.0)  #! clip_grad_norm_
            scaler.step(opt)  #: scaler.step>SGD#0
            scaler.update()
        """,
    ) == text(
        """
        for x in data:
            scaler.scale(loss(x)).backward()

            scaler.unscale_(opt)
            # keep it small
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
        """
    )


def test_the_names_are_those_of_the_user() -> None:
    assert patched(
        "AMP101",
        """
        class Trainer:
            def step(self, loss):
                if self.limit: clip_grad_norm_(self.net.parameters(), self.limit)  #! clip_grad_norm_
                self.amp.step(self.opts["g"])  #: scaler.step>SGD#0
        """,
    ) == text(
        """
        class Trainer:
            def step(self, loss):
                if self.limit:
                    self.amp.unscale_(self.opts["g"])
                    clip_grad_norm_(self.net.parameters(), self.limit)
                self.amp.step(self.opts["g"])
        """
    )


def test_on_a_line_of_its_own_where_several_share_one() -> None:
    assert patched(
        "AMP101",
        """
        if True: clip_grad_norm_(p, 1.0); scaler.step(opt)  #! clip_grad_norm_ scaler.step>SGD#0
        """,
    ) == text(
        """
        if True:
            scaler.unscale_(opt)
            clip_grad_norm_(p, 1.0)
            scaler.step(opt)
        """
    )


def test_an_unscale_that_comes_too_late_moves() -> None:
    assert patched(
        "AMP101",
        """
        clip_grad_norm_(p, 1.0)  #! clip_grad_norm_
        scaler.unscale_(opt)
        scaler.step(opt)  #: scaler.step>SGD#0
        """,
    ) == text(
        """
        scaler.unscale_(opt)
        clip_grad_norm_(p, 1.0)
        scaler.step(opt)
        """
    )


def test_a_clip_in_a_helper_is_preceded_where_the_helper_is_called() -> None:
    assert patched(
        "AMP101",
        """
        def limit(model):
            clip_grad_norm_(model.parameters(), 1.0)  #! clip_grad_norm_

        def train():
            limit(model)
            scaler.step(opt)  #: scaler.step>SGD#0
        """,
    ).endswith("def train():\n    scaler.unscale_(opt)\n    limit(model)\n    scaler.step(opt)\n")


def test_an_edit_without_a_line_is_preceded_right_after_backward() -> None:
    assert patched(
        "AMP101",
        """
        for x in data:
            scaler.scale(loss).backward()  #: backward
            add_noise(model)
            scaler.step(opt)  #! scaler.step>SGD#0 grad_edit
        """,
    ).splitlines()[1:4] == [
        "    scaler.scale(loss).backward()",
        "    scaler.unscale_(opt)",
        "    add_noise(model)",
    ]


def test_a_clip_in_every_micro_batch_is_refused() -> None:
    said = refusal(
        "AMP101",
        """
        for i in range(8):
            clip_grad_norm_(p, 1.0)  #! clip_grad_norm_*8
            if i % 4 == 3:
                scaler.step(opt)  #: scaler.step>SGD#0*2
        """,
    )
    assert said == "the gradients are clipped in every micro-batch: clip once, where the optimizer steps"


def test_a_clip_by_a_library_is_refused() -> None:
    assert "does not itself clip" in refusal(
        "AMP101",
        """
        trainer.clip()  #! clip_grad_norm_
        scaler.step(opt)  #: scaler.step>SGD#0
        """,
    )


def test_unscale_and_clip_move_into_the_branch_that_steps() -> None:
    assert patched(
        "AMP102",
        """
        for i in range(8):
            scaler.scale(loss).backward()
            # true gradients
            scaler.unscale_(opt)  #! scaler.unscale_
            norm = clip_grad_norm_(p, 1.0)  # by norm
            seen += 1
            log(norm)
            if i % 4 == 3:
                scaler.step(opt)
        """,
    ) == text(
        """
        for i in range(8):
            scaler.scale(loss).backward()
            seen += 1
            if i % 4 == 3:
                # true gradients
                scaler.unscale_(opt)
                norm = clip_grad_norm_(p, 1.0)  # by norm
                log(norm)
                scaler.step(opt)
        """
    )


def test_a_result_that_every_micro_batch_needs_keeps_the_clip_in_place() -> None:
    said = refusal(
        "AMP102",
        """
        for i in range(8):
            if i: log(norm)
            scaler.unscale_(opt)  #! scaler.unscale_
            norm = clip_grad_norm_(p, 1.0)
            if i % 4 == 3:
                scaler.step(opt)
        """,
    )
    assert said == "`norm` is used in every micro-batch, at train.py:2"


def test_unscale_that_runs_as_often_as_the_step_stays() -> None:
    said = refusal(
        "AMP102",
        """
        scaler.unscale_(opt)  #! scaler.unscale_
        scaler.step(opt)
        """,
    )
    assert said == "unscale_ and scaler.step run equally often"


def test_an_unscale_in_mid_window_moves_behind_the_loop() -> None:
    assert patched(
        "AMP108",
        """
        for window in range(3):
            for micro in range(4):
                scaler.scale(loss).backward()
                if micro == 0:
                    scaler.unscale_(opt)  #! scaler.unscale_
            scaler.step(opt)
        """,
    ) == text(
        """
        for window in range(3):
            for micro in range(4):
                scaler.scale(loss).backward()
            scaler.unscale_(opt)
            scaler.step(opt)
        """
    )
