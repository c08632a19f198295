"""Photographs the dashboard over one run: the pictures that README and documentation show.

python scripts/screenshots.py RUN OUT_DIR
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from ampscope.app.runs import RunStore
from ampscope.app.server import Server, create_app

PICTURES = (
    # (name, address, colour scheme, height in pixels, heading to scroll to)
    ("overview", "", "light", 900, ""),
    ("findings", "findings/{worst}", "light", 760, ""),
    ("gradients", "gradients?tensor=blocks.1.attention.qkv.weight&scale=1", "dark", 1120, "One tensor"),
)
ABOVE = 160
"""Pixels that stay in view above the heading."""


def settle(page: Page) -> None:
    """Waits until every part is there and drawn."""
    expect(page.locator(".page")).to_be_visible()
    expect(page.locator(".waiting")).to_have_count(0)
    page.wait_for_timeout(1500)


def main(run: Path, out: Path) -> int:
    expect.set_options(timeout=60_000)
    runs = RunStore([run])
    worst = runs.get(runs.names[0]).diagnosis().findings[0].code
    server = Server(create_app(runs), "127.0.0.1")
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, address, scheme, height, heading in PICTURES:
            context = browser.new_context(
                color_scheme="dark" if scheme == "dark" else "light",
                viewport={"width": 1440, "height": height},
            )
            page = context.new_page()
            page.goto(server.url + address.format(worst=worst))
            settle(page)
            if heading:
                at = page.get_by_role("heading", name=heading, exact=True).bounding_box()
                page.evaluate("y => window.scrollTo(0, y)", (at["y"] if at else 0) - ABOVE)
                page.wait_for_timeout(300)
            page.screenshot(path=out / f"{name}.png")
            context.close()
        browser.close()
    server.stop()
    serving.join()
    runs.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
