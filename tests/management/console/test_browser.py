"""The console in a real browser: Chromium by Playwright, over the conversation of the demo and over agents at work."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, ViewportSize, expect, sync_playwright

from callstack_proxy.cli.demo import DemoOptions, run_demo
from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedProvider, calls, says
from proxy.operator_token import console_code
from tests.clients import installing
from tests.management.console.conftest import Building
from tests.management.console.test_pages import HOSTILE
from tests.wire.proxied import TOKEN, ServedProxy
from tests.wire.talking import ask, body_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = "axe-core@4.10.3"
SIZES = {"desktop": (1440, 900), "tablet": (1024, 768), "phone": (390, 844)}
REQUEST_ROWS = "[aria-label='Newest requests'] tbody tr"
"""Of the page of a conversation."""
WAIT_MS = 15_000
REFUSED_AGAIN_MS = 4_000
"""The event stream of a page is opened again after 3 s."""
EVENTS_TOLD_MS = 1_500
"""The stream of events tells them twice a second at most, and a page waits a second."""
RECOVERY_MS = 25_000
"""A store that failed is tried again after ten seconds."""
HANGS_MS = 40_000
"""A page is told after ten seconds, and asks first: on a busy machine only after twenty times what its last answer
took."""
expect.set_options(timeout=WAIT_MS)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProxy]:
    """The proxy over what the demo stored."""
    data = tmp_path_factory.mktemp("demo") / "data"
    assert run_demo(DemoOptions(data=data, delay_s=0, as_json=True)) == 0
    with ServedProxy("http://127.0.0.1:9", data) as running:
        yield running


@contextmanager
def opened(
    browser: Browser, proxy: ServedProxy, size: str = "desktop", *, scheme: Any = "light", key: str = ""
) -> Iterator[Page]:
    """A page that is signed in. At the end it must have said nothing on the browser's console, asked nobody but the
    proxy, and opened no dialog."""
    width, height = SIZES[size]
    context = browser.new_context(viewport=ViewportSize(width=width, height=height), color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: faults.append(f"dialog {dialog.message}"))
    page.on("request", lambda sent: None if sent.url.startswith(proxy.origin) else faults.append(sent.url))
    if key:
        page.goto(f"{proxy.origin}/console/sign-in")
        page.get_by_label("Your client key").fill(key)
        page.get_by_role("button", name="Sign in").click()
    else:
        page.goto(f"{proxy.origin}/console?code={console_code(TOKEN)}")
    yield page
    context.close()
    assert faults == []


def paths_of(proxy: ServedProxy) -> dict[str, str]:
    """A page of each kind."""
    [conversation] = proxy.page("/stack/conversations")["conversations"]
    frames = proxy.page(f"/stack/conversations/{conversation['id']}/state")["frames"]
    requests = proxy.page(f"/stack/requests?conversation={conversation['id']}&limit=100")["requests"]
    request = f"/console/requests/{requests[5]['id']}"
    return {
        "overview": "/console?by=frame",
        "filtered": "/console?by=client&chart=tokens&client=(unnamed)",
        "conversations": "/console/conversations?q=rounding",
        "conversation": f"/console/conversations/{conversation['id']}",
        "earlier": f"/console/conversations/{conversation['id']}?at=20&view=sent",
        "frame": f"/console/frames/{list(frames)[3]}",
        "request": request,
        "request before": f"{request}?view=previous",
        "request in": f"{request}?view=in",
        "operation": "/console/operation",
    }


@pytest.fixture(scope="module")
def axe() -> str:
    folder = os.environ.get("CALLSTACK_CLIENTS")
    if not folder:
        pytest.skip("set CALLSTACK_CLIENTS to a folder that may keep axe-core")
    try:
        where = installing.npm(Path(folder).expanduser().resolve() / "axe", (AXE,))
    except installing.NotInstallable as reason:
        pytest.skip(str(reason))
    return (where / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_page_fits_and_is_quiet(browser: Browser, demo: ServedProxy, size: str, scheme: str) -> None:
    with opened(browser, demo, size, scheme=scheme) as page:
        for name, path in paths_of(demo).items():
            page.goto(demo.origin + path)
            expect(page.locator("h1")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0], name


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_axe_finds_nothing(browser: Browser, demo: ServedProxy, axe: str, size: str, scheme: str) -> None:
    with opened(browser, demo, size, scheme=scheme) as page:
        for name, path in paths_of(demo).items():
            page.goto(demo.origin + path)
            page.evaluate(axe)  # by the debugger, so the page's policy does not hold for it
            found = page.evaluate("axe.run().then((results) => results.violations)")
            assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], name


def test_the_sums_of_the_overview_are_those_of_the_report(browser: Browser, demo: ServedProxy) -> None:
    totals = demo.page("/stack/totals?by=day")["total"]

    with opened(browser, demo) as page:
        figures = page.locator(".figures").inner_text()
        assert f"${totals['cost']:.2f}" in figures
        assert f"${totals['saved_after']:.2f}" in figures
        expect(page.locator("#chart canvas")).to_be_visible()


def test_scrubbing_shows_the_context_grow_and_fold(browser: Browser, demo: ServedProxy) -> None:
    with opened(browser, demo) as page:
        page.goto(demo.origin + paths_of(demo)["conversation"])
        slider = page.get_by_role("slider")
        slider.focus()
        slider.press("Home")
        expect(page.get_by_role("heading", name=re.compile("request 1 of"))).to_be_visible()
        assert page.locator(".icicle rect.folded").count() == 0
        slider.press("End")
        expect(page.locator(".icicle rect.folded").first).to_be_visible()
        page.get_by_role("link", name="what was sent").click()
        expect(page.locator(".icicle rect.sent").first).to_be_attached()
        assert page.locator(".icicle rect.folded").count() == 0


def test_a_chosen_request_stays_while_the_page_grows(
    browser: Browser, provider: ScriptedProvider, tmp_path: Path
) -> None:
    """A step of the slider brings the picture alone; what comes later brings the rest, and leaves the choice."""
    with ServedProxy(provider.url, tmp_path / "data") as proxy, an_agent(proxy, provider) as tell:
        tell("first task")
        conversation = tell("second task")
        with opened(browser, proxy) as page:
            page.goto(f"{proxy.origin}/console/conversations/{conversation}")
            slider, rows = page.get_by_role("slider"), page.locator(REQUEST_ROWS)
            with page.expect_response("**/console/conversations/*at=1*") as step:
                slider.press("Home")
            expect(page.get_by_role("heading", name="request 1 of 2")).to_be_visible()
            assert "<table" not in step.value.text()
            tell("third task")
            expect(rows).to_have_count(3)
            expect(page.get_by_role("heading", name="request 1 of 3")).to_be_visible()
            expect(slider).to_be_focused()
            page.get_by_role("link", name="what was sent").click()
            page.goto(f"{proxy.origin}/console/conversations/{conversation}")
            tell("fourth task")
            expect(page.get_by_role("heading", name="request 4 of 4")).to_be_visible()


def test_a_frame_comes_back_with_one_click_where_it_is_seen(browser: Browser, demo: ServedProxy) -> None:
    """In the picture, in the tree and on the page of the frame, and the page says what happens."""
    with opened(browser, demo) as page:
        conversation = demo.origin + paths_of(demo)["conversation"]
        page.goto(conversation)
        expect(page.locator(".legend").get_by_text("brought back")).to_have_count(0)
        expect(page.locator(".legend").get_by_text("read again by the model 2 times")).to_be_visible()
        page.locator(".icicle a[data-back]").first.click()
        picked = page.locator("#picked")
        expect(picked).to_contain_text("put away: can be recalled")
        picked.get_by_role("button", name="Bring back").click()
        expect(page.locator(".notice.good")).to_contain_text("comes back with the next request")
        expect(page.locator(".tree .mark.coming-back").first).to_be_visible()
        expect(page.get_by_role("button", name="At once: ").first).to_be_visible()
        page.get_by_role("button", name="Bring back: Fix the rounding").click()
        expect(page.locator(".notice.good")).to_contain_text("asked to read this work again")
        page.get_by_role("button", name="Take back: ").click()
        expect(page.locator(".notice.good")).to_contain_text("The message is taken back")
        page.get_by_role("link", name="Test the export", exact=True).first.click()
        page.get_by_role("button", name="Bring back", exact=True).click()
        expect(page.locator(".notice.good")).to_contain_text("stays in the context")


def test_a_tab_leaves_the_page_of_a_phone_where_it_is(browser: Browser, demo: ServedProxy) -> None:
    with opened(browser, demo, "phone") as page:
        tab = page.get_by_role("link", name="model", exact=True)
        tab.scroll_into_view_if_needed()
        before = page.evaluate("scrollY")
        assert before > 0
        tab.click()
        page.wait_for_url("**/console?by=model")
        expect(page.get_by_role("heading", name="By model")).to_be_in_viewport()
        assert abs(page.evaluate("scrollY") - before) < SIZES["phone"][1] / 2


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_a_request_opens_from_anywhere_in_its_row(browser: Browser, demo: ServedProxy, size: str) -> None:
    with opened(browser, demo, size) as page:
        page.get_by_role("link", name="requests of ").click()
        page.get_by_text("Put away 5 messages").click(force=True)  # the link of the row lies above its words
        expect(page.get_by_role("heading", name="Request 66 of 73")).to_be_visible()


def test_the_legend_says_what_is_beside_the_messages_of_a_request(browser: Browser, demo: ServedProxy) -> None:
    """With request 20 the model ended a frame: the picture is of its first round, the receipt of its last."""
    with opened(browser, demo) as page:
        for number, ours in ((2, ""), (20, r", ours 1\.\dk")):
            page.goto(f"{demo.origin}{paths_of(demo)['conversation']}?at={number}")
            beside = re.compile(rf"beside them the agent's system prompt and tools \d{{3}}{ours}$")
            expect(page.locator("#icicle-sums").get_by_text(beside)).to_be_visible()


def test_a_frame_has_the_same_mark_in_the_tree_and_on_its_page(browser: Browser, demo: ServedProxy) -> None:
    with opened(browser, demo) as page:
        conversation = demo.origin + paths_of(demo)["conversation"]
        page.goto(conversation)
        marks = page.locator(".leaf").evaluate_all(
            "rows => rows.map(row => [row.querySelector('a').href, "
            "[...row.querySelectorAll('.mark')].map(mark => mark.textContent).pop()])"
        )
        assert {mark for _, mark in marks} >= {"put away", "partly put away", "in context", "in another frame"}
        for address, mark in marks:
            page.goto(address)
            expect(page.locator(".facts .mark")).to_have_text(mark)


def test_a_message_of_a_request_opens_in_place(browser: Browser, demo: ServedProxy) -> None:
    with opened(browser, demo) as page:
        page.goto(demo.origin + paths_of(demo)["request"])
        group = page.locator("li.group").first
        group.locator("summary").first.click()
        message = group.locator("li.left-out").nth(1)
        message.locator("summary").click()
        expect(message.locator("div.body pre").first).to_be_visible()
        assert page.url.endswith(paths_of(demo)["request"])


def test_all_of_it_by_keyboard(browser: Browser, demo: ServedProxy) -> None:
    with opened(browser, demo) as page:
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the content")).to_be_focused()
        page.keyboard.press("Tab")  # brand
        page.keyboard.press("Tab")  # Overview
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Conversations")).to_be_visible()
        page.wait_for_load_state()  # with its scripts, which listen to the key
        page.keyboard.press("/")
        page.keyboard.type("rounding")
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name="Round half to even")).to_be_visible()
        page.goto(demo.origin + paths_of(demo)["conversation"])
        page.keyboard.press("a")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Everything it did")).to_be_visible()
        page.goto(demo.origin + paths_of(demo)["conversation"])
        page.keyboard.press("j")
        first = page.locator(".tree .leaf a").first
        expect(first).to_be_focused()
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".tree details").first).not_to_have_attribute("open", "")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(page.locator(".tree .leaf a").nth(1)).to_be_focused()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.goto(demo.origin + paths_of(demo)["request"])
        before = page.url
        page.keyboard.press("k")
        page.wait_for_url(lambda url: url != before)


Telling = Callable[[str], str]


@contextmanager
def an_agent(proxy: ServedProxy, provider: ScriptedProvider) -> Iterator[Telling]:
    """An agent that tells its model something and keeps the conversation."""
    messages = list(body_of()["messages"][:1])

    def tell(text: str) -> str:
        messages.append({"role": "user", "content": text})
        provider.will(says(f"Answer to {text}"))
        answer = ask(proxy.origin, body_of(awake=True, messages=messages))
        assert answer.status == 200, answer
        messages.append({"role": "assistant", "content": answer.text})
        return answer.conversation

    yield tell


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


def test_a_page_grows_while_an_agent_works(browser: Browser, provider: ScriptedProvider, tmp_path: Path) -> None:
    with ServedProxy(provider.url, tmp_path / "data") as proxy, an_agent(proxy, provider) as tell:
        conversation = tell("first task")
        with opened(browser, proxy) as page, opened(browser, proxy) as overview:
            page.goto(f"{proxy.origin}/console/conversations/{conversation}")
            rows = page.locator(REQUEST_ROWS)
            expect(rows).to_have_count(1)
            page.evaluate("window.unchanged = true")
            page.get_by_text("Say something to the agent, choose").click()
            page.locator("#say").fill("half a sent")
            tell("second task")
            expect(rows).to_have_count(2)
            tell("third task")
            expect(rows).to_have_count(3)
            assert page.evaluate("window.unchanged")
            assert page.locator("#say").input_value() == "half a sent"
            expect(overview.locator(".figures")).to_contain_text("3")


def test_the_overview_of_one_client_by_keyboard_and_live(
    browser: Browser, provider: ScriptedProvider, tmp_path: Path
) -> None:
    """The filter stands in the address, and holds when the page is brought up to date and when the chart changes."""

    def works(agent: str) -> None:
        provider.will(says("done"))
        assert ask(proxy.origin, body_of(f"task of {agent}"), headers={"user-agent": f"{agent}/1.0"}).status == 200

    with ServedProxy(provider.url, tmp_path / "data") as proxy:
        for agent in ("claude-cli", "claude-cli", "codex"):
            works(agent)
        with opened(browser, proxy) as page:
            page.get_by_label("client").focus()
            page.keyboard.type("cod")
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            page.wait_for_url("**/console?*client=codex")
            counted = page.locator(".figures div").filter(has_text="Requests").locator("b")
            expect(counted).to_have_text("1")
            works("claude-cli")
            works("codex")
            expect(counted).to_have_text("2")
            expect(page.get_by_label("client")).to_have_value("codex")
            page.get_by_role("link", name="tokens", exact=True).press("Enter")
            page.wait_for_url("**/console?chart=tokens&client=codex")
            expect(page.locator("#chart .u-legend")).to_contain_text("from the agents")
            expect(counted).to_have_text("2")
            page.get_by_role("link", name="Show all requests").press("Enter")
            expect(counted).to_have_text("5")


def test_a_page_that_takes_long_is_current_within_seconds(
    browser: Browser, provider: ScriptedProvider, tmp_path: Path
) -> None:
    """Two seconds, and some for a busy machine; a twentieth of the time would be one answer in twelve seconds."""
    with ServedProxy(provider.url, tmp_path / "data") as proxy, an_agent(proxy, provider) as tell:
        conversation = tell("first task")
        with opened(browser, proxy) as page:

            def slowly(route: Route) -> None:
                time.sleep(0.6)
                route.continue_()

            page.route(f"**/conversations/{conversation}", slowly)
            page.goto(f"{proxy.origin}/console/conversations/{conversation}")
            for number in (2, 3):
                tell(f"task {number}")
                expect(page.locator(REQUEST_ROWS)).to_have_count(number, timeout=5_000)


def test_what_happens_while_a_page_is_on_its_way_is_shown(
    browser: Browser, provider: ScriptedProvider, tmp_path: Path
) -> None:
    """The stream of events begins after the page was made, and tells of nothing that was before."""
    with ServedProxy(provider.url, tmp_path / "data") as proxy, an_agent(proxy, provider) as tell:
        tell("first task")
        with opened(browser, proxy) as page:
            page.goto("about:blank")

            def late(route: Route) -> None:
                tell("second task")
                route.continue_()

            page.route("**/console.js?*", late)
            page.goto(f"{proxy.origin}/console")
            counted = page.locator(".figures div").filter(has_text="Requests").locator("b")
            expect(counted).not_to_have_text("1")


def test_a_hidden_page_asks_for_nothing_and_catches_up_when_it_is_shown(
    browser: Browser, provider: ScriptedProvider, tmp_path: Path
) -> None:
    def turn(page: Page, state: str) -> None:
        """As a browser does with a page that goes behind another one; a browser without a window never does."""
        page.evaluate(
            """(state) => {
                Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
                Object.defineProperty(document, "hidden", { value: state === "hidden", configurable: true });
                document.dispatchEvent(new Event("visibilitychange"));
            }""",
            state,
        )

    def counted(page: Page) -> Locator:
        return page.locator(".figures div").filter(has_text="Requests").locator("b")

    with ServedProxy(provider.url, tmp_path / "data") as proxy, an_agent(proxy, provider) as tell:
        tell("first task")
        with opened(browser, proxy) as page:
            page.reload()  # what the first page of all took says nothing of the next
            shown = page.context.new_page()
            shown.goto(f"{proxy.origin}/console")
            turn(page, "hidden")
            asked: list[str] = []
            page.on("request", lambda sent: asked.append(sent.url))
            for number in ("2", "3"):
                tell(f"task {number}")
                expect(counted(shown)).to_have_text(number)
            shown.wait_for_timeout(EVENTS_TOLD_MS)
            assert asked == []
            turn(page, "visible")
            expect(counted(page)).to_have_text("3")


def test_what_the_reader_folded_stays_folded(browser: Browser, provider: ScriptedProvider, tmp_path: Path) -> None:
    with ServedProxy(provider.url, tmp_path / "data") as proxy, an_agent(proxy, provider) as tell:
        conversation = tell("first task")
        provider.will(calls("stack_frame_push", title="A part", successCriteria="it works"))
        tell("second task")
        with opened(browser, proxy) as page:
            page.goto(f"{proxy.origin}/console/conversations/{conversation}")
            root = page.locator(".tree details").first
            root.locator("summary").first.click()
            expect(root).not_to_have_attribute("open", "")
            tell("third task")
            expect(page.locator(REQUEST_ROWS)).to_have_count(3)
            expect(root).not_to_have_attribute("open", "")


def test_it_comes_back_after_a_restart(browser: Browser, provider: ScriptedProvider, tmp_path: Path) -> None:
    with ServedProxy(provider.url, tmp_path / "data") as first, an_agent(first, provider) as tell:
        conversation = tell("first task")
        port = first.port
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{first.origin}/console?code={console_code(TOKEN)}")
        page.goto(f"{first.origin}/console/conversations/{conversation}")
        expect(page.locator(REQUEST_ROWS)).to_have_count(1)
    expect(page.get_by_text("The proxy is away")).to_be_visible(timeout=WAIT_MS)
    with ServedProxy(provider.url, tmp_path / "data", port=port) as second:
        expect(page.get_by_text("The proxy is away")).to_be_hidden(timeout=WAIT_MS)
        with an_agent(second, provider) as tell:
            tell("another conversation")
        page.goto(f"{second.origin}/console/conversations")
        expect(page.locator("table tbody tr")).to_have_count(2)
    context.close()


def test_hostile_text_does_nothing(browser: Browser, build: Building) -> None:
    site = build(HOSTILE)
    with opened(browser, site.proxy) as page:
        for path in (
            "/console?by=frame",
            f"/console/conversations/{site.ours.conversation}",
            f"/console/frames/{site.ours.root}",
            f"/console/requests/{site.ours.request}",
        ):
            page.goto(site.proxy.origin + path)
            expect(page.locator("h1")).to_be_visible()
            assert page.locator("img").count() == 0


def test_two_tenants_in_two_browsers(browser: Browser, build: Building) -> None:
    site = build(tenancy="key")
    with (
        opened(browser, site.proxy, key=site.keys["ours"]) as ours,
        opened(browser, site.proxy, key=site.keys["theirs"]) as theirs,
    ):
        for page, own in ((ours, site.ours), (theirs, site.theirs)):
            page.goto(f"{site.proxy.origin}/console/conversations")
            links = page.locator("tbody a:not([aria-label])")
            expect(links).to_have_count(1)
            expect(links).to_have_attribute("href", f"/console/conversations/{own.conversation}")
            expect(page.get_by_role("link", name="Operation")).to_have_count(0)


def test_a_key_that_is_revoked_while_its_page_is_open(browser: Browser, build: Building) -> None:
    site = build(tenancy="key")
    keys = site.proxy.data / "keys.json"
    key = issue_key(keys, "visitor")
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{site.proxy.origin}/console/sign-in")
    page.get_by_label("Your client key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.wait_for_load_state("load")
    keys.write_text("[]")
    page.evaluate("document.body.dispatchEvent(new Event('news'))")
    signed_out = page.get_by_text("You are signed out")
    expect(signed_out).to_be_visible()
    page.wait_for_timeout(REFUSED_AGAIN_MS)  # the stream of events is refused too, which must not say otherwise
    expect(signed_out).to_be_visible()
    context.close()


# ------------------------------------------------------------------------------------------------- a store that fails
@contextmanager
def without_store(proxy: ServedProxy) -> Iterator[None]:
    """Where its file was is something else, which the proxy finds out when it writes."""
    file = proxy.data / "callstack.db"
    aside = file.with_name("aside.db")
    file.rename(aside)
    file.mkdir()
    yield
    file.rmdir()
    aside.rename(file)


@contextmanager
def with_locked_store(proxy: ServedProxy) -> Iterator[None]:
    """Another program holds the write lock."""
    other = sqlite3.connect(proxy.data / "callstack.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.rollback()
    other.close()


FAILURES = {
    "gone": (without_store, "callstack.db is not a regular file", "What you see is from before"),
    "locked": (with_locked_store, "database is locked", "Another program holds its lock"),
}
"""What happens, why, and what the page adds. A store that is locked can be read, but for what is on its way to it."""


@pytest.mark.parametrize("failure", FAILURES)
def test_a_store_that_fails_under_an_open_page_is_said_and_the_page_recovers(
    browser: Browser, provider: ScriptedProvider, tmp_path: Path, failure: str
) -> None:
    """What stands on the page stays; a line says what fails, why, and what becomes of the agents. Nobody loads it
    again."""
    entered, why, more = FAILURES[failure]
    with ServedProxy(provider.url, tmp_path / "data") as proxy, an_agent(proxy, provider) as tell:
        conversation = tell("first task")
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{proxy.origin}/console?code={console_code(TOKEN)}")
        page.goto(f"{proxy.origin}/console/conversations/{conversation}")
        operation = context.new_page()
        operation.goto(f"{proxy.origin}/console/operation")
        page.bring_to_front()
        page.evaluate("window.unchanged = true")
        rows = page.locator(REQUEST_ROWS)
        expect(rows).to_have_count(1)
        with entered(proxy):
            provider.will(says("passed on"))
            assert ask(proxy.origin, body_of("meanwhile", awake=True)).status == 200
            told = page.get_by_role("status")
            expect(told).to_contain_text(re.compile("^The store (cannot be read|takes nothing new): "))
            expect(told).to_contain_text(why)
            expect(told).to_contain_text(more)
            expect(operation.get_by_role("status")).to_contain_text("Agents go on meanwhile")
            expect(rows).to_have_count(1)
        expect(told).to_be_hidden(timeout=RECOVERY_MS)
        expect(operation.get_by_role("status")).to_be_hidden()
        tell("second task")
        expect(rows).to_have_count(2)
        assert page.evaluate("window.unchanged")
        context.close()


def test_a_page_that_is_opened_while_the_store_fails_says_why_and_comes_by_itself(
    browser: Browser, provider: ScriptedProvider, tmp_path: Path
) -> None:
    with ServedProxy(provider.url, tmp_path / "data") as proxy, an_agent(proxy, provider) as tell:
        conversation = tell("first task")
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{proxy.origin}/console?code={console_code(TOKEN)}")
        with without_store(proxy):
            provider.will(says("passed on"))
            ask(proxy.origin, body_of("meanwhile", awake=True))
            page.goto(f"{proxy.origin}/console/conversations/{conversation}")
            alert = page.get_by_role("alert")
            expect(alert).to_contain_text("The store cannot be read")
            expect(alert).to_contain_text("Look whether its file and folder are there")
            expect(page.get_by_text("comes back by itself")).to_be_visible()
            assert "Traceback" not in page.content()
        expect(page.get_by_role("heading", name=re.compile("request 1 of 1"))).to_be_visible()
        context.close()


def test_a_store_that_hangs_is_said(
    browser: Browser, provider: ScriptedProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that neither answers nor fails: the page says so after ten seconds, and is current afterwards."""
    with ServedProxy(provider.url, tmp_path / "data") as proxy, an_agent(proxy, provider) as tell:
        tell("first task")
        with opened(browser, proxy) as page:
            page.reload()  # what the first page of all took says nothing of how often the next one asks
            counted = page.locator(".figures div").filter(has_text="Requests").locator("b")
            expect(counted).to_have_text("1")
            reads, answers = proxy.app._store.requests, threading.Event()

            async def hang(*asked: Any, **more: Any) -> Any:
                await asyncio.to_thread(answers.wait)
                return await reads(*asked, **more)

            # Patched: a disk that neither answers nor fails cannot be had by itself.
            monkeypatch.setattr(proxy.app._store, "requests", hang)
            try:
                tell("second task")
                expect(page.get_by_role("status")).to_contain_text("has not answered for 10 s", timeout=HANGS_MS)
            finally:
                answers.set()  # or the process waits for its threads for good
            expect(page.get_by_role("status")).to_be_hidden()
            expect(counted).to_have_text("2")
