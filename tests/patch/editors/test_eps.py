from __future__ import annotations

import pytest

from ampscope.patch.sites import Facts
from tests.patch.patching import patched, refusal

AUTOCAST = Facts(autocast_dtype="float16")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = torch.log(1 - p + EPS)", "y = torch.log(1 - p.float() + EPS)"),
        ("y = (EPS + p).log()", "y = (EPS + p.float()).log()"),
        ("y = x / (x.norm() + 1e-8)", "y = x / (x.norm().float() + 1e-8)"),
        ("y = p.clamp(min=EPS).log()", "y = p.float().clamp(min=EPS).log()"),
        ("y = F.normalize(f(x), dim=-1)", "y = F.normalize(f(x), dim=-1, eps=1e-3)"),
        ("y = F.normalize(x, eps=1e-12)", "y = F.normalize(x, eps=1e-3)"),
    ],
)
def test_the_eps_is_held(before: str, after: str) -> None:
    head = "import torch\nimport torch.nn.functional as F\nEPS = 1e-8\n"
    assert patched("AMP405", f"{head}{before}  #! other\n", facts=AUTOCAST) == f"{head}{after}\n"


def test_wherever_the_function_uses_the_same_eps() -> None:
    source = """
    import torch
    EPS = 1e-8
    def focal(p, t):
        pos = t * torch.log(p + EPS)
        neg = (1 - t) * torch.log(1 - p + EPS)  #! other
        return pos + neg, torch.log(p + 1e-3)
    """
    assert patched("AMP405", source, facts=AUTOCAST) == (
        "import torch\nEPS = 1e-8\ndef focal(p, t):\n    pos = t * torch.log(p.float() + EPS)\n"
        "    neg = (1 - t) * torch.log(1 - p.float() + EPS)\n    return pos + neg, torch.log(p + 1e-3)\n"
    )


def test_no_operand_is_refused() -> None:
    assert "no operand that meets an eps" in refusal("AMP405", "y = f(x)  #! other\n", facts=AUTOCAST)
