"""A recording goes through the product as it goes through `serve`: same lines, same receipts, another clock and
another provider."""

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.replay.api.base import ReplayApi
from callstack_proxy.replay.api.replay_api_list import APIS
from callstack_proxy.replay.outcome import ReplayResult
from callstack_proxy.replay.player import play_recording
from callstack_proxy.replay.recording import RecordedStep, Recording, body_start_and_end, encode_json
from callstack_proxy.replay.services import build_replay
from proxy.config.model import Config
from proxy.exchange.rounds import Services
from proxy.server.app import App, build_app

Json = dict[str, Any]
MODEL = "claude-sonnet-4-5"
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]
MINUTE = 60_000
SECRET_NAME = "refresh_token_rotation"


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def says(text: str) -> Json:
    return {"role": "assistant", "content": text}


def calls(*made: tuple[str, Json], text: str | None = None, first: int = 1) -> Json:
    listed = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for at, (name, arguments) in enumerate(made, first)
    ]
    return {"role": "assistant", "content": text, "tool_calls": listed}


def result(call: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": call, "content": text}


def step(messages: list[Json], answer: Json | None, at_ms: int = 0, **more: Any) -> RecordedStep:
    before, behind = body_start_and_end(MODEL, {"tools": TOOLS, **more})
    return RecordedStep(before, tuple(map(encode_json, messages)), behind, answer, at_ms)


def config(**flags: object) -> Config:
    return load_config({"wake_at_tokens": 0, **flags})


def played(*steps: RecordedStep, settings: Config | None = None) -> ReplayResult:
    recording = Recording(name="one", model=MODEL, steps=steps)
    return asyncio.run(play_recording(recording, settings or config(), "one.json", lambda: None))


WORDS = "the parser reads a table and the writer prints it again " * 300
CHAT = [user(WORDS), says("read"), user("go on"), says("done"), user("and now"), says("ready")]
STEPS = [step(CHAT[:at], CHAT[at], at * MINUTE // 2) for at in (1, 3, 5)]


def test_off_costs_what_the_untouched_run_costs_and_loses_nothing() -> None:
    told = played(*STEPS, settings=config(mode="off"))

    assert told.statuses == {"off": 3}
    assert told.row.requests == 3
    assert told.row.tokens_sent == told.row.tokens_in
    assert told.row.cost == pytest.approx(told.row.cost_untouched)
    assert (told.left, told.missed, told.unequal) == ([], [], 0)


def test_a_replay_repeats_to_the_last_figure() -> None:
    first, second = played(*STEPS), played(*STEPS)

    for told in (first, second):
        told.row.key = ""
    assert first.row == second.row
    assert first.events == second.events


def test_a_pause_lets_the_cache_go_cold() -> None:
    soon = played(*[step(CHAT[:at], CHAT[at], at * 1000) for at in (1, 3, 5)], settings=config(mode="off"))
    late = played(*[step(CHAT[:at], CHAT[at], at * 10 * MINUTE) for at in (1, 3, 5)], settings=config(mode="off"))

    assert soon.row.reported_cached > 0
    assert late.row.reported_cached == 0
    assert late.row.cost > soon.row.cost


def test_upstreams_and_aliases_of_the_configuration_do_not_matter() -> None:
    flags = {"upstreams.main.url": "http://127.0.0.1:1", "upstreams.main.models": "other-*"}

    assert played(*STEPS, settings=config(mode="off", **flags)).statuses == {"off": 3}


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
def test_a_replay_is_wired_as_a_proxy_is(api: ReplayApi) -> None:
    """Every part that a running proxy has, of the same kind, except for what a replay replaces."""
    app = build_app(config(store="memory:", upstream="http://127.0.0.1:1"))
    asyncio.run(_started(app))
    running = app._services[api.dialect.name]
    replaying = build_replay(config(), api).services

    names = [field.name for field in dataclasses.fields(Services)]
    kinds = {name: (type(getattr(running, name)), type(getattr(replaying, name))) for name in names}
    assert {name for name, (one, other) in kinds.items() if one is not other} == {"now"}


async def _started(app: App) -> None:
    await app.start()
    await app.stop()


# ------------------------------------------------------------------------------------------ what left, what was needed
PUSH = ("stack_frame_push", {"title": "Find the token rules", "successCriteria": "found"})
POP = ("stack_frame_pop", {"status": "completed", "results": "They rotate once an hour."})
READ = ("read", {"path": "a"})
OUTPUT = f"{SECRET_NAME} is set in the settings. " + WORDS


def with_a_frame(last: Json) -> ReplayResult:
    """A frame is pushed, reads something long, is popped, and the parent goes on with `last`. Calls of ours make a
    hidden round, which the recorded provider answers with the same words."""
    history: list[Json] = [user("Find out how tokens are kept, then use it.")]
    steps = [step(history, calls(PUSH, text="Looking."))]
    history = [*history, says("Looking.\n\nLooking."), user("Go on.")]
    steps.append(step(history, calls(READ), MINUTE))
    history = [*history, calls(READ), result("c1", OUTPUT)]
    steps.append(step(history, calls(POP, text="Found."), 2 * MINUTE))
    history = [*history, says("Found.\n\nFound."), user("Now use it.")]
    steps.append(step(history, last, 3 * MINUTE))
    return played(*steps)


def test_what_a_popped_frame_did_left_with_its_title_and_a_ref() -> None:
    told = with_a_frame(says("I know."))

    (left,) = told.left
    assert left.title == "Find the token rules"
    assert left.status == "completed"
    assert left.ref
    assert left.first_request == 3
    assert left.tokens > 1000
    assert told.events["popped"] == 1


def test_a_name_that_left_and_is_used_again_is_missed_behind_its_ref() -> None:
    told = with_a_frame(calls(("read", {"path": SECRET_NAME}), text="Using it."))

    (missed,) = told.missed
    assert (missed.name, missed.request, missed.said_by) == (SECRET_NAME, 4, "tool")
    assert missed.ref == told.left[0].frame
    assert told.needs.behind_ref == 1
    assert told.needs.lost == 0


def test_a_name_that_still_stands_in_the_context_is_not_missed() -> None:
    told = played(
        step([user(f"{SECRET_NAME} matters. {WORDS}")], says("ok")),
        step([user(f"{SECRET_NAME} matters. {WORDS}"), says("ok"), user("go")], says(f"see {SECRET_NAME}"), MINUTE),
    )

    assert told.needs.used == told.needs.in_context == 1


# ---------------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    "history",
    [
        [result("c9", "nobody asked"), user("go")],
        [user("a"), calls(READ), user("no result came")],
        [user("a"), calls(READ), result("c1", "r"), calls(READ), result("c1", "again")],
        [user(""), user("")],
        [{"role": "system", "content": "only this"}],
    ],
)
def test_a_history_that_is_not_sound_is_played(history: list[Json]) -> None:
    told = played(step(history, says("done")), step([*history, says("done"), user("more")], says("end"), MINUTE))

    assert sum(told.statuses.values()) == 2
    assert not [status for status in told.statuses if "internal" in status]


def test_an_answer_that_was_not_recorded_is_nobodys_fault() -> None:
    told = played(step([user("a")], None))

    assert told.unequal == 0
    assert told.needs.used == 0
