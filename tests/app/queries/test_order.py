"""One order of tensors everywhere: that of the first forward."""

from __future__ import annotations

from ampscope.app.queries import order
from ampscope.app.queries.source import Source
from tests.app.tracekit import module_names


def test_modules_in_the_order_of_their_first_call(src: Source) -> None:
    assert list(order.module_ranks(src)) == module_names(2)


def test_tensors_follow_their_modules_weight_first(src: Source) -> None:
    names = [
        "head.weight",
        "blocks.0.ln1.bias",
        "blocks.0.ln1.weight",
        "wte.weight",
        "blocks.1.ln1:out",
        "wte.weight",
    ]
    assert order.forward_order(src, names) == [
        "wte.weight", "blocks.0.ln1.weight", "blocks.0.ln1.bias", "blocks.1.ln1:out", "head.weight",
    ]  # fmt: skip


def test_a_parameter_of_a_container_goes_before_what_ran_inside(src: Source) -> None:
    names = ["blocks.1.ln1.weight", "blocks.1.gate", "blocks.0.mlp.proj.weight", "position", "unknown.x"]
    assert order.forward_order(src, names) == [
        "position", "blocks.0.mlp.proj.weight", "blocks.1.gate", "blocks.1.ln1.weight", "unknown.x",
    ]  # fmt: skip


def test_containers_among_modules(src: Source) -> None:
    assert order.by_module(src, ["head", "blocks.1", "blocks.1.ln1", "wte"]) == [
        "wte",
        "blocks.1",
        "blocks.1.ln1",
        "head",
    ]


def test_the_owner_of_a_name() -> None:
    assert order.owner_of("a.b.weight") == "a.b"
    assert order.owner_of("a.b:out1") == "a.b"
    assert order.owner_of("weight") == ""


def test_without_modules_the_names_decide(bare: Source) -> None:
    assert order.forward_order(bare, ["b.weight", "a.weight"]) == ["a.weight", "b.weight"]
