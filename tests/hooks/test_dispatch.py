from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ampscope.hooks.dispatch import OpMode
from ampscope.hooks.quiet import quiet
from tests.support.opview import Log, mode_stack


class Recorder(OpMode):
    """Names of ops; `break_at` raises in one of the three entries."""

    def __init__(self, break_at: str = "") -> None:
        super().__init__()
        self.break_at = break_at
        self.names: list[str] = []
        self.errors: list[str] = []

    def before(self, func: Any, args: Any, kwargs: Any) -> str:
        self._break("before")
        return str(func)

    def after(self, token: str, out: Any, seconds: float) -> None:
        self._break("after")
        assert seconds >= 0.0
        self.names.append(token)

    def raised(self, token: str, error: BaseException) -> None:
        self._break("raised")
        self.errors.append(f"{token} {type(error).__name__}")

    def _break(self, where: str) -> None:
        if where == self.break_at:
            raise ValueError("a fault of ours")


def test_goes_below_the_users_modes_and_is_removed_by_identity() -> None:
    mode = Recorder()
    with Log() as outer:
        assert mode.enter_stack()
        with Log() as inner:
            assert mode_stack() == [mode, outer, inner]
            torch.ones(2)
        mode.leave_stack()
        assert mode_stack() == [outer]
    assert mode.names == inner.names == outer.names


def test_a_users_mode_that_closes_before_us_takes_itself_away() -> None:
    mode = Recorder()
    user = Log()
    user.__enter__()  # type: ignore[no-untyped-call]
    mode.enter_stack()
    user.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    assert mode_stack() == [mode]
    torch.ones(1)
    mode.leave_stack()
    assert mode_stack() == []
    assert mode.names == ["aten.ones.default"]


def test_flop_counter_of_the_user_counts_the_same() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    x = torch.ones(3, 8)

    def count() -> int:
        with FlopCounterMode(display=False) as counter:
            model(x).sum().backward()
        return int(counter.get_total_flops())

    plain = count()
    mode = Recorder()
    mode.enter_stack()
    try:
        assert count() == plain > 0
    finally:
        mode.leave_stack()


def test_own_work_is_not_recorded() -> None:
    mode = Recorder()
    mode.enter_stack()
    with quiet():
        torch.ones(2) * 2
    mode.leave_stack()
    assert mode.names == []


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_fault_of_ours_ends_us_and_not_the_run(where: str) -> None:
    mode = Recorder(where)
    mode.enter_stack()
    assert (torch.ones(2) + 1).tolist() == [2.0, 2.0]
    assert mode.failure is not None
    assert "a fault of ours" in mode.failure
    assert not mode.active
    mode.leave_stack()
    assert mode_stack() == []


@pytest.mark.parametrize("where", ["", "raised"])
def test_the_ops_own_exception_passes_through(where: str) -> None:
    mode = Recorder(where)
    mode.enter_stack()
    try:
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            torch.ones(2, 3) @ torch.ones(2, 3)
    finally:
        mode.leave_stack()
    assert mode.errors == ([] if where else ["aten.mm.default RuntimeError"])
    assert (mode.failure is None) == (where == "")


def test_tensor_subclass_that_dispatches_itself_works_and_its_errors_pass() -> None:
    class Fussy(torch.Tensor):
        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.ops.aten.neg.default:
                raise LookupError("no neg here")
            return torch.full((2,), 5.0)

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    x = torch.ones(2).as_subclass(Fussy)
    mode = Recorder()
    mode.enter_stack()
    try:
        assert (x + 1).tolist() == [5.0, 5.0]
        with pytest.raises(LookupError, match="no neg here"):
            x.neg()
    finally:
        mode.leave_stack()
    assert mode.failure is None


def test_higher_order_operators_run() -> None:
    mode = Recorder()
    mode.enter_stack()
    try:
        x = torch.ones(3)
        found = torch.cond(x.sum() > 2, lambda t: t * 2, lambda t: t * 3, (x,))
    finally:
        mode.leave_stack()
    assert found.tolist() == [2.0, 2.0, 2.0]
    assert mode.failure is None


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated")
def test_jit_tracing_and_traced_code_work() -> None:
    mode = Recorder()
    mode.enter_stack()
    try:
        traced = torch.jit.trace(lambda x: x * 2 + 1, (torch.ones(3),))
        found = traced(torch.ones(3))
    finally:
        mode.leave_stack()
    assert found.tolist() == [3.0, 3.0, 3.0]
    assert mode.failure is None
    kinds = [node.kind() for node in traced.graph.nodes() if node.kind() != "prim::Constant"]
    assert kinds == ["aten::mul", "aten::add"]


def test_not_while_the_user_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")
    mode = Recorder()
    with torch.autograd.profiler.profile():
        assert not mode.enter_stack()
    assert mode_stack() == []


def test_stopped_from_another_thread_it_lets_everything_through() -> None:
    mode = Recorder()
    mode.enter_stack()
    thread = threading.Thread(target=mode.leave_stack)
    thread.start()
    thread.join()
    torch.ones(1)
    assert mode.names == []
    mode.leave_stack()
    assert mode_stack() == []


def test_other_threads_are_not_seen() -> None:
    mode = Recorder()
    mode.enter_stack()
    thread = threading.Thread(target=lambda: torch.ones(1))
    thread.start()
    thread.join()
    mode.leave_stack()
    assert mode.names == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_free_of_us() -> None:
    mode = Recorder()
    mode.enter_stack()
    pid = os.fork()
    if pid == 0:
        clean = mode_stack() == [] and not mode.active
        os._exit(0 if clean else 1)
    _, status = os.waitpid(pid, 0)
    mode.leave_stack()
    assert os.waitstatus_to_exitcode(status) == 0


def test_dynamo_is_not_imported_by_us() -> None:
    script = """
        import sys, torch
        from tests.hooks.test_dispatch import Recorder
        mode = Recorder()
        mode.enter_stack()
        torch.ones(2, requires_grad=True).sum().backward()
        mode.leave_stack()
        assert "aten.sum.default" in mode.names
        assert "torch._dynamo" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_compiled_code_stays_compiled() -> None:
    graphs: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(1)

        def run(*args: Any) -> Any:
            # What Inductor's code does: no aten op that a mode could see.
            with torch.utils._python_dispatch._disable_current_modes():
                return graph.forward(*args)

        return run

    @torch.compile(backend=backend)
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin().cos()
        torch._dynamo.graph_break()
        return y * 2

    torch._dynamo.reset()
    x = torch.ones(3)
    plain = f(x)
    assert len(graphs) == 2
    mode = Recorder()
    mode.enter_stack()
    try:
        again = f(x)
        fresh = f(torch.ones(5))
    finally:
        mode.leave_stack()
    assert torch.equal(plain, again)
    assert fresh.shape == (5,)
    assert "aten.sin.default" not in mode.names, "the frame was run eagerly"
    compiled = len(graphs)
    f(x)
    f(torch.ones(5))
    assert len(graphs) == compiled, "nothing is compiled again when the mode has gone"
    assert mode.failure is None
