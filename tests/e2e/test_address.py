"""All state is in the address: it is written, followed, shared, and survives a reload."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import OpenTab

pytestmark = pytest.mark.browser


def choose(page: Page, label: str, option: str) -> None:
    """As a user of the keyboard: focus, type or move, Enter."""
    page.get_by_role("combobox", name=label).or_(page.get_by_label(label, exact=True)).first.click()
    page.get_by_role("option", name=option, exact=True).click()


def params(page: Page) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(page.url).query).items()}


def test_a_choice_goes_into_the_address_and_back_brings_it_back(tab: OpenTab) -> None:
    t = tab()
    page = t.open("gradients")
    assert params(page) == {}
    choose(page, "Shows", "exact zeros")
    expect(page).to_have_url(re.compile(r"stat=zeros"))
    expect(page.locator(".cbtitle, .cb-title, .infolayer").first.get_by_text("exact zeros")).to_be_visible()
    page.go_back()
    expect(page).to_have_url(re.compile(r"/gradients$"))
    expect(page.get_by_label("Shows", exact=True).first).to_have_value("largest |x|")
    page.go_forward()
    expect(page.get_by_label("Shows", exact=True).first).to_have_value("exact zeros")


def test_back_and_forward_in_haste_end_where_they_lead(tab: OpenTab) -> None:
    t = tab()
    page = t.open("gradients")
    names = {"zeros": "exact zeros", "rms": "root mean square"}
    for key in ("zeros", "rms", "zeros", "rms"):
        choose(page, "Shows", names[key])
        expect(page).to_have_url(re.compile(f"stat={key}"))
    page.evaluate(
        "window.pushed = []; const push = history.pushState.bind(history);"
        "history.pushState = (...to) => { window.pushed.push(to[2]); push(...to); }; 0"
    )
    for pause in (0, 1, 4, 4, 8, 32):
        page.evaluate(
            "async (ms) => { for (const go of ['back', 'forward', 'back', 'forward']) {"
            " history[go](); await new Promise((done) => setTimeout(done, ms)); } }",
            pause,
        )
        t.settle()
        page.wait_for_timeout(150)
        chosen = page.get_by_label("Shows", exact=True).first
        expect(chosen).to_have_value(names[params(page)["stat"]])
    assert page.evaluate("window.pushed") == []  # nobody has chosen anything


def test_the_default_leaves_the_address_clean(tab: OpenTab) -> None:
    page = tab().open("gradients?stat=zeros")
    choose(page, "Shows", "largest |x|")
    expect(page).to_have_url(re.compile(r"/gradients$"))


def test_a_link_shows_the_exact_view(tab: OpenTab) -> None:
    which = "run=second&of=activation_grad&stat=rms&tensor=blocks.1.ln1:out&at=24"
    address = f"gradients?{which}&format=fp8_e5m2&scale=1000"
    t = tab()
    page = t.open(address)
    shown = {"Shows": "root mean square", "Tensor": "blocks.1.ln1:out", "What if: format": "float8 e5m2"}
    expect(page.get_by_label("scale", exact=True).first).to_have_value("1000")
    for label, value in shown.items():
        expect(page.get_by_label(label, exact=True).first).to_have_value(value)
    expect(page.get_by_text("Histogram over step 24")).to_be_visible()
    expect(page.locator(".mini", has_text="basis")).to_contain_text("bounds: no power of two")
    before = page.locator(".minis").inner_text()
    page.reload()
    t.settle()
    expect(page.locator(".minis")).to_have_text(re.compile(r".+", re.DOTALL))
    assert page.locator(".minis").inner_text() == before


def test_copy_link_names_the_run_and_the_view(tab: OpenTab) -> None:
    page = tab().open("gradients?tensor=head.weight")
    page.get_by_label("What if: format", exact=True).first.click()
    page.get_by_role("option", name="float8 e4m3fn", exact=True).click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert parse_qs(urlsplit(copied).query) == {
        "tensor": ["head.weight"],
        "format": ["fp8_e4m3fn"],
        "run": ["first"],
    }


def test_the_run_is_kept_from_page_to_page(tab: OpenTab) -> None:
    t = tab()
    page = t.open("?run=second")
    page.get_by_role("link", name="Scale").click()
    t.settle()
    expect(page).to_have_url(re.compile(r"/scale\?run=second$"))
    expect(page).to_have_title("Scale · second · ampscope")


def test_another_run_is_chosen_in_the_header(tab: OpenTab) -> None:
    t = tab()
    page = t.open("gradients?tensor=head.weight&stat=zeros")
    page.get_by_role("textbox", name="Run").click()
    page.get_by_role("option", name="second").click()
    expect(page).to_have_url(re.compile(r"run=second"))
    t.settle()
    assert params(page) == {"run": "second", "stat": "zeros"}


def test_a_cell_of_the_heat_map_chooses_its_tensor(tab: OpenTab) -> None:
    page = tab().open("gradients")
    plot = page.locator(".js-plotly-plot .nsewdrag").first
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 4)
    expect(page.locator(".hoverlayer").first).to_contain_text("head.weight")
    page.mouse.down()
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"tensor=head\.weight"))
    expect(page.get_by_label("Tensor", exact=True).first).to_have_value("head.weight")


def test_a_skipped_step_leads_to_its_culprit(tab: OpenTab) -> None:
    t = tab()
    page = t.open("scale")
    page.get_by_role("link", name="head.weight").first.click()
    t.settle()
    expect(page).to_have_url(re.compile(r"/gradients\?tensor=head\.weight&at=24"))
    expect(page.get_by_text("Histogram over step 24")).to_be_visible()
    page.get_by_role("link", name="show all steps").click()
    expect(page.get_by_text("Histogram over all recorded steps")).to_be_visible()


def test_an_address_that_makes_no_sense_shows_the_default(tab: OpenTab) -> None:
    page = tab().open(
        "gradients?tensor=%3Cimg%20src%3Dx%3E&stat=%22&of=..%2F&at=x&scale=-5&format=y&run=nobody"
    )
    expect(page.get_by_label("Tensor", exact=True).first).to_have_value("wte.weight")
    expect(page.locator(".notice-error")).to_have_count(0)


def test_a_page_that_is_not_there(tab: OpenTab) -> None:
    t = tab()
    t.page.goto(t.url + "nowhere")
    expect(t.page.get_by_text("There is no such page")).to_be_visible()
