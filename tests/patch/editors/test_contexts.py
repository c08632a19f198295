from __future__ import annotations

from ampscope.patch.sites import Facts
from tests.patch.patching import patched, refusal, text


def test_backward_leaves_the_context_with_what_follows() -> None:
    assert patched(
        "AMP118",
        """
        import torch
        for x in data:
            with torch.autocast("cuda"):  # half
                loss = model(x)  #: forward
                # gradients
                loss.backward()  #! backward
                opt.step()
            log(loss)
        """,
    ) == text(
        """
        import torch
        for x in data:
            with torch.autocast("cuda"):  # half
                loss = model(x)
            # gradients
            loss.backward()
            opt.step()
            log(loss)
        """
    )


def test_a_model_that_runs_after_backward_keeps_it_inside() -> None:
    said = refusal(
        "AMP118",
        """
        import torch
        with torch.autocast("cuda"):
            a = model(x)
            a.backward()  #! backward
            b = model(x)  #: forward
        """,
    )
    assert said == "a model runs after backward, at line 5, and needs the context"


def test_a_backward_deeper_in_the_context_is_refused() -> None:
    said = refusal(
        "AMP118",
        """
        import torch
        with torch.autocast("cuda"):
            for x in data:
                model(x).backward()  #! backward
        """,
    )
    assert said == "the backward call is not a statement directly inside the autocast context"


def test_autocast_and_scaler_follow_the_device() -> None:
    assert patched(
        "AMP120",
        """
        import torch
        scaler = torch.amp.GradScaler(enabled=True)  #: scaler.init>cuda
        with torch.autocast("cuda", torch.float16):  #! autocast.enter>cuda
            pass
        """,
    ) == text(
        """
        import torch
        scaler = torch.amp.GradScaler(enabled=True, device="cpu")
        with torch.autocast("cpu", torch.float16):
            pass
        """
    )


def test_a_device_from_elsewhere_is_refused() -> None:
    said = refusal("AMP120", "import torch\nwith torch.autocast(dev): pass  #! autocast.enter>cuda\n")
    assert said == "train.py:2 takes its device type from elsewhere"


def test_no_cache_for_a_context_round_the_steps() -> None:
    assert (
        patched(
            "AMP122",
            """
        import torch
        with torch.no_grad(), torch.autocast("cpu"):
            for x in data:
                opt.step()  #! optimizer.step
        """,
        ).splitlines()[1]
        == 'with torch.no_grad(), torch.autocast("cpu", cache_enabled=False):'
    )


def test_half_arguments_of_a_float32_layer() -> None:
    claim = "mat1 and mat2 must have the same dtype, but got Half and Float"
    source = "a, b = head(f1), head(f2)  #! forward\n"
    assert patched("AMP124", source, claim=claim) == "a, b = head(f1.float()), head(f2.float())\n"


def test_which_operand_is_half_must_be_known() -> None:
    assert "not clear" in refusal("AMP124", "head(x)  #! forward\n", claim="got Float and Half")
    claim = "got Half and Float"
    assert "is not clear" in refusal("AMP124", "y = f(a) + g(b)  #! forward\n", claim=claim, facts=Facts())
