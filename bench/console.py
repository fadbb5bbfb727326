"""How quickly the pages of the console open in a browser, and what watching them costs the agents.

python bench/console.py            # a few minutes; needs Chromium on the PATH

Fills a proxy with one conversation of 3,000 messages over 300 requests, one with a frame of 10 MB, and 5,000 small
ones; then opens each page several times, cold, and prints the median. `refresh` is from an event to the page as it
stands then, `scrub` from a step of the slider to its picture. `watched` compares the time of a small request with ten
open pages to the time without, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import load
import payloads
import processes
import run
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

MESSAGES, REQUESTS, SMALL_CONVERSATIONS = 3_000, 300, 5_000
FRAME_BYTES, RESULT_BYTES = 10_000_000, 50_000
PAGES_OPEN, WATCHED_ROUNDS, WATCHED_REQUESTS = 10, 6, 300
REPEATS = 5
PLAIN_PAGES = (("overview", ""), ("conversations", "/conversations"))
SETTLING = """(number) => new Promise((done) => {
  const began = performance.now();
  document.body.addEventListener("htmx:afterSettle", () => done(performance.now() - began), { once: true });
  %s
})"""
SCRUB = """const slider = document.getElementById("at");
  slider.value = 100 + 20 * number;
  slider.dispatchEvent(new Event("change", { bubbles: true }));"""
REFRESH = "document.body.dispatchEvent(new Event('news'));"


async def fill(base: str) -> tuple[str, str]:
    """Sends everything that the pages will show. The ids of the long conversation and of that with the large frame."""
    writer = payloads.Writer(7)
    history = payloads.conversation(MESSAGES - 2 * REQUESTS, 7)
    async with load.Connection(base) as connection:
        for turn in range(REQUESTS):
            answer = await connection.send(payloads.body(history, "bench-call"))
            said = json.loads(answer.body)["choices"][0]["message"]
            history = payloads.follow_up(history, said, turn, writer)
        long = await _newest(connection)
        await connection.send(payloads.body(_large_frame(), "bench-text"))
        large = await _newest(connection)
    await load.repeat(base, _small_request, SMALL_CONVERSATIONS, concurrency=4)
    return long, large


async def _newest(connection: load.Connection) -> str:
    told = await connection.send(b"", "GET", "/stack/conversations?limit=1")
    return str(json.loads(told.body)["conversations"][0]["id"])


def _large_frame() -> list[dict[str, Any]]:
    writer = payloads.Writer(11)
    history = payloads.opening(writer)
    while sum(len(message["content"]) for message in history) < FRAME_BYTES:
        call = writer.call()
        function = {"name": call.name, "arguments": call.arguments}
        history.append({"role": "assistant", "content": writer.sentence(),
                        "tool_calls": [{"id": call.identity, "type": "function", "function": function}]})  # fmt: skip
        history.append({"role": "tool", "tool_call_id": call.identity, "content": writer.code(RESULT_BYTES)})
    return history


def _small_request(number: int) -> bytes:
    return payloads.body([{"role": "user", "content": f"Where is parcel {number}?"}], "bench-text", offered=False)


def opening_ms(page: Page, address: str) -> float:
    """Median time until the page is loaded and drawn."""
    times: list[float] = []
    for _ in range(REPEATS):
        page.goto(address, wait_until="load")
        times.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    return statistics.median(times)


def settling_ms(page: Page, change: str) -> float:
    """Median time from a change of the page to what it loads because of that."""
    times: list[float] = [page.evaluate(SETTLING % change, number) for number in range(REPEATS)]
    return statistics.median(times)


def page_times(context: BrowserContext, origin: str, long: str, large: str) -> list[tuple[str, float]]:
    page = context.new_page()
    page.set_default_timeout(120_000)
    rows = [(name, opening_ms(page, f"{origin}/console{path}")) for name, path in PLAIN_PAGES]
    rows.append(("conversation", opening_ms(page, f"{origin}/console/conversations/{long}")))
    rows.append(("  scrub", settling_ms(page, SCRUB)))
    rows.append(("  refresh", settling_ms(page, REFRESH)))
    request = page.locator("table tbody a").first.get_attribute("href") or ""
    rows.append(("request", opening_ms(page, origin + request)))
    page.goto(f"{origin}/console/conversations/{large}")
    frame = page.locator(".tree a").last.get_attribute("href") or ""
    rows.append(("frame of 10 MB", opening_ms(page, origin + frame)))
    page.close()
    return rows


def _repeat_elsewhere(base: str) -> Sequence[float]:
    """Times of small requests, sent from another thread: the browser has an event loop in this one."""
    with ThreadPoolExecutor(1) as threads:
        sent = load.repeat(base, lambda number: _small_request(number + 1_000_000), WATCHED_REQUESTS)
        return threads.submit(asyncio.run, sent).result().total_ms


def watched_ms(browser: Browser, base: str, link: str) -> tuple[float, float]:
    """Median ms of a small request without and with open pages."""
    alone: list[float] = []
    watched: list[float] = []
    context = browser.new_context()
    context.new_page().goto(link)
    for round_number in range(WATCHED_ROUNDS):
        pages = [context.new_page() for _ in range(PAGES_OPEN)] if round_number % 2 else []
        for page in pages:
            page.goto(link.partition("?")[0])
        took = _repeat_elsewhere(base)
        (watched if pages else alone).extend(took)
        for page in pages:
            page.close()
    context.close()
    return statistics.median(alone), statistics.median(watched)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        print("no Chromium on the PATH", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ports = processes.free_port(), processes.free_port()
        provider = [sys.executable, str(Path(__file__).with_name("provider.py")), "--port", str(ports[0])]
        with processes.started(provider, ports[0], place / "provider.log") as behind:
            serve = run.command("proxy", ports[1], behind.base, place / "data", [])
            with processes.started(serve, ports[1], place / "proxy.log") as proxy:
                link = next(word for word in (place / "proxy.log").read_text().split() if "/console?code=" in word)
                measure(program, proxy.base, link)
    return 0


def measure(program: str, base: str, link: str) -> None:
    """Prints what it finds, row by row."""
    long, large = asyncio.run(fill(base))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context()
        context.new_page().goto(link)
        for name, took in page_times(context, base, long, large):
            print(f"{name:16}{took:8.0f} ms")
        context.close()
        alone, watched = watched_ms(browser, base, link)
        print(f"{'watched':16}{watched:8.2f} ms, {alone:.2f} ms without: {watched / alone:.2f}")
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
