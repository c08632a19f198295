from __future__ import annotations

import pytest

from ampscope.patch.sites import Facts
from tests.patch.patching import patched, refusal, text

LOOP = """
import torch
opt = torch.optim.SGD(p, lr=0.1)  #: optimizer.init/SGD#0
for x in data:
    with torch.autocast("cpu", dtype=torch.float16):  #: autocast.enter
        loss = model(x)
    loss.backward()  #! backward
    opt.step()  #: optimizer.step/SGD#0
"""


def test_a_scaler_is_made_and_used() -> None:
    assert patched("AMP115", LOOP, facts=Facts(device="cuda")) == text(
        """
        import torch
        opt = torch.optim.SGD(p, lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x in data:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(x)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        """
    )


def test_gradients_that_are_used_are_unscaled_first() -> None:
    source = LOOP.replace("    opt.step()", "    clip_grad_norm_(p, 1.0)  #: clip_grad_norm_\n    opt.step()")
    assert "    scaler.unscale_(opt)\n    clip_grad_norm_(p, 1.0)\n    scaler.step(opt)\n" in patched(
        "AMP115", source
    )


def test_in_a_class() -> None:
    after = patched(
        "AMP115",
        """
        import torch
        class T:
            def __init__(self):
                self.opt = torch.optim.SGD(p, lr=0.1)  #: optimizer.init/SGD#0

            def step(self, scaler_of_prices):
                self.loss.backward()  #! backward
                self.opt.step()  #: optimizer.step/SGD#0
        """,
    )
    assert '        self.scaler = torch.amp.GradScaler("cpu")\n' in after
    assert "        self.scaler.scale(self.loss).backward()\n        self.scaler.step(self.opt)\n" in after


def test_bfloat16_where_a_scaler_is_not_mechanical_and_the_device_computes_in_it() -> None:
    source = LOOP.replace("opt.step()", "opt.step(closure)")
    assert refusal("AMP115", source) == "a step with a closure cannot go through a GradScaler"
    after = patched("AMP115", source, facts=Facts(bf16_native=True))
    assert (
        after
        == text(source.replace("float16", "bfloat16")).split("  #: optimizer.init")[0]
        + after[after.index("\nfor") :]
    )
    assert "dtype=torch.bfloat16" in after
    assert "scaler" not in after


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("for x in data:", "opt2 = 1\nopt2.step()  #: optimizer.step/SGD#1\nfor x in data:", "several optimizers step"),
        ("for x in data:\n", "def f():\n    clip_grad_norm_(p)  #: clip_grad_norm_\nfor x in data:\n",
         "in another function"),
        ("opt = torch", "x = torch", "the line that makes `opt` was not found"),
    ],
)  # fmt: skip
def test_refusals(old: str, new: str, said: str) -> None:
    assert said in refusal("AMP115", LOOP.replace(old, new))


def test_a_scaler_that_is_switched_off_is_switched_on() -> None:
    made = 'scaler = torch.amp.GradScaler("cpu", enabled={})  #: scaler.init/GradScaler#0\n'
    source = LOOP.replace("for x in data:", made + "for x in data:")
    assert 'GradScaler("cpu", enabled=True)\n' in patched("AMP115", source.replace("{}", "False"))
    said = refusal("AMP115", source.replace("{}", "args.amp"))
    assert said == "what switches the GradScaler at train.py:3 off is not in that line"


def test_half_parameters_are_refused() -> None:
    assert "stored in float16" in refusal("AMP115", LOOP, facts=Facts(half_params=3))
