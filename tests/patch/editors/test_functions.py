from __future__ import annotations

from ampscope.patch.sites import Facts
from tests.patch.patching import patched, refusal

SOURCE = """
from torch.autograd import Function

class Gate(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g @ w  #! other
"""


def test_forward_and_backward_are_decorated() -> None:
    after = patched("AMP123", SOURCE, facts=Facts(device="cuda", autocast_dtype="bfloat16"))
    assert after == (
        "import torch\nfrom torch.autograd import Function\n\nclass Gate(Function):\n    @staticmethod\n"
        '    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.bfloat16)\n'
        "    def forward(ctx, x):\n        return x\n\n    @staticmethod\n"
        '    @torch.amp.custom_bwd(device_type="cuda")\n    def backward(ctx, g):\n        return g @ w\n'
    )


def test_one_that_is_decorated_already_is_refused() -> None:
    source = SOURCE.replace("    def backward", "    @custom_bwd\n    def backward")
    assert refusal("AMP123", source) == "backward is decorated already"


def test_a_line_outside_of_a_function_is_refused() -> None:
    assert "does not stand in an autograd.Function" in refusal("AMP123", "x = 1  #! other\n")
