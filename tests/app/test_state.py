"""The address is the state: parsing never fails, links keep what is shared."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ampscope.app.state import MAX_SEARCH, View


def test_first_value_of_a_key_wins() -> None:
    view = View.parse("/gradients/", "?tensor=a&tensor=b&stat=amax")
    assert (view.path, view.slug, view.get("tensor"), view.get("stat")) == (
        "/gradients",
        "gradients",
        "a",
        "amax",
    )


def test_the_rest_of_the_path_is_the_key_of_a_finding() -> None:
    view = View.parse("/findings/AMP203.2", "")
    assert (view.slug, view.rest) == ("findings", "AMP203.2")
    assert View.parse("/", None).slug == ""


def test_a_choice_that_is_not_offered_falls_back() -> None:
    view = View.parse("/", "?stat=<script>")
    assert view.choice("stat", ["amax", "rms"]) == "amax"
    assert view.choice("stat", ["amax", "rms"], "rms") == "rms"
    assert view.choice("stat", []) == ""


def test_integers_are_integers_or_nothing() -> None:
    assert View.parse("/", "?at=31").integer("at") == 31
    assert View.parse("/", "?at=1e3").integer("at") is None
    assert View.parse("/", "").integer("at") is None


def test_links_keep_run_and_process_and_drop_the_rest() -> None:
    view = View.parse("/gradients", "?run=a b&process=1.0&tensor=x&scale=4")
    assert view.link("/updates", param="w&1") == "/updates?run=a%20b&process=1.0&param=w%261"
    assert View().link("/run", at=None) == "/run"


@given(st.text(max_size=60), st.text(max_size=400))
def test_any_address_is_read(path: str, search: str) -> None:
    view = View.parse(path, search)
    assert view.path.startswith("/")
    assert View.parse(view.path, view.link(view.path).partition("?")[2]).link("/x") == view.link("/x")


def test_an_endless_query_is_cut() -> None:
    view = View.parse("/", "?tensor=" + "x" * 10 * MAX_SEARCH)
    assert len(view.get("tensor")) <= MAX_SEARCH
