"""What a person takes back: a frame that was folded wrongly is on the line again, byte for byte, and stays there.

Every scenario ends before the judge of `tests.laws`: a line changes in its past only where its receipt tells of it, and
what comes back is what stood there before.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from callstack_proxy.cli import frames as keeping
from callstack_proxy.cli import inspect as looking
from callstack_proxy.management.issued_keys import issue_key
from callstack_proxy.management.operations.frames import AT_ONCE, WHEN_CHEAP
from llm_test_provider import ReceivedRequest, ScriptedProvider, Usage, says
from tests import laws
from tests.client_dialects import neutral, tongue_at
from tests.harness import Json, RunningProxy, Stage, bash, does, pop, push
from tests.scenarios.bound import BoundModel
from tests.scenarios.sessions import TOOLS, Session

TWO_TASKS = """
    user: Fix the title of the handbook.
    read handbook.md
    edit handbook.md
    run make docs
    says: The title of the handbook is right now.
    user: Implement a rate limiter for the public API.
    read src/limit.py
    says: There is nothing like that yet in src/limit.py.
"""
"""Outputs 1-3 and 4; with the second task the first one is folded."""
TITLE = "Fix the title of the handbook."
GOES_ON = "Yes, please write the limiter."
THIRD = "Investigate why the nightly billing export takes five hours."


@pytest.fixture
def session(stage: Stage, provider: ScriptedProvider) -> Session:
    """The first task is folded. What stands in front of it is long enough for a provider to cache."""
    played = Session(stage.chat(tools=TOOLS, system="You are careful. " + "word " * 1_000), provider)
    played.plays(TWO_TASKS)
    assert played.outputs_sent() == [4]
    return played


def asked(
    proxy: RunningProxy, frame: str, headers: dict[str, str] | None = None, *, now: bool = False
) -> tuple[int, Any]:
    """Status and answer of `POST /stack/frames/FRAME/unfold`."""
    return proxy.asked("POST", f"/stack/frames/{frame}/unfold" + ("?now=true" if now else ""), None, headers)


def frame_of(session: Session, title: str = TITLE) -> str:
    return str(session.chat.proxy.frames()[title]["sessionID"])


def written(received: ReceivedRequest) -> tuple[str, ...]:
    """The messages as they were sent."""
    tongue = tongue_at(received.path)
    assert tongue is not None
    return laws.Body.read(neutral(tongue, received.raw)).written


def of_the_first_task(provider: ScriptedProvider) -> tuple[str, ...]:
    """The last line before the fold: the first task with all of its outputs."""
    return written(next(r for r in reversed(provider.received) if "output-3-here" in r.raw.decode()))


def newest(session: Session) -> Json:
    return session.chat.proxy.receipts()[-1]


def unfolds(session: Session) -> list[tuple[bool, str]]:
    """What the newest receipt says of unfolding: whether it was done, and why."""
    return [(d["done"], d["reason"]) for d in newest(session)["decisions"] if d["kind"] == "unfold"]


# ------------------------------------------------------------------------------------------------------- when it comes
def test_at_once_the_next_request_has_the_original_bytes_again(session: Session, provider: ScriptedProvider) -> None:
    """DESIGN 6: `callstack unfold --now`, whatever it costs; the receipt has the figures."""
    before = of_the_first_task(provider)
    frame = frame_of(session)

    status, told = asked(session.chat.proxy, frame, now=True)
    session.turn(GOES_ON, closing="It is written.")

    assert (status, told["frame"], told["new"], told["now"]) == (200, frame, True, True)
    assert written(provider.received[-1])[: len(before)] == before
    assert session.outputs_sent() == [1, 2, 3, 4]
    assert f"unfolded {frame}" in newest(session)["events"]
    assert unfolds(session) == [(True, "asked")]
    (decision,) = (d for d in newest(session)["decisions"] if d["kind"] == "unfold")
    assert decision["added"] > 1_000
    assert decision["behind"] > 100
    assert decision["gain"] < 0 < decision["cost"]


def test_it_waits_while_that_would_break_a_warm_cache(session: Session) -> None:
    status, told = asked(session.chat.proxy, frame_of(session))
    session.turn(GOES_ON, closing="It is written.")

    assert (status, told["now"]) == (200, False)
    assert session.outputs_sent() == [4]
    assert unfolds(session) == [(False, "not_yet")]


def test_it_comes_with_the_next_fold(session: Session, provider: ScriptedProvider) -> None:
    before = of_the_first_task(provider)
    asked(session.chat.proxy, frame_of(session))
    session.turn(GOES_ON, "edit src/limit.py", "run pytest -q", closing="It is written.")
    session.turn(THIRD, closing="Every invoice is read twice.")

    assert session.outputs_sent() == [1, 2, 3]
    assert written(provider.received[-1])[: len(before)] == before
    assert [event.split()[0] for event in newest(session)["events"]].count("folded") == 1
    assert unfolds(session) == [(True, "asked")]


def test_it_comes_with_a_cold_cache(session: Session) -> None:
    """Nothing of the line is cached: the provider told of cached tokens and tells of none any more."""
    asked(session.chat.proxy, frame_of(session))
    session.usages = [Usage(9_000, 10, cached=8_000), Usage(9_000, 10), Usage(9_000, 10)]
    for _ in range(3):
        session.turn(GOES_ON, closing="It is written.")
    assert session.outputs_sent() == [4]

    session.turn(GOES_ON, closing="It is written.")

    assert session.outputs_sent() == [1, 2, 3, 4]
    assert unfolds(session) == [(True, "cold")]


def test_what_came_back_is_never_folded_again(session: Session) -> None:
    """Not where it ended, not with what ends after it, and not by its length."""
    asked(session.chat.proxy, frame_of(session), now=True)
    session.turn(GOES_ON, "edit src/limit.py", "run pytest -q", closing="It is written.")
    session.turn(THIRD, "run ./export", closing="Every invoice is read twice.")
    session.turn("Add a changelog entry for version 2.", "edit CHANGELOG.md", closing="Added.")

    assert session.outputs_sent()[:3] == [1, 2, 3]
    assert 4 not in session.outputs_sent()
    assert "unfolded" not in " ".join(newest(session)["events"])
    assert asked(session.chat.proxy, frame_of(session))[0] == 409


@pytest.mark.parametrize("now", [True, False])
def test_a_wish_outlives_a_restart(session: Session, *, now: bool) -> None:
    frame = frame_of(session)
    asked(session.chat.proxy, frame, now=now)
    session.chat.proxy.restart()
    session.turn(GOES_ON, "edit src/limit.py", closing="It is written.")
    session.chat.proxy.restart()
    session.turn(THIRD, closing="Every invoice is read twice.")

    assert session.outputs_sent() == [1, 2, 3]
    told = [event for receipt in session.chat.proxy.receipts() for event in receipt["events"]]
    assert told.count(f"unfolded {frame}") == 1


def test_a_part_of_long_work_comes_back_and_no_later_part_takes_it(stage: Stage, provider: ScriptedProvider) -> None:
    """The same task goes on and is cut again: what came back stays, by itself or under what it became a part of."""
    session = Session(stage.chat(stage.proxy(frame_max_tokens=4_000), tools=TOOLS), provider, padding=1_500)
    steps = [f"run step {n}" for n in range(6)]
    session.turn("Find the leak.", *steps, closing="Not found yet.")
    folded = set(range(1, 7)) - set(session.outputs_sent())
    part = next(f["sessionID"] for title, f in session.chat.proxy.frames().items() if title.startswith("Part 1"))

    _, told = asked(session.chat.proxy, part, now=True)
    session.turn("yes, go on", *steps, closing="It is the cache.")
    session.turn("yes, go on", *steps, closing="Fixed.")

    assert folded
    assert folded <= set(session.outputs_sent())
    assert len(session.outputs_sent()) < 18
    assert told["title"].startswith("Part")


def test_a_branch_behind_the_fold_has_it_too(session: Session, provider: ScriptedProvider) -> None:
    """The wish hangs where the fold was decided, so every path with the fold has it."""
    asked(session.chat.proxy, frame_of(session), now=True)
    session.chat.history.pop()
    session.chat.history.pop()
    session.chat.history.pop()
    session.chat.proxy.stage.excuse()
    provider.will(says("Another answer."))

    session.chat.asks()

    assert session.outputs_sent() == [1, 2, 3]


def test_a_frame_below_the_folded_one_brings_back_all_of_it(stage: Stage, provider: ScriptedProvider) -> None:
    """What an item did left with its request: the answer names the frame whose fold is taken back."""
    session = Session(stage.chat(tools=TOOLS), provider)
    session.plays(
        """
        user: Fix the title of the handbook.
        todo: [>] Look | [ ] Edit
        read handbook.md
        todo: [x] Look | [>] Edit
        edit handbook.md
        todo: [x] Look | [x] Edit
        says: The title is right now.
        user: Implement a rate limiter for the public API.
        read src/limit.py
        says: There is nothing like that yet.
        """
    )
    held = [n for n in range(1, 6) if n not in session.outputs_sent()]

    _, told = asked(session.chat.proxy, frame_of(session, "Edit"), now=True)
    session.turn(GOES_ON, closing="It is written.")

    assert held
    assert told["frame"] in {frame_of(session, "Edit"), frame_of(session)}
    assert session.chat.proxy.receipts()[-1]["events"].count(f"unfolded {told['frame']}") == 1
    assert set(session.outputs_sent()) & set(held)


def test_a_provider_that_binds_reasoning_does_not_refuse_what_came_back(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """L8: what was thought behind the place that changed is left out for good; the provider's check is the judge."""
    session = Session(stage.chat(tools=TOOLS, model="claude-opus-5.5"), provider, padding=1_500)
    model = BoundModel()
    for number, title in enumerate(("Fix the title of the handbook.", "Implement a rate limiter.", GOES_ON, GOES_ON)):
        provider.will(*(model(does(bash(f"{title} {n}"), reasoning=f"about {n}")) for n in range(3)))
        provider.will(model(says("That is done.").but(reasoning="it is done")))
        assert session.chat.says(title).status == 200
        for _ in range(3):
            assert session.chat.returns(session.output("ok")).status == 200
        if number == 1:
            asked(session.chat.proxy, frame_of(session, session.chat.history[0]["content"]), now=True)

    assert model.faults == []
    assert session.outputs_sent() == list(range(1, 13))


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
def test_the_frames_say_which_of_them_are_folded_and_which_were_asked_back(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `unfold` accepts is marked, in the state and in the tree; everything else it refuses."""
    proxy = session.chat.proxy
    before = proxy.frames()
    refused = {title: asked(proxy, frame["sessionID"])[0] for title, frame in before.items() if title != TITLE}
    asked(proxy, frame_of(session), now=True)
    wanted = proxy.frames()[TITLE]
    session.turn(GOES_ON, closing="It is written.")
    back = proxy.frames()[TITLE]

    marks = [(frame.get("folded"), frame.get("kept")) for frame in (before[TITLE], wanted, back)]
    assert marks == [(True, None), (True, True), (None, True)]
    assert set(refused.values()) == {409}
    assert [title for title, frame in before.items() if "folded" in frame] == [TITLE]
    looking.tree(data=proxy.config.data)
    assert f"✓ {TITLE} [{frame_of(session)}] request, brought back\n" in capsys.readouterr().out


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
def test_the_command_does_it_where_no_proxy_runs(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    proxy, frame = session.chat.proxy, frame_of(session)
    proxy.stop()
    where = {"config": None, "data": proxy.config.data}
    for now in (False, True):
        keeping.unfold(frame=frame, now=now, as_json=False, **where)
    keeping.unfold(frame=frame[:6], now=False, as_json=True, **where)
    proxy.start()
    session.turn(GOES_ON, closing="It is written.")

    waits, at_once, again = capsys.readouterr().out.split("\n", 2)
    assert waits == f"{frame} ({TITLE!r}) comes back {WHEN_CHEAP}; it is never folded again"
    assert at_once == f"{frame} ({TITLE!r}) comes back {AT_ONCE}; it is never folded again"
    assert (json.loads(again)["new"], json.loads(again)["now"]) == (False, True)
    assert session.outputs_sent() == [1, 2, 3, 4]


# ----------------------------------------------------------------------------------------------------------- refusals
def test_asked_twice_it_is_told_so(session: Session) -> None:
    proxy, frame = session.chat.proxy, frame_of(session)
    told = [asked(proxy, frame)[1], asked(proxy, frame)[1], asked(proxy, frame, now=True)[1], asked(proxy, frame)[1]]

    assert [(one["new"], one["now"]) for one in told] == [(True, False), (False, False), (True, True), (False, True)]


def test_what_was_never_folded_cannot_be_unfolded(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(does(push("Auth")), does(pop("done")), says("It is done."))
    chat.says("add a login")
    root, pushed = (frame["sessionID"] for frame in chat.proxy.frames().values())

    unknown, whole, model = asked(chat.proxy, "fnothere"), asked(chat.proxy, root), asked(chat.proxy, pushed)

    assert unknown[0] == 404
    assert (whole[0], whole[1]["error"]["code"]) == (409, "not_folded")
    assert "was not put away" in whole[1]["error"]["message"]
    assert model[0] == 409
    assert f"stack_recall ref={pushed}" in model[1]["error"]["message"]


def test_a_frame_of_another_tenant_is_not_there(stage: Stage, provider: ScriptedProvider) -> None:
    """Answered like one that never was, and nothing changes."""
    proxy = stage.proxy(tenancy="key")
    proxy.headers = {"authorization": f"Bearer {issue_key(proxy.config.keys_path, 'operator', admin=True)}"}
    mine, other = ({"authorization": f"Bearer {issue_key(proxy.config.keys_path, n)}"} for n in ("mine", "other"))
    session = Session(stage.chat(proxy, tools=TOOLS, headers=mine), provider)
    session.plays(TWO_TASKS)
    frame = frame_of(session)

    refused = asked(proxy, frame, other, now=True)
    session.turn(GOES_ON, closing="It is written.")

    assert (refused[0], refused[1]["error"]["message"].replace(frame, "")) == (
        404, asked(proxy, "fnothere", other)[1]["error"]["message"].replace("fnothere", ""),
    )  # fmt: skip
    assert session.outputs_sent() == [4]
    assert asked(proxy, frame, mine)[0] == 200
