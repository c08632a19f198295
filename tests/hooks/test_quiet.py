from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ampscope.hooks.quiet import is_quiet, quiet, quiet_in_dispatch, readable
from tests.support.opview import Log, mode_stack


def test_no_gradient_is_recorded_and_grad_mode_comes_back() -> None:
    x = torch.ones(2, requires_grad=True)
    with quiet():
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad
    with torch.no_grad():
        with quiet():
            pass
        assert not torch.is_grad_enabled()


def test_autocast_is_off_inside_and_on_after() -> None:
    a = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with quiet():
            assert (a @ a).dtype is torch.float32
        assert (a @ a).dtype is torch.bfloat16
        assert torch.is_autocast_enabled("cpu")


def test_modes_of_the_user_neither_see_our_work_nor_lose_their_place() -> None:
    lower, upper = Log(), Log()
    with lower, upper:
        before = mode_stack()
        with quiet():
            torch.ones(3) + 1
            assert mode_stack() == []
        assert [id(m) for m in mode_stack()] == [id(m) for m in before] == [id(lower), id(upper)]
        torch.zeros(1)
    assert upper.names == lower.names == ["aten.zeros.default"]


def test_function_modes_and_default_device_do_not_leak() -> None:
    seen: list[Any] = []

    class Spy(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with torch.device("meta"), Spy():
        with quiet():
            assert torch.ones(2, device="cpu").device.type == "cpu"
            assert torch.ones(2).device.type == "cpu"
        assert seen == []
        assert torch.ones(2).device.type == "meta"
    assert seen


def test_nests_and_restores_after_an_exception() -> None:
    with Log() as mode:
        with pytest.raises(ZeroDivisionError), quiet(), quiet():
            1 / int(not is_quiet())
        assert not is_quiet()
        assert torch.is_grad_enabled()
        assert mode_stack() == [mode]


def test_quiet_is_per_thread() -> None:
    seen: list[bool] = []
    with quiet():
        thread = threading.Thread(target=lambda: seen.append(is_quiet()))
        thread.start()
        thread.join()
    assert seen == [False]


def test_transforms_of_torch_func_are_stepped_out_of() -> None:
    plain = torch.arange(6.0).reshape(2, 3)
    kinds: list[bool] = []

    def per_row(row: torch.Tensor) -> torch.Tensor:
        with quiet():
            kinds.append(torch._C._functorch.is_functorch_wrapped_tensor(plain * 2))
            kinds.append(readable(row) is None)
        return row * 2

    assert torch.equal(torch.func.vmap(per_row)(plain), plain * 2)
    assert kinds == [False, True]


def test_nothing_is_added_to_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")
    with torch.autograd.profiler.profile() as profile:
        with quiet():
            torch.ones(3).cumsum(0)
        torch.ones(3).neg()
    names = {event.key for event in profile.key_averages()}
    assert "aten::neg" in names
    assert "aten::cumsum" not in names


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated")
def test_nothing_is_added_to_a_jit_trace() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with quiet():
            assert float(x.cos().sum()) < 3.0
            x.neg_().neg_()
        return x * 2

    traced = torch.jit.trace(f, (torch.ones(3),))
    kinds = {node.kind() for node in traced.graph.nodes()}
    assert kinds == {"prim::Constant", "aten::mul"}


def test_the_cheap_form_inside_a_dispatch_mode() -> None:
    seen: list[Any] = []

    class Reader(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with quiet_in_dispatch():
                a = torch.ones(2, 2)
                product = a @ a
                seen.append((product.dtype, product.requires_grad, torch.ones(1).device.type))
                weight = args[0] * 2.0
                seen.append(weight.requires_grad)
            return func(*args, **(kwargs or {}))

    class Spy(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    names: list[str] = []
    w = torch.ones(2, 2, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16), Spy(), Reader():  # type: ignore[no-untyped-call]
        torch.neg(w)
    assert seen == [(torch.float32, False, "cpu"), False]
    assert names == ["neg"]


class Hostile(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("not for you")


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        made: Wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape)
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise RuntimeError("not for you")


def test_what_can_be_read() -> None:
    plain = torch.ones(4)
    assert readable(plain) is plain
    assert readable(torch.nn.Parameter(plain)) is not None
    assert readable(torch.ones(0)) is not None
    hostile = plain.as_subclass(Hostile)
    with quiet():
        values = readable(hostile)
        assert values is not None
        assert float(values.sum()) == 4.0
    sparse = torch.ones(4).to_sparse_coo() * 3
    values = readable(sparse)
    assert values is not None
    assert values.tolist() == [3.0] * 4


def test_what_cannot_be_read() -> None:
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    zeros = torch._efficientzerotensor((3,))
    for tensor in (torch.ones(2, device="meta"), Wrapper(torch.ones(2)), freed, zeros):
        assert readable(tensor) is None
