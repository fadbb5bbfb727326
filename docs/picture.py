"""Makes the two pictures of README from the real console: `python docs/picture.py`.

Plays `callstack demo`, opens the page of its conversation in Chromium as of several requests, and writes one SVG that
shows these pages one after another, and a PNG of the page of one request. Needs chromium and the test requirements;
writes docs/images/console.svg and docs/images/console-request.png.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.request import urlopen

from playwright.sync_api import Page, ViewportSize, sync_playwright

WIDTH, HEIGHT = 1000, 540
REQUESTS = (12, 24, 36, 48, 60, 73)
SECONDS_EACH = 2.0
START_LIMIT_S = 30.0
TARGET = Path(__file__).parent / "images" / "console.svg"
REQUEST, REQUEST_TARGET = 64, TARGET.with_name("console-request.png")
"""A request with which work is put away."""
REQUEST_SIZE = ViewportSize(width=1280, height=1060)


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no chromium on the PATH: the picture is made with it. apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        _callstack("demo", "--data", folder)
        port = _free_port()
        serve = [sys.executable, "-m", "callstack_proxy", "serve", "--data", folder, "--port", str(port)]
        upstream = ("--upstream", "http://127.0.0.1:9/v1")
        proxy = subprocess.Popen([*serve, *upstream], stdout=subprocess.DEVNULL)  # noqa: S603  ourselves
        try:
            _wait_for(port)
            link = re.search(r"http\S+", _callstack("console", "--data", folder))
            assert link is not None  # noqa: S101
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                page = browser.new_page(viewport=ViewportSize(width=WIDTH, height=HEIGHT), device_scale_factor=1)
                page.goto(link.group())
                shots = [_shot(page, f"http://127.0.0.1:{port}", number) for number in REQUESTS]
                REQUEST_TARGET.write_bytes(_request_shot(page))
                browser.close()
        finally:
            proxy.terminate()
            proxy.wait()
    TARGET.write_text(animated(shots))
    sys.stdout.write(f"{TARGET}: {len(shots)} pages, {TARGET.stat().st_size / 1000:.0f} kB\n{REQUEST_TARGET}\n")


def _shot(page: Page, origin: str, number: int) -> bytes:
    """The page of the only conversation as of one request, from its picture down."""
    page.goto(f"{origin}/console/conversations")
    page.locator('a[href^="/console/conversations/"]').first.click()
    page.goto(f"{page.url.partition('?')[0]}?at={number}")
    heading, title = page.locator("#context-heading").bounding_box(), page.locator(".heading.title").bounding_box()
    if heading and title:  # the title stays at the top, above what is behind it
        page.evaluate("top => window.scrollTo(0, top)", heading["y"] - title["height"] - 12)
    return page.screenshot()


def _request_shot(page: Page) -> bytes:
    """The page of one request of the conversation that `page` shows."""
    page.set_viewport_size(REQUEST_SIZE)
    page.locator("#requests tbody th a", has_text=re.compile(f"^{REQUEST}$")).click()
    page.locator(".told").wait_for()
    return page.screenshot()


def animated(pages: Sequence[bytes]) -> str:
    """An SVG that shows PNG pages of one size one after another, each for `SECONDS_EACH`, and begins again."""
    total = len(pages) * SECONDS_EACH
    share = 100 / len(pages)
    style = (
        f"image{{opacity:0;animation:show {total:g}s steps(1) infinite}}"
        f"@keyframes show{{0%{{opacity:1}}{share:.4g}%{{opacity:0}}}}"
        "@media(prefers-reduced-motion:reduce){image{animation:none}image:last-of-type{opacity:1}}"
    )
    images = "".join(
        f'<image width="{WIDTH}" height="{HEIGHT}" style="animation-delay:{number * SECONDS_EACH:g}s" '
        f'href="data:image/png;base64,{base64.b64encode(png).decode()}"/>\n'
        for number, png in enumerate(pages)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
        f"<title>The context of a session, request by request</title><style>{style}</style>\n{images}</svg>\n"
    )


def _callstack(*arguments: str) -> str:
    command = [sys.executable, "-m", "callstack_proxy", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  ourselves
    return done.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    end = time.monotonic() + START_LIMIT_S
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
                json.load(answer)
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    main()
