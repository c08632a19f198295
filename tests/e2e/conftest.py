"""A real headless Chromium and a served dashboard. A page remembers what went wrong and where it asked."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    expect,
)

from ampscope.app.pages import PAGES
from ampscope.app.runs import RunStore
from ampscope.app.server import Server, create_app
from tests.app.tracekit import RunKit

SECONDS = 20.0
"""How long a page may take on a busy machine; nothing is timed here."""


@dataclass
class Tab:
    """One tab, and what it did. `url` is that of the dashboard, ending in a slash; `scheme` what the user prefers."""

    page: Page
    url: str
    scheme: str
    wrong: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def listen(self) -> None:
        def console(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self.wrong.append(f"{message.type}: {message.text}")

        def failed(request: Request) -> None:
            if request.failure != "net::ERR_ABORTED":  # the page was left before it came
                self.wrong.append(f"failed: {request.url} {request.failure}")

        def request(request: Request) -> None:
            self.asked.append(request.url)

        self.page.on("console", console)
        self.page.on("pageerror", lambda error: self.wrong.append(f"uncaught: {error}"))
        self.page.on("requestfailed", failed)
        self.page.on(
            "response", lambda r: self.wrong.append(f"{r.status}: {r.url}") if r.status >= 400 else None
        )
        self.page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        self.page.on("request", request)

    def open(self, address: str = "") -> Page:
        """Goes to a view and waits until every part of it is there."""
        self.page.goto(self.url + address)
        self.settle()
        return self.page

    def tour(self, address: str = "") -> Iterator[str]:
        """Opens the first page and goes on to each other one by its link; yields their slugs."""
        self.open(address)
        for listed in PAGES:
            self.page.locator(".nav-link", has_text=listed.title).click()
            expect(self.page).to_have_title(re.compile(f"^{listed.title} · "))
            self.settle()
            yield listed.slug

    def settle(self) -> None:
        expect(self.page.locator(".page")).to_be_visible()
        expect(self.page.locator(".waiting")).to_have_count(0)

    def foreign(self) -> list[str]:
        """Requests that left this dashboard."""
        here = urlsplit(self.url).netloc
        own = ("data", "blob", "about")
        return [u for u in self.asked if urlsplit(u).scheme not in own and urlsplit(u).netloc != here]


OpenTab = Callable[..., Tab]


class Profiles:
    """One browser profile per colour scheme and width, kept for the session: its cache spares every test but the
    first to load and compile five megabytes of plotly.js."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._kept: dict[tuple[str, int], BrowserContext] = {}

    def get(self, scheme: str, width: int) -> BrowserContext:
        found = self._kept.get((scheme, width))
        if found is None:
            found = self._kept[scheme, width] = self._browser.new_context(
                color_scheme="dark" if scheme == "dark" else "light",
                viewport={"width": width, "height": 900},
                permissions=["clipboard-read", "clipboard-write"],
            )
            found.set_default_timeout(1000 * SECONDS)
        return found

    def close(self) -> None:
        for context in self._kept.values():
            context.close()


@pytest.fixture(scope="session")
def profiles(browser: Browser) -> Iterator[Profiles]:
    expect.set_options(timeout=1000 * SECONDS)
    found = Profiles(browser)
    yield found
    found.close()


@pytest.fixture
def tab(profiles: Profiles, dashboard: str) -> Iterator[OpenTab]:
    """Opens tabs; at the end none of them may have met an error or asked another host."""
    tabs: list[Tab] = []

    def open_tab(scheme: str = "light", width: int = 1440, url: str = dashboard) -> Tab:
        made = Tab(profiles.get(scheme, width).new_page(), url, scheme)
        made.listen()
        tabs.append(made)
        return made

    yield open_tab
    wrong: list[str] = []
    for t in tabs:
        t.page.evaluate("() => localStorage.clear()")
        wrong += t.wrong  # before the tab closes: what it is fetching then fails
        t.page.close()
    assert wrong == []
    assert [u for t in tabs for u in t.foreign()] == []


@dataclass(frozen=True)
class Served:
    """A dashboard in a thread of this process."""

    server: Server
    runs: RunStore

    @property
    def url(self) -> str:
        return self.server.url


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[list[Path]], Served]]:
    """Serves runs until the session ends."""
    started: list[tuple[Served, threading.Thread]] = []

    def start(paths: list[Path]) -> Served:
        runs = RunStore(paths)
        served = Served(Server(create_app(runs), "127.0.0.1"), runs)
        thread = threading.Thread(target=served.server.run, daemon=True)
        thread.start()
        started.append((served, thread))
        return served

    yield start
    for served, thread in started:
        served.server.stop()
        thread.join(SECONDS)
        served.runs.close()


@pytest.fixture(scope="session")
def dashboard(serve: Callable[[list[Path]], Served], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two runs of one model, the second with NaN losses, and one that recorded nothing."""
    root = tmp_path_factory.mktemp("runs")
    first = RunKit().build().write(root / "first")
    second = RunKit(grad_center=-12.0, half="bfloat16", nan_from=30).build().write(root / "second")
    bare = RunKit().write(root / "bare", complete=False)
    return serve([first, second, bare]).url


@pytest.fixture(scope="module")
def script(browser: Browser, dashboard: str) -> Iterator[Page]:
    """A page in which the arithmetic can be called."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(dashboard + "run")
    expect(page.locator(".page")).to_be_visible()
    yield page
    context.close()
