from __future__ import annotations

import pytest

from tests.patch.patching import patched, refusal


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("torch.amp.GradScaler()", {"scaler.enabled": "false"}, "torch.amp.GradScaler(enabled=False)"),
        ("torch.amp.GradScaler('cpu', 65536.0)", {"scaler.init_scale": "512.0"}, "torch.amp.GradScaler('cpu', 512)"),
        ("torch.cuda.amp.GradScaler(65536.0)", {"scaler.init_scale": "0.5"}, "torch.cuda.amp.GradScaler(0.5)"),
        ("torch.amp.GradScaler('cpu', growth_interval=2)", {"scaler.growth_interval": "2000"},
         "torch.amp.GradScaler('cpu', growth_interval=2000)"),
    ],
)  # fmt: skip
def test_arguments_of_the_scaler(before: str, change: dict[str, str], after: str) -> None:
    source = f"import torch\nscaler = {before}  #! scaler.init\n"
    assert patched("AMP202", source, change=change) == f"import torch\nscaler = {after}\n"


def test_every_context_and_the_scaler_go_to_bfloat16() -> None:
    source = """
    from torch import autocast
    from torch.amp import GradScaler as GS
    s = GS()  #: scaler.init
    with autocast("cpu", torch.float16, cache_enabled=False):  #! autocast.enter
        f()
    with autocast(device_type="cpu"):  #: autocast.enter
        g()
    """
    change = {"autocast.dtype": "bfloat16", "scaler.enabled": "false"}
    assert patched("AMP201", source, change=change) == (
        "import torch\nfrom torch import autocast\nfrom torch.amp import GradScaler as GS\ns = GS(enabled=False)\n"
        'with autocast("cpu", torch.bfloat16, cache_enabled=False):\n    f()\n'
        'with autocast(device_type="cpu", dtype=torch.bfloat16):\n    g()\n'
    )


def test_eps_of_the_optimizer() -> None:
    source = "opt = Adam(p, lr=1e-3)  #! optimizer.init/Adam#0\n"
    assert patched("AMP502", source, change={"optimizer.eps": "1e-4"}) == "opt = Adam(p, lr=1e-3, eps=1e-4)\n"


def test_a_layout_over_several_lines_stays() -> None:
    source = """
    import torch
    scaler = torch.amp.GradScaler(  #! scaler.init
        "cpu",
        init_scale=4.0,
    )
    """
    after = patched("AMP202", source, change={"scaler.growth_interval": "200"})
    assert after == (
        'import torch\nscaler = torch.amp.GradScaler(\n    "cpu",\n    init_scale=4.0,\n    growth_interval=200,\n)\n'
    )


def test_arguments_in_a_dict_are_refused() -> None:
    source = "import torch\ns = torch.amp.GradScaler(**kw)  #! scaler.init\n"
    assert refusal("AMP204", source, change={"scaler.init_scale": "8"}).endswith(
        "passes its arguments with * or **"
    )


def test_an_object_that_a_library_makes_is_refused() -> None:
    said = refusal("AMP204", "setup()  #! scaler.init\n", change={"scaler.init_scale": "8"})
    assert said == "train.py:1 does not itself make the GradScaler"


def test_what_is_no_argument_is_refused() -> None:
    said = refusal("AMP201", "x = 1  #! scaler.init\n", change={"module.fp32": "head"})
    assert said == "`module.fp32=head` is no argument of a call in the source"
