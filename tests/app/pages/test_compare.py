"""Compare says of two runs what `ampscope compare` says, and draws it."""

from __future__ import annotations

from ampscope.app.callbacks import context_of, fill_part
from ampscope.app.runs import RunStore
from ampscope.app.state import View
from ampscope.compare.divergence import join
from tests.app import walk

VIEW = View.parse("/compare", "of=grad")


def shown(store: RunStore, part: str, view: View = VIEW) -> str:
    return walk.text(fill_part(store, view, f"compare/{part}"))


def test_both_runs_side_by_side(store: RunStore) -> None:
    facts = shown(store, "facts")
    assert "first" in facts
    assert "float16 bfloat16" in facts
    assert "losses that are NaN or inf 0 10" in facts


def test_the_losses_are_compared(store: RunStore) -> None:
    assert "Over 40 common steps they differ by 0 % on average" in shown(store, "losses")


def test_what_was_set_up_differently_is_named(store: RunStore) -> None:
    assert "autocast cpu float16 cpu bfloat16" in shown(store, "settings")
    same = shown(store, "settings", View.parse("/compare", "run=second&with=second"))
    assert "autocast" in same


def test_the_first_divergence_is_that_of_the_command_line(store: RunStore) -> None:
    one, two = (store.get(name) for name in ("first", "second"))
    first = join(one.trace, two.trace).first
    assert first is not None
    text = shown(store, "tensors")
    assert f"at step {first.step}: " in text
    assert first.name in text
    assert first.why in text


def test_the_other_run_is_chosen_in_the_address(store: RunStore) -> None:
    view = View.parse("/compare", "run=second&with=bare")
    context = context_of(store, view)
    assert context.run.name == "second"
    assert "No activations to compare" in shown(store, "tensors", view)


def test_one_run_alone(run_dir_store: RunStore) -> None:
    content = fill_part(run_dir_store, View.parse("/compare", ""), "compare/alone")
    assert "Only one run is open" in walk.text(content)
