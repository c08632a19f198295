from __future__ import annotations

from typing import Any

import torch

from ampscope.hooks.identity import UNKNOWN
from ampscope.hooks.quiet import quiet
from ampscope.hooks.tensorfacts import FactReader, Limits, TensorFacts, collect, dtype_text


def facts(tensor: torch.Tensor, read: bool = True) -> TensorFacts:
    reader = FactReader(Limits(elements=100))
    with quiet():
        found = reader.facts(tensor)
        if read:
            reader.read([found])
    return found


def test_facts_of_a_half_tensor() -> None:
    found = facts(torch.full((2, 3), 2.0, dtype=torch.float16))
    assert (found.dtype, found.shape, found.nbytes, found.device) == ("float16", "2x3", 12, "cpu")
    assert found.whole_storage
    assert found.range is not None
    assert found.range.amax == 2.0


def test_scalars_views_and_integers() -> None:
    assert facts(torch.tensor(1.0)).shape == ""
    assert not facts(torch.ones(4)[1:]).whole_storage
    integers = facts(torch.arange(3))
    assert integers.range is None
    assert integers.identity != UNKNOWN


def test_large_tensors_are_described_but_not_read() -> None:
    found = facts(torch.ones(101))
    assert (found.shape, found.range) == ("101", None)


def test_reading_can_be_switched_off() -> None:
    reader = FactReader(Limits())
    reader.read_values = False
    found = reader.facts(torch.ones(2))
    reader.read([found])
    assert found.range is None


def test_a_tensor_that_refuses_gets_question_marks() -> None:
    class Refusing(torch.Tensor):
        @staticmethod
        def __new__(cls) -> Refusing:
            made: Refusing = torch.Tensor._make_wrapper_subclass(
                cls, (2,), dispatch_sizes_strides_policy="sizes"
            )
            return made

        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise RuntimeError("no sizes")

    found = facts(Refusing())
    assert (found.dtype, found.shape, found.identity, found.range) == ("?", "?", UNKNOWN, None)


def test_prune_forgets_ranges_and_storages() -> None:
    reader = FactReader(Limits())
    kept = torch.ones(3)
    with quiet():
        identity = reader.facts(kept).identity
        reader.read([reader.facts(kept), reader.facts(torch.ones(3))])
    assert reader.prune() == {identity}
    assert len(reader.ranges) == 0


def test_tensors_are_found_in_nested_arguments() -> None:
    a, b, c = torch.ones(1), torch.ones(2), torch.ones(3)
    found: list[torch.Tensor] = []
    collect(([a, None], {"x": (b, 3)}, "text", c), found)
    assert [t.numel() for t in found] == [1, 2, 3]


def test_names_of_dtypes() -> None:
    assert dtype_text(torch.bfloat16) == "bfloat16"
