from __future__ import annotations

import pickle
import types
import warnings
from typing import Any

import pytest

from ampscope.hooks.patches import Call, Patches
from ampscope.hooks.quiet import quiet


class Target:
    def method(self, a: int, b: int = 2) -> int:
        """Documented."""
        if a < 0:
            raise ValueError("negative")
        return a + b


def seen_by(patches: Patches, owner: Any, name: str) -> list[Any]:
    seen: list[Any] = []

    def after(call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        seen.append((token, result, type(error).__name__ if error else None))

    patches.wrap(owner, name, lambda call: call.argument(2, "b", "default"), after)
    return seen


def test_results_and_errors_pass_through() -> None:
    patches = Patches()
    seen = seen_by(patches, Target, "method")
    assert Target().method(1, b=5) == 6
    with pytest.raises(ValueError, match="negative"):
        Target().method(-1)
    assert seen == [(5, 6, None), ("default", None, "ValueError")]
    assert Target.method.__doc__ == "Documented."
    patches.remove()
    assert "observed" not in repr(Target.method)
    assert Target().method(1) == 3
    assert len(seen) == 2


def test_a_wrapper_of_somebody_else_is_left_in_place() -> None:
    patches = Patches()
    original = Target.method
    seen_by(patches, Target, "method")
    theirs = Target.method

    def outer(self: Target, a: int, b: int = 2) -> int:
        return theirs(self, a, b)

    Target.method = outer  # type: ignore[method-assign]
    try:
        patches.remove()
        assert Target.method is outer
    finally:
        Target.method = original  # type: ignore[method-assign]


def test_a_module_function_can_still_be_pickled() -> None:
    module = types.ModuleType("somewhere")
    package = types.ModuleType("package")
    module.work = package.work = Target.method  # type: ignore[attr-defined]
    patches = Patches()
    patches.wrap(module, "work", aliases=(package,))
    assert module.work is package.work
    patches.remove()
    import torch

    wrapped = Patches()
    wrapped.wrap(torch.nn.utils.clip_grad, "clip_grad_norm_", aliases=(torch.nn.utils,))
    try:
        assert pickle.loads(pickle.dumps(torch.nn.utils.clip_grad_norm_)) is torch.nn.utils.clip_grad_norm_
    finally:
        wrapped.remove()


def test_own_work_and_missing_names_are_not_observed() -> None:
    patches = Patches()
    seen = seen_by(patches, Target, "method")
    with quiet():
        Target().method(1)
    patches.wrap(Target, "no_such_method")
    patches.remove()
    assert seen == []


def test_a_warning_with_a_stack_level_names_the_users_line() -> None:
    class Warns:
        def method(self) -> None:
            warnings.warn("look here", stacklevel=2)

    patches = Patches()
    seen_by(patches, Warns, "method")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Warns().method()
    patches.remove()
    assert caught[0].filename == __file__


def test_while_idle_only_the_original_runs() -> None:
    patches, idle = Patches(), [True]
    seen: list[Call] = []
    patches.wrap(Target, "method", before=seen.append, idle=lambda: idle[0])
    try:
        assert Target().method(1) == 3
        with pytest.raises(ValueError, match="negative") as raised:
            Target().method(-1)
        assert [entry.name for entry in raised.traceback][1:] == ["method"], "as without the wrapper"
        assert seen == []
        idle[0] = False
        Target().method(1)
        assert len(seen) == 1
    finally:
        patches.remove()
