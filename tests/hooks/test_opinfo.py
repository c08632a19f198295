from __future__ import annotations

from typing import Any

import pytest
import torch

from ampscope.hooks.opinfo import op_info

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("func", "writes", "keywords", "reads_written"),
    [
        (aten.add.Tensor, (), (), True),
        (aten.add_.Tensor, (0,), (), True),
        (aten.copy_.default, (0,), (), False),
        (aten.add.out, (), ("out",), True),
        (aten._foreach_add_.List, (0,), (), True),
        (aten.native_batch_norm.default, (3, 4), (), True),
    ],
)
def test_what_is_written(
    func: Any, writes: tuple[int, ...], keywords: tuple[str, ...], reads_written: bool
) -> None:
    info = op_info(func)
    assert (info.writes, info.writes_keywords, info.reads_written) == (writes, keywords, reads_written)
    assert info.mutates == bool(writes or keywords)


@pytest.mark.parametrize(
    ("func", "fact"),
    [
        (aten.t.default, "view"),
        (aten.detach.default, "view"),
        (aten.bernoulli_.float, "random"),
        (aten.native_dropout.default, "random"),
        (aten.empty_like.default, "uninitialised"),
        (aten.masked_fill.Scalar, "literal"),
        (aten._to_copy.default, "cast"),
    ],
)
def test_facts(func: Any, fact: str) -> None:
    info = op_info(func)
    facts = {name for name in ("view", "random", "uninitialised", "literal", "cast") if getattr(info, name)}
    assert facts == {fact}


def test_name_without_overload_and_order_of_arguments() -> None:
    info = op_info(aten.clamp.default)
    assert info.name == "aten::clamp"
    assert info.order == ("self", "min", "max")
    assert op_info(aten.clamp.default) is info
