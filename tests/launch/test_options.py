"""Option values are normalised, and a bad one names what would be right."""

from __future__ import annotations

import pytest

from ampscope.errors import AmpscopeError
from ampscope.launch.options import KEYS, PRECISIONS, overrides, step_range


def test_pairs_are_normalised() -> None:
    assert overrides(
        ["autocast.dtype=bf16", "scaler.enabled=off", "scaler.init_scale=1024", "scaler.growth_interval=7"]
    ) == {
        "autocast.dtype": ["bfloat16"],
        "scaler.enabled": ["false"],
        "scaler.init_scale": ["1024.0"],
        "scaler.growth_interval": ["7"],
    }


def test_patterns_add_up_and_other_keys_are_replaced() -> None:
    got = overrides(["module.fp32=a.*", "matmul.precision=tf32", "module.fp32=b=c", "matmul.precision=fp32"])
    assert got == {"module.fp32": ["a.*", "b=c"], "matmul.precision": ["highest"]}


def test_a_pair_wins_over_the_preset() -> None:
    got = overrides(["scaler.enabled=true"], "bf16")
    assert got == {
        "autocast.enabled": ["true"],
        "autocast.dtype": ["bfloat16"],
        "scaler.enabled": ["true"],
    }


def test_presets_are_made_of_valid_pairs() -> None:
    for name, pairs in PRECISIONS.items():
        assert overrides([f"{key}={value}" for key, value in pairs.items()]) == overrides([], name)


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("autocast.type=fp16", "does not know 'autocast.type'. Keys: autocast.dtype"),
        ("autocast.dtype", "needs a value"),
        ("autocast.dtype=int8", "one of float16, bfloat16"),
        ("autocast.enabled=maybe", "one of true, false"),
        ("scaler.init_scale=0", "above 0"),
        ("scaler.init_scale=nan", "above 0"),
        ("scaler.init_scale=inf", "above 0"),
        ("scaler.backoff_factor=1", "between 0 and 1"),
        ("scaler.growth_interval=1.5", "whole number"),
        ("optimizer.eps=-1e-8", "from 0"),
        ("matmul.precision=low", "one of highest, high, medium"),
        ("module.fp32=", "a module name"),
    ],
)
def test_bad_pairs(pair: str, said: str) -> None:
    with pytest.raises(AmpscopeError, match=said) as caught:
        overrides([pair])
    assert caught.value.exit_code == 2


def test_keys_are_those_of_the_documentation() -> None:
    assert set(KEYS) == {
        "autocast.dtype", "autocast.enabled", "scaler.enabled", "scaler.init_scale", "scaler.growth_interval",
        "scaler.backoff_factor", "matmul.precision", "module.fp32", "optimizer.eps",
    }  # fmt: skip


@pytest.mark.parametrize(("text", "value"), [("3:9", (3, 9)), ("3:", (3, None)), (":9", (0, 9))])
def test_step_range(text: str, value: tuple[int, int | None]) -> None:
    assert step_range(text) == value


@pytest.mark.parametrize("text", ["", ":", "5", "5:5", "9:3", "-1:3", "a:b", "1:2:3", "1.5:2", "١:٣"])
def test_bad_step_ranges(text: str) -> None:
    with pytest.raises(AmpscopeError, match="--steps"):
        step_range(text)
