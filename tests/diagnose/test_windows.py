from __future__ import annotations

from typing import Any

import pytest

from ampscope.diagnose.calls import SCALAR_COLUMNS, Call
from ampscope.diagnose.policy import POLICY
from ampscope.diagnose.windows import breaches_of, common_factor, concerned, optimizers_of, windows_of

Described = tuple[str, dict[str, Any]]


def stream(*described: Described) -> tuple[Call, ...]:
    """Calls from names with columns; the rest of each row is null."""
    made = []
    for index, (name, columns) in enumerate(described):
        fields: dict[str, Any] = dict.fromkeys(SCALAR_COLUMNS)
        fields.update(
            {
                "rank": 0,
                "proc": 0,
                "seq": index,
                "step": 0,
                "segment": 0,
                "call": name,
                "params": (),
                **columns,
            }
        )
        made.append(Call(index=index, **fields))
    return tuple(made)


UNSCALE: Described = ("scaler.unscale_", {"object": "S", "target": "A"})
STEP: Described = ("scaler.step", {"object": "S", "target": "A", "value": 1024.0})
UPDATE: Described = ("scaler.update", {"object": "S"})
BACKWARD: Described = ("backward", {"target": "A", "scaled": "scaled", "n_params": 2})
ZERO: Described = ("optimizer.zero_grad", {"object": "A"})
EDIT: Described = ("grad_edit", {"value": 2.0**-10, "limit": 1.0, "params": ("w",), "n_params": 1})


def kinds(calls: tuple[Call, ...]) -> list[str]:
    return [b.kind for b in breaches_of(calls)]


def test_a_window_ends_with_the_step_of_its_optimizer() -> None:
    first, second = windows_of(stream(ZERO, BACKWARD, UNSCALE, STEP, UPDATE, BACKWARD), {})
    assert [c.call for c in first.calls] == [
        "optimizer.zero_grad",
        "backward",
        "scaler.unscale_",
        "scaler.step",
    ]
    assert first.via_scaler
    assert first.scale == 1024.0
    assert first.first_of_optimizer
    assert second.step is None
    assert len(second.backwards) == 1
    assert not second.first_of_optimizer


def test_only_what_came_after_the_last_clearing_is_live() -> None:
    (window,) = windows_of(stream(BACKWARD, ZERO, BACKWARD, BACKWARD, STEP), {})
    assert len(window.backwards) == 2
    assert len(window.of_kind("backward")) == 3


def test_the_inner_calls_of_a_scaled_step_are_left_out() -> None:
    inner: Described = ("scaler.unscale_", {"object": "S", "target": "A", "detail": "inside_step"})
    plain: Described = ("optimizer.step", {"object": "A", "detail": "via_scaler"})
    calls = stream(BACKWARD, STEP, inner, plain, UPDATE, BACKWARD, STEP, inner, plain, UPDATE)
    windows = windows_of(calls, {})
    assert len(windows) == 2
    assert kinds(calls) == []


def test_an_edit_noticed_on_entry_to_the_step_belongs_before_it() -> None:
    first, _ = windows_of(stream(BACKWARD, STEP, EDIT, UPDATE, BACKWARD), {"w": "A"})
    assert first.hand_unscale(POLICY) is not None


def test_backward_concerns_the_optimizers_that_it_fed() -> None:
    both: Described = ("backward", {"target": "A,B", "n_params": 4})
    a, b = windows_of(stream(both, STEP, ("scaler.step", {"object": "S", "target": "B"})), {})
    assert len(a.backwards) == len(b.backwards) == 1


@pytest.mark.parametrize(
    ("params", "n", "expected"),
    [
        (("w",), 1, ("A",)),
        (("v",), 1, ("B",)),
        (("w", "v"), 2, ("A", "B")),
        (("x",), 1, ()),
        (("w",), 70, ("A", "B")),
    ],
)
def test_clips_concern_the_owners_of_their_parameters(
    params: tuple[str, ...], n: int, expected: object
) -> None:
    (clip,) = stream(("clip_grad_norm_", {"params": params, "n_params": n}))
    assert concerned(clip, ("A", "B"), {"w": "A", "v": "B"}) == expected


def test_unknown_owners_rule_nobody_out() -> None:
    (clip,) = stream(("clip_grad_norm_", {"params": ("w",), "n_params": 1}))
    assert concerned(clip, ("A", "B"), {}) == ("A", "B")


def test_module_zero_grad_clears_what_lies_below_it() -> None:
    calls = stream(("optimizer.zero_grad", {"object": "D#0", "detail": "module"}))
    owners = {"D#0.w": "A", "v": "B"}
    assert concerned(calls[0], ("A", "B"), owners) == ("A",)
    root = stream(("optimizer.zero_grad", {"object": "Net", "detail": "module"}))
    assert concerned(root[0], ("A", "B"), owners) == ("A", "B")
    assert optimizers_of(calls) == ()


def test_the_protocol_of_the_scaler() -> None:
    assert kinds(stream(UNSCALE, STEP, UPDATE, UNSCALE, STEP, UPDATE)) == []
    assert kinds(stream(UNSCALE, UNSCALE)) == ["unscale-after-unscale"]
    assert kinds(stream(STEP, UNSCALE)) == ["unscale-after-step"]
    assert kinds(stream(STEP, STEP)) == ["step-after-step"]
    assert kinds(stream(STEP, ("scaler.step", {"object": "S", "target": "B"}), UPDATE)) == []


def test_update_without_a_check_counts_only_when_it_raised() -> None:
    raised: Described = ("scaler.update", {"object": "S", "error": "AssertionError"})
    assert kinds(stream(raised)) == ["update-without-check"]
    assert kinds(stream(UPDATE)) == []
    assert kinds(stream(STEP, raised)) == []


def test_calls_that_raised_change_no_stage() -> None:
    failed: Described = ("scaler.step", {"object": "S", "target": "A", "error": "AssertionError"})
    assert kinds(stream(failed, UNSCALE, STEP)) == []


@pytest.mark.parametrize(
    ("value", "limit", "expected"),
    [(0.25, 1.0, 0.25), (0.25, 3.0, None), (None, 1.0, None), (0.0, 1.0, None), (float("inf"), 1.0, None)],
)
def test_common_factor(value: float | None, limit: float, expected: float | None) -> None:
    (edit,) = stream(("grad_edit", {"value": value, "limit": limit}))
    assert common_factor(edit, POLICY.same_factor) == expected


def test_a_division_by_something_else_is_no_unscaling() -> None:
    (window,) = windows_of(stream(BACKWARD, ("grad_edit", {**EDIT[1], "value": 0.25}), STEP), {"w": "A"})
    assert window.hand_unscale(POLICY) is None
