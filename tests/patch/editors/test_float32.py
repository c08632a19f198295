from __future__ import annotations

import pytest

from ampscope.patch.sites import Facts
from tests.patch.patching import FILE, patched, refusal

AUTOCAST = Facts(autocast_dtype="float16")


@pytest.mark.parametrize(
    ("code", "op", "before", "after"),
    [
        ("AMP403", "aten::sum", "i = (p * m).sum()", "i = (p * m).float().sum()"),
        ("AMP403", "aten::sum", "i = torch.sum(p, dim=1)", "i = torch.sum(p.float(), dim=1)"),
        ("AMP403", "aten::_softmax", "i = F.softmax(a + b, -1)", "i = F.softmax((a + b).float(), -1)"),
        ("AMP403", "aten::linalg_vector_norm", "n = x.norm(2)", "n = x.float().norm(2)"),
        ("AMP403", "aten::pow", "y = x ** 2 + 1", "y = x.float() ** 2 + 1"),
        ("AMP403", "aten::index_add", "t = z.index_add(0, i, s)", "t = z.float().index_add(0, i, s.float())"),
        ("AMP404", "aten::exp", "s = torch.exp(0.5 * v)", "s = torch.exp((0.5 * v).float())"),
        ("AMP404", "aten::exp_", "s = v.exp_()", "s = v.float().exp_()"),
        ("AMP402", "aten::add", "h = h + self.mlp(h)", "h = h.float() + self.mlp(h)"),
        ("AMP402", "aten::mul", "h = 2.0 * h", "h = 2.0 * h.float()"),
        ("AMP402", "aten::add_", "h += branch(h)", "h = h + branch(h).float()"),
        ("AMP408", "aten::rsqrt", "r = torch.rsqrt((x * x).mean(-1) + eps)",
         "r = torch.rsqrt((x.float() * x).mean(-1) + eps)"),
    ],
)  # fmt: skip
def test_operands_in_float32(code: str, op: str, before: str, after: str) -> None:
    head = "import torch\nimport torch.nn.functional as F\neps = 1e-6\n"
    assert patched(code, f"{head}{before}  #! other\n", op=op, facts=AUTOCAST) == f"{head}{after}\n"


@pytest.mark.parametrize(
    ("op", "module", "before", "after"),
    [
        (
            "aten::bmm",
            None,
            "a = (q @ k.transpose(1, 2)) * s",
            "a = (q.float() @ k.transpose(1, 2).float()) * s",
        ),
        ("aten::mm", None, "a = torch.matmul(q, k)", "a = torch.matmul(q.float(), k.float())"),
        ("aten::addmm", "enc.lift", "h = act(self.lift(x + y))", "h = act(self.lift((x + y).float()))"),
        ("aten::addmm", "net.0", "h = self.net[0](x)", "h = self.net[0](x.float())"),
        ("aten::mm", "lift", "return self.lift(x)", "return self.lift(x.float())"),
        ("aten::lstm", None, "out, _ = lstm(x)", "out, _ = lstm(x.float())"),
    ],
)
def test_a_region_for_a_matmul(op: str, module: str | None, before: str, after: str) -> None:
    head = "import torch\ndef f():\n"
    found = patched("AMP401", f"{head}    {before}  #! other\n", op=op, module=module, facts=AUTOCAST)
    assert found == f'{head}    with torch.autocast("cpu", enabled=False):\n        {after}\n'


def test_every_call_of_the_function_that_overflowed() -> None:
    source = """
    def dice(p, m):
        i = (p * m).sum()  #! other
        n = m.numel()
        u = p.sum() + m.sum()
        return (i / u).sum()
    """
    facts = Facts(autocast_dtype="float16", overflows=(("aten::sum", FILE, 4), ("aten::sum", FILE, 99)))
    assert patched("AMP403", source, op="aten::sum", facts=facts) == (
        "def dice(p, m):\n    i = (p * m).float().sum()\n    n = m.numel()\n"
        "    u = p.float().sum() + m.float().sum()\n    return (i / u).sum()\n"
    )


def test_what_hid_an_overflow_was_computed_before() -> None:
    source = """
    import torch
    def norm(x, eps):
        var = x.pow(2).mean(-1)
        return x * torch.rsqrt(var + eps)  #! other
    """
    after = patched("AMP408", source, op="aten::rsqrt", facts=AUTOCAST)
    assert "    var = x.float().pow(2).mean(-1)\n    return x * torch.rsqrt(var + eps)\n" in after


@pytest.mark.parametrize(
    ("code", "op", "source", "said"),
    [
        ("AMP403", "aten::sum", "i = loss(p)", "no call of sum stands at train.py:1"),
        ("AMP403", "aten::sum", "i = p.float().sum()", "no call of sum stands"),
        ("AMP401", "aten::mm", "y = model(x)", "which call at train.py:1 is to run in float32 is not clear"),
        ("AMP402", "aten::add_", "x[0] += y", "keeps the dtype of its target"),
    ],
)
def test_refusals(code: str, op: str, source: str, said: str) -> None:
    module = "blocks.0" if code == "AMP401" else None
    assert said in refusal(code, f"{source}  #! other\n", op=op, module=module, facts=AUTOCAST)


def test_a_model_stored_in_half_takes_float32_only_at_its_end() -> None:
    half = Facts(autocast_dtype=None)
    assert patched("AMP403", "i = p.sum()  #! other\n", op="aten::sum", facts=half) == "i = p.float().sum()\n"
    back = patched("AMP404", "import torch\ns = torch.exp(v)  #! other\n", op="aten::exp", facts=half)
    assert back == "import torch\ns = torch.exp(v.float()).to(v.dtype)\n"
    source = "import torch\ny = x @ torch.linalg.inv(c)  #! other\n"
    back = patched("AMP418", source, facts=half)
    assert back == "import torch\ny = x @ torch.linalg.inv(c.float()).to(c.dtype)\n"
    assert "stored in half" in refusal("AMP402", "h = h + x  #! other\n", op="aten::add", facts=half)
    assert "stored in half" in refusal("AMP401", "h = q @ k  #! other\n", op="aten::mm", facts=half)


def test_a_cast_that_the_script_wrote_has_to_go_first() -> None:
    source = "h = h + norm(h).half()  #! other\n"
    assert "has to go first" in refusal(
        "AMP402", source, op="aten::add", facts=AUTOCAST, diff="- x.half()\n+ x"
    )
    assert patched("AMP402", source, op="aten::add", facts=AUTOCAST) == "h = h.float() + norm(h).half()\n"


def test_the_head_of_a_loop_is_no_plain_statement() -> None:
    said = refusal("AMP403", "for x in p.sum():  #! other\n    pass\n", op="aten::sum", facts=AUTOCAST)
    assert said == "train.py:1 is no plain statement"
