from __future__ import annotations

from types import CodeType

import pytest

from ampscope.hooks.written import half_casts


def code_of(line: str) -> CodeType:
    code: CodeType = compile(f"x = y\n{line}\n", "train.py", "exec")
    return code


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("h = f(x).half()", 1),
        ("h = h + norm(h).abs().half() * d.half()", 2),
        ("h = x.to(torch.float16)", 1),
        ("h = x.to(dtype=torch.half)", 1),
        ("h = x.type(torch.float16)", 1),
        ("h = x.float()", 0),
        ("h = x.bfloat16()", 0),
        ("with torch.autocast('cpu', dtype=torch.float16): h = f(x)", 0),
        ("h = torch.zeros(3, dtype=torch.float16)", 0),
    ],
)
def test_casts_that_a_line_writes_down(line: str, expected: int) -> None:
    code = code_of(line)
    assert half_casts(code, 2) == expected
    assert half_casts(code, 1) == 0
