from __future__ import annotations

from tests.patch.patching import patched, refusal, text


def test_the_scaler_is_saved_and_loaded() -> None:
    assert patched(
        "AMP113",
        """
        def resume(path):
            state = torch.load(path)
            opt.load_state_dict(state["optim"])  #! optimizer.load_state_dict
            return state["epoch"]

        def save(path):
            torch.save(
                {
                    "model": model.state_dict(),
                    "optim": opt.state_dict(),
                },
                path,
            )

        scaler = make()
        scaler.step(opt)  #: scaler.step
        """,
    ) == text(
        """
        def resume(path):
            state = torch.load(path)
            opt.load_state_dict(state["optim"])
            if "scaler" in state:
                scaler.load_state_dict(state["scaler"])
            return state["epoch"]

        def save(path):
            torch.save(
                {
                    "model": model.state_dict(),
                    "optim": opt.state_dict(),
                    "scaler": scaler.state_dict(),
                },
                path,
            )

        scaler = make()
        scaler.step(opt)
        """
    )


def test_a_dict_made_by_a_call() -> None:
    source = """
    opt.load_state_dict(ckpt["opt"])  #! optimizer.load_state_dict
    scaler = make()
    scaler.step(opt)  #: scaler.step
    torch.save(dict(net=net.state_dict(), opt=opt.state_dict()), path)
    """
    saved = "dict(net=net.state_dict(), opt=opt.state_dict(), scaler=scaler.state_dict())"
    assert f"torch.save({saved}, path)\n" in patched("AMP113", source)


def test_a_state_that_is_no_entry_of_a_dict_is_refused() -> None:
    said = refusal(
        "AMP113",
        "opt.load_state_dict(torch.load(p))  #! optimizer.load_state_dict\nscaler.step(opt)  #: scaler.step\n",
    )
    assert said == "the optimizer's state does not come out of a checkpoint dict"


def test_a_scaler_without_meaning_there_is_refused() -> None:
    said = refusal(
        "AMP113",
        """
        def resume(state):
            opt.load_state_dict(state["optim"])  #! optimizer.load_state_dict

        def train(amp):
            amp.step(opt)  #: scaler.step
            torch.save({"optim": opt.state_dict()}, "x")
        """,
    )
    assert said == "`amp` has no meaning at train.py:2"
