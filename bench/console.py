"""How quickly the pages of the console open in a browser, and what watching them costs the agents.

python bench/console.py            # several minutes; needs Chromium on the PATH
python bench/console.py --watched  # only what watching costs; four minutes

Fills a proxy with small conversations, with one of 2,000 requests and with one that has a frame of 10 MB; then opens
each page several times, and prints medians: until something is painted, until the page is loaded, and the CPU of the
proxy. The page that asks to sign in has nothing to read: what another one takes above it is ours, and the rest is the
browser's and the machine's. `refresh` is from an event to the page as it stands then, `scrub` from a step of the slider
to its picture, `live` the longest from the answer to a request of an agent to its row on the page.

`watched` compares the time of a small request with ten open overviews to the time without, in turns, over the first
half minute that they are open. On a machine of two cores the browser draws on the cores that proxy and agents need.
`watched, not drawn` is without that: one program listens to the events, and asks for pages in the rhythm of the ten.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import load
import payloads
import processes
import run
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

OPENING_MESSAGES, REQUESTS, SMALL_CONVERSATIONS = 20, 2_000, 2_000
FRAME_BYTES, RESULT_BYTES = 10_000_000, 50_000
PAGES_OPEN, SETTLING_MS, PAINTED_MS = 10, 2_000, 200
OPENED = """() => [performance.getEntriesByName('first-contentful-paint')[0].startTime,
  performance.getEntriesByType('navigation')[0].loadEventEnd]"""
BURSTS, BURST_REQUESTS, BURST_INTERVAL_S = 10, 60, 3.0
ALONE, DRAWN, NOT_DRAWN = WATCHED = ("alone", "watched", "watched, not drawn")
REFRESH_S, SHARE = 1.0, 20
"""As in console.js: all pages together ask for a twentieth of the time at most."""
COUNT_REFRESHES = (
    "performance.getEntriesByType('resource').filter((each) => each.initiatorType === 'xmlhttprequest').length"
)
REPEATS = 5
Result = TypeVar("Result")
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


class LongConversation:
    """An agent in a conversation that grows, whose tools say little."""

    def __init__(self) -> None:
        self._writer = payloads.Writer(7)
        self._history = payloads.conversation(OPENING_MESSAGES, 7)

    async def ask(self, connection: load.Connection) -> None:
        answer = await connection.send(payloads.body(self._history, "bench-call"))
        said = json.loads(answer.body)["choices"][0]["message"]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": self._writer.code(200)}
            for call in said["tool_calls"]
        ]
        self._history += [said, *results]

    async def ask_once(self, base: str) -> None:
        async with load.Connection(base) as connection:
            await self.ask(connection)


async def fill_large(base: str, conversation: LongConversation) -> tuple[str, str]:
    """Sends the long conversation and the one with the large frame; their ids."""
    async with load.Connection(base) as connection:
        for _ in range(REQUESTS):
            await conversation.ask(connection)
        long = await _newest(connection)
        await connection.send(payloads.body(_large_frame(), "bench-text"))
        large = await _newest(connection)
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


def opening_ms(page: Page, address: str, pid: int) -> tuple[float, ...]:
    """Medians: until something is painted, until the page is loaded and drawn, and the CPU of the proxy."""
    times: list[tuple[float, float, float]] = []
    for _ in range(REPEATS):
        before = processes.cpu_s(pid)
        page.goto(address, wait_until="load")
        page.wait_for_timeout(PAINTED_MS)
        times.append((*page.evaluate(OPENED), 1000 * (processes.cpu_s(pid) - before)))
    return tuple(map(statistics.median, zip(*times, strict=True)))


def live_ms(page: Page, base: str, conversation: LongConversation) -> float:
    """The longest of several, each behind a page that has settled."""
    times: list[float] = []
    for _ in range(REPEATS):
        page.wait_for_timeout(SETTLING_MS)
        number = int(page.locator("#at").get_attribute("max") or 0) + 1
        _elsewhere(conversation.ask_once(base))
        began = time.perf_counter()
        page.wait_for_selector(f'#at[max="{number}"]')
        times.append(1000 * (time.perf_counter() - began))
    return max(times)


def settling_ms(page: Page, change: str) -> float:
    """Median time from a change of the page to what it loads because of that."""
    times: list[float] = [page.evaluate(SETTLING % change, number) for number in range(REPEATS)]
    return statistics.median(times)


Row = tuple[str, tuple[float, ...]]


def page_times(
    context: BrowserContext, proxy: processes.Running, conversation: LongConversation, long: str, large: str
) -> Iterator[Row]:
    page, origin, pid = context.pages[0], proxy.base, proxy.pid  # alone: several visible pages ask less often
    page.set_default_timeout(120_000)
    yield "signed out", opening_ms(page, f"{origin}/console/sign-in", pid)
    for name, path in PLAIN_PAGES:
        yield name, opening_ms(page, f"{origin}/console{path}", pid)
    yield "conversation", opening_ms(page, f"{origin}/console/conversations/{long}", pid)
    yield "  live", (live_ms(page, origin, conversation),)
    yield "  scrub", (settling_ms(page, SCRUB),)
    yield "  refresh", (settling_ms(page, REFRESH),)
    request = page.locator("table tbody a").first.get_attribute("href") or ""
    yield "request", opening_ms(page, origin + request, pid)
    page.goto(f"{origin}/console/conversations/{large}")
    frame = page.locator(".tree a").last.get_attribute("href") or ""
    yield "frame of 10 MB", opening_ms(page, origin + frame, pid)
    page.close()


async def bursts(base: str, numbers: Iterator[int]) -> tuple[float, ...]:
    """Times of small requests with these numbers, ms. Between bursts pages have time to ask for their content."""
    times: tuple[float, ...] = ()
    for _ in range(BURSTS):
        sent = await load.repeat(base, lambda _: _small_request(next(numbers)), BURST_REQUESTS)
        times += sent.total_ms
        await asyncio.sleep(BURST_INTERVAL_S - sent.wall_s)
    return times


async def bursts_beside_page_requests(base: str, numbers: Iterator[int], cookie: str) -> tuple[tuple[float, ...], int]:
    """The same while events and pages are asked for as by ten open pages; and how many pages that were."""
    asked_pages = 0

    async def listen() -> None:
        async with load.Connection(base) as connection:
            _, headers = await connection.ask(b"", "GET", "/console/events", {"cookie": cookie})
            async for _ in connection.pieces(headers):
                pass

    async def ask_for_pages() -> None:
        nonlocal asked_pages
        async with load.Connection(base) as connection:
            while True:
                answer = await connection.send(b"", "GET", "/console", {"cookie": cookie})
                asked_pages += 1
                await asyncio.sleep(max(REFRESH_S / PAGES_OPEN, SHARE * answer.total_ms / 1000))

    watchers = [asyncio.create_task(listen()), asyncio.create_task(ask_for_pages())]
    times = await bursts(base, numbers)
    for watcher in watchers:
        watcher.cancel()
    ended = await asyncio.gather(*watchers, return_exceptions=True)
    if failed := [each for each in ended if not isinstance(each, asyncio.CancelledError)]:
        raise RuntimeError(failed)
    return times, asked_pages


def _elsewhere(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs in another thread: the browser has an event loop in this one."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


@contextmanager
def open_pages(context: BrowserContext, address: str, count: int) -> Iterator[list[Page]]:
    """They have settled; with `count` 0 the same time passes without any."""
    pages = [context.new_page() for _ in range(count)]
    for page in pages:
        page.goto(address)
    context.pages[0].wait_for_timeout(SETTLING_MS)
    yield pages
    for page in pages:
        page.close()


def print_watched(browser: Browser, base: str, link: str) -> None:
    """What open pages add to the time of a small request, and how many pages were asked for meanwhile."""
    times: dict[str, list[float]] = {kind: [] for kind in WATCHED}
    asked_pages = dict.fromkeys(WATCHED, 0)
    numbers = itertools.count(SMALL_CONVERSATIONS)
    context = browser.new_context()
    context.new_page().goto(link)
    context.pages[0].goto("about:blank")
    cookie = "; ".join(f"{each['name']}={each['value']}" for each in context.cookies())
    for kind in (*WATCHED, *reversed(WATCHED)):
        with open_pages(context, link.partition("?")[0], PAGES_OPEN if kind == DRAWN else 0) as pages:
            if kind == NOT_DRAWN:
                took, asked = _elsewhere(bursts_beside_page_requests(base, numbers, cookie))
            else:
                took = _elsewhere(bursts(base, numbers))
                asked = sum(page.evaluate(COUNT_REFRESHES) for page in pages)
        times[kind].extend(took)
        asked_pages[kind] += asked
    context.close()
    alone = statistics.median(times[ALONE])
    print(f"{ALONE:20}{alone:8.2f} ms")
    for kind in (DRAWN, NOT_DRAWN):
        median = statistics.median(times[kind])
        print(f"{kind:20}{median:8.2f} ms, {median / alone:.2f} of that; {asked_pages[kind]} pages asked for")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watched", action="store_true", help="only what watching costs")
    asked = parser.parse_args()
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
                measure(program, proxy, link, only_watched=asked.watched)
    return 0


def measure(program: str, proxy: processes.Running, link: str, *, only_watched: bool) -> None:
    """Prints what it finds, row by row."""
    base, conversation = proxy.base, LongConversation()
    large = None if only_watched else asyncio.run(fill_large(base, conversation))
    asyncio.run(load.repeat(base, _small_request, SMALL_CONVERSATIONS, concurrency=4))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        print_watched(browser, base, link)
        if large is not None:
            context = browser.new_context()
            context.new_page().goto(link)
            print(f"{'ms':20}  painted  loaded    CPU")
            for name, took in page_times(context, proxy, conversation, *large):
                print(f"{name:20}" + "".join(f"{each:9.0f}" for each in took), flush=True)
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
