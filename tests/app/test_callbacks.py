"""Every part of every page renders for a full run, a bare one and a damaged one, and says so where there is nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ampscope.app import callbacks
from ampscope.app.pages import PAGES
from ampscope.app.runs import RunStore
from ampscope.app.state import View
from tests.app import walk
from tests.app.tracekit import RunKit

RUNS = ("first", "second", "bare")


def parts(store: RunStore, view: View) -> list[str]:
    page = callbacks.page_of(view)
    assert page is not None
    return [f"{page.slug}/{part.name}" for part in page.parts(callbacks.context_of(store, view))]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("slug", [page.slug for page in PAGES])
def test_every_part_renders(store: RunStore, run: str, slug: str) -> None:
    view = View.parse(f"/{slug}", f"run={run}")
    for name in parts(store, view):
        content = callbacks.fill_part(store, view, name)
        shown = walk.text(content)
        wrong = ("could not be computed", "cannot be shown", "NaN %", "None", " nan ")
        assert not [w for w in wrong if w in f" {shown} "], f"{name}: {shown}"


@pytest.mark.parametrize(
    "slug", [page.slug for page in PAGES if page.slug not in ("", "run", "findings", "compare")]
)
def test_a_bare_run_is_told_apart_from_a_healthy_one(store: RunStore, slug: str) -> None:
    view = View.parse(f"/{slug}", "run=bare")
    shown = " ".join(walk.text(callbacks.fill_part(store, view, name)) for name in parts(store, view))
    assert "No " in shown


@pytest.mark.parametrize(
    "search", ["tensor=nobody&stat=nothing&of=x&at=99999", "scale=-1&format=%3Cscript%3E", "step=1e9"]
)
@pytest.mark.parametrize("slug", ["gradients", "activations", "updates", "ops"])
def test_a_wrong_address_falls_back(store: RunStore, slug: str, search: str) -> None:
    view = View.parse(f"/{slug}", search)
    for name in parts(store, view):
        assert "could not" not in walk.text(callbacks.fill_part(store, view, name))


def test_a_page_or_part_that_is_not_there(store: RunStore) -> None:
    assert callbacks.page_of(View.parse("/nowhere", "")) is None
    import dash

    assert callbacks.fill_part(store, View.parse("/scale", ""), "scale/nothing") is dash.no_update
    assert callbacks.fill_part(store, View.parse("/nowhere", ""), "x/y") is dash.no_update


def test_a_missing_finding_is_one_sentence(store: RunStore) -> None:
    content = callbacks.fill_part(store, View.parse("/findings/AMP999", ""), "findings/claim")
    assert "no finding AMP999" in walk.text(content)


def test_an_unforeseen_error_stays_in_its_part(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ampscope.app.queries import steps

    def broken(*args: object) -> None:
        raise ZeroDivisionError("by <b>nothing</b>")

    monkeypatch.setattr(steps, "loss", broken)
    content = callbacks.fill_part(store, View(), "/course")
    assert "ZeroDivisionError: by <b>nothing</b>" in walk.text(content)
    assert "ZeroDivisionError" in capsys.readouterr().err


def build(store: RunStore, data: dict[str, Any], before: dict[str, Any] | None = None) -> Any:
    return callbacks.skeleton(store, data, before or {}, ["/", "/findings"])


def test_the_skeleton_holds_controls_and_empty_parts(store: RunStore) -> None:
    header, body, rendered, still, counts = build(store, {"path": "/gradients", "search": "", "ticks": 0})
    ids = [node["props"].get("id") for node in walk.nodes(body)]
    keys = {i["key"] for i in ids if isinstance(i, dict) and i.get("type") == "ctl"}
    assert keys == {"of", "stat", "tensor", "format", "scale"}
    assert {"type": "part", "name": "gradients/heat"} in ids
    assert rendered["run"] == "first"
    assert rendered["title"].startswith("Gradients")
    assert still is True
    assert len(counts) == 2
    assert "complete" in walk.text(header)


def test_a_change_of_a_parameter_keeps_the_controls(store: RunStore) -> None:
    import dash

    _, _, before, _, _ = build(store, {"path": "/gradients", "search": "", "ticks": 0})
    _, body, after, _, _ = build(store, {"path": "/gradients", "search": "stat=amax", "ticks": 0}, before)
    assert body is dash.no_update
    assert after["search"] == "stat=amax"
    _, body, _, _, _ = build(store, {"path": "/gradients", "search": "of=activation_grad", "ticks": 0}, after)
    assert body is not dash.no_update


def test_a_tick_without_news_renders_nothing(store: RunStore) -> None:
    from dash.exceptions import PreventUpdate

    _, _, before, _, _ = build(store, {"path": "/", "search": "", "ticks": 0})
    with pytest.raises(PreventUpdate):
        build(store, {"path": "/", "search": "", "ticks": 1}, before)


def test_a_page_that_is_not_there_is_said(store: RunStore) -> None:
    _, body, _, _, _ = build(store, {"path": "/nowhere", "search": "", "ticks": 0})
    assert "no such page" in walk.text(body)


def test_a_run_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    store = RunStore([tmp_path / "gone"])
    _, body, _, still, _ = build(store, {"path": "/", "search": "", "ticks": 0})
    assert "cannot be read" in walk.text(body)
    assert still is True
    assert "cannot be shown" in walk.text(callbacks.fill_part(store, View(), "/course"))


def test_a_damaged_run_shows_the_rest_and_names_the_part(tmp_path: Path) -> None:
    path = RunKit().build().write(tmp_path / "damaged")
    part = next((path / "tensors" / "rank=0").iterdir())
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 0xFF
    part.write_bytes(bytes(content))
    store = RunStore([path])
    header, _, _, _, _ = build(store, {"path": "/run", "search": "", "ticks": 0})
    assert "damaged" in walk.text(header)
    shown = walk.text(callbacks.fill_part(store, View.parse("/run", ""), "run/integrity"))
    assert part.name in shown
    assert "everything else is shown" in shown
    assert "Graph" in walk.kinds(callbacks.fill_part(store, View(), "/course"))
    assert "No tensors were recorded" in walk.text(
        callbacks.fill_part(store, View.parse("/gradients", ""), "gradients/empty")
    )


def test_the_badge_counts_known_findings(tmp_path: Path) -> None:
    store = RunStore([RunKit(grad_center=-60.0, scale0=4.0).build().write(tmp_path / "r")])
    assert callbacks.count_of(store, View()) == ""
    callbacks.fill_part(store, View(), "/verdict")
    found = store.get("r").diagnosis().at_or_above("warning")
    assert callbacks.count_of(store, View()) == (str(len(found)) if found else "")
