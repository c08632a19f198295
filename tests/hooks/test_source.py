from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ampscope.hooks import source
from ampscope.hooks.source import Place, user_place


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_names_file_line_and_function() -> None:
    place, line = user_place(), here()
    assert place is not None
    assert (place.file, place.line) == (__file__, line)
    assert place.function.endswith("test_names_file_line_and_function")


def test_skip_leaves_out_callers() -> None:
    def inner() -> Place | None:
        return user_place(skip=1)

    place, line = inner(), here()
    assert place is not None
    assert place.line == line


def test_frames_of_torch_are_looked_through() -> None:
    found: list[Place | None] = []
    model = torch.nn.Sequential(torch.nn.Identity())
    model[0].register_forward_hook(lambda *_: found.append(_in_torch(user_place)))
    model(torch.ones(1))
    line = here() - 1
    assert found[0] is not None
    assert (found[0].file, found[0].line) == (__file__, line)


def _in_torch(function: Callable[..., Place | None]) -> Place | None:
    """The result of `function`, called by code of torch without a user frame between it and the hook's caller."""
    return function(skip=2)


def _run(text: str, file: str, **names: Any) -> dict[str, Any]:
    scope: dict[str, Any] = {"user_place": user_place, "__name__": "__main__", **names}
    exec(compile(text, file, "exec"), scope)
    return scope


def test_the_users_line_wins_over_a_library_that_calls_us() -> None:
    library = _run("def call(): return user_place()", "/env/lib/python3/site-packages/lib/core.py")
    user = _run("found = call()", "/home/u/train.py", call=library["call"])
    assert user["found"] == Place("/home/u/train.py", 1, "<module>")


def test_a_library_is_named_when_no_user_code_runs() -> None:
    library = _run("def call(out): out.append(user_place())", "/env/lib/python3/site-packages/lib/loop.py")
    found: list[Place | None] = []
    thread = threading.Thread(target=library["call"], args=(found,))
    thread.start()
    thread.join()
    assert found[0] is not None
    assert found[0].file.endswith("lib/loop.py")


def test_no_user_code_at_all() -> None:
    found: list[Place | None] = []

    class Quietly(threading.Thread):
        run = staticmethod(lambda: found.append(user_place(skip=1)))

    thread = Quietly()
    thread.start()
    thread.join()
    assert found == [None]


def test_scripts_given_as_text_are_user_code_but_generated_code_is_not() -> None:
    script = _run("found = user_place()", "<string>")
    assert script["found"] == Place("<string>", 1, "<module>")
    scope: dict[str, Any] = {"user_place": user_place, "__name__": "dataclasses"}
    exec(compile("def made(): return user_place()", "<string>", "exec"), scope)
    place = scope["made"]()
    assert place is not None
    assert place.file == __file__


def test_within_backward_stops_at_the_engine() -> None:
    found: list[Place | None] = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    # A hook of ours has no user frame of its own: what is left is the line that called backward.
    hook = _run(
        "def hook(grad):\n    out.append(user_place(within_backward=True))\n    out.append(user_place())",
        str(Path(source.__file__)),
        out=found,
    )["hook"]
    y.register_hook(hook)
    y.sum().backward()
    line = here() - 1
    assert found[0] is None
    assert found[1] is not None
    assert found[1].line == line


def test_within_backward_finds_a_custom_function() -> None:
    found: list[Place | None] = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            found.append(user_place(within_backward=True))
            return grad * 2

    x = torch.ones(2, requires_grad=True)
    Double.apply(x).sum().backward()  # type: ignore[no-untyped-call]
    assert found[0] is not None
    assert "Double.backward" in found[0].function or sys.version_info < (3, 11)


def test_one_object_per_line() -> None:
    places = [user_place() for _ in range(3)]
    assert places[0] is places[1] is places[2]
