"""Models whose chat template wants user and assistant to alternate, and caps on the number of tools."""

import json
import re
from typing import Any

import pytest

from llm_test_provider import Model, ScriptedProvider
from tests.harness import Conversation, Stage, bash, does, pop, push, recall
from tests.scenarios.speaking import beside

OUTPUT = "x = 1 # a line of a file\n" * 1300
ONE_DIALECT = "the judge reads each block of a message as one of its own, so joined ones cannot be seen"


def alternates(messages: list[dict[str, Any]]) -> bool:
    """As the templates of Mistral's models check it: calls and results do not count."""
    expects_user = True
    for message in messages[1:] if messages[0]["role"] == "system" else messages:
        if message["role"] == "tool" or message.get("tool_calls"):
            continue
        if (message["role"] == "user") is not expects_user:
            return False
        expects_user = not expects_user
    return True


def works_long(chat: Conversation, provider: ScriptedProvider) -> None:
    """Five requests of the user; in each two files are read, frames are opened and closed, and a person speaks."""
    for number in range(5):
        frames = [does(push(f"Part {number}")), does(bash("ls"), text="Looking.")] if number % 2 else [does(bash("ls"))]
        provider.will(*frames, does(bash("cat")))
        chat.says(f"Task {number}: please implement feature {number} in module m{number}, something else.")
        chat.returns(OUTPUT)
        beside(chat).says(f"Mind case {number}.")
        provider.will(*([does(pop("it works"))] if number % 2 else []), does(text=f"Part {number} is done."))
        chat.returns(OUTPUT)


@pytest.mark.rows("X-28")
@pytest.mark.spoken_in("chat", reason=ONE_DIALECT)
@pytest.mark.parametrize("model", ["devstral-small-2", "some-local-model"])
def test_nothing_of_ours_is_a_second_user_message_in_a_row(
    stage: Stage, provider: ScriptedProvider, model: str
) -> None:
    chat = stage.chat(model=model)

    works_long(chat, provider)

    assert all(map(alternates, stage.lines()))
    assert alternates(json.loads(chat.body())["messages"])
    assert any("Mind case 1." in str(m["content"]) for m in stage.lines()[-1])


@pytest.mark.rows("X-28")
@pytest.mark.spoken_in("chat", reason=ONE_DIALECT)
def test_where_roles_may_come_in_any_order_our_texts_are_messages_of_their_own(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat(stage.proxy(default_tariff__roles="any"), model="some-local-model")

    works_long(chat, provider)

    assert not all(map(alternates, stage.lines()))


@pytest.mark.rows("X-28")
@pytest.mark.spoken_in("chat", reason=ONE_DIALECT)
def test_a_frame_that_a_person_ended_leaves_no_two_user_messages(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(model="some-local-model")
    provider.will(does(push("Part")), does(bash("ls")), does(text="Shall I go on?"))
    chat.says("Task")
    chat.returns(OUTPUT)
    frame = chat.proxy.frames()["Part"]["sessionID"]
    assert chat.proxy.asked("POST", f"/stack/frames/{frame}/pop", {"results": "listed"})[0] == 200
    provider.will(does(text="Fine."))
    chat.says("Go on with something else.")

    assert all(map(alternates, stage.lines()))


# ------------------------------------------------------------------------------------------------------ caps on tools
def offered(provider: ScriptedProvider) -> tuple[int, int]:
    """How many tools the last request offered, and how many of them are ours."""
    names = provider.received[-1].tool_names
    return len(names), sum(name.startswith("stack") for name in names)


def many(number: int) -> tuple[str, ...]:
    return tuple(f"mcp_tool_{at}" for at in range(number))


@pytest.mark.rows("X-29")
@pytest.mark.parametrize(
    ("theirs", "ours", "status"),
    [(123, 5, "full"), (124, 3, "full"), (126, 1, "full"), (127, 1, "full"), (128, 0, "asleep")],
)
def test_our_tools_stay_within_the_cap_of_the_model(
    stage: Stage, provider: ScriptedProvider, theirs: int, ours: int, status: str
) -> None:
    provider.will(does(text="Hello."))
    answer = stage.chat(tools=many(theirs)).says("Hello")

    assert offered(provider) == (theirs + ours, ours)
    assert answer.stack_status.partition(";")[0] == status
    assert answer.stack_status.endswith("too_many_tools") is (not ours)


@pytest.mark.rows("X-29")
def test_a_cap_may_be_configured_or_absent(stage: Stage, provider: ScriptedProvider) -> None:
    provider.will(does(text="Hello."), does(text="Hello."))
    stage.chat(stage.proxy(default_tariff__most_tools=0), tools=many(200)).says("Hello")
    assert offered(provider) == (205, 5)

    stage.chat(stage.proxy(default_tariff__most_tools=20), tools=many(19)).says("Hello")
    assert offered(provider) == (20, 1)


@pytest.mark.rows("X-29")
def test_a_client_that_adds_tools_later_gets_fewer_of_ours(stage: Stage, provider: ScriptedProvider) -> None:
    provider.will(*[does(text="Hello.")] * 4)
    chat = stage.chat(tools=many(100))
    chat.says("Hello")
    assert offered(provider) == (105, 5)

    for theirs, ours in ((127, 1), (128, 0), (128, 0)):
        stage.excuse()
        chat.tools = many(theirs)
        answer = chat.says("And now?")

        assert offered(provider) == (theirs + ours, ours)
        assert answer.stack_status == ("full" if ours else "full; form=bare")


def folded(chat: Conversation, provider: ScriptedProvider) -> None:
    """A conversation of which most outputs have left."""
    works_long(chat, provider)
    assert whole_outputs(provider) < 10


def whole_outputs(provider: ScriptedProvider) -> int:
    return json.dumps(provider.received[-1].messages).count(json.dumps(OUTPUT)[1:-1])


@pytest.mark.rows("X-29")
def test_where_no_tool_of_ours_fits_any_more_all_that_was_folded_is_back(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Once one fits again, it leaves again."""
    chat = stage.chat(tools=("bash",))
    folded(chat, provider)

    for theirs, status, outputs in ((128, "full; form=bare", 10), (128, "full; form=bare", 10), (100, "full", 0)):
        stage.excuse()
        chat.tools = ("bash", *many(theirs - 1))
        provider.will(does(text="Hello."))

        assert chat.says("And now?").stack_status == status
        assert whole_outputs(provider) == outputs
        assert ("stack_recall" in provider.received[-1].raw.decode()) is (status == "full")


@pytest.mark.rows("X-29")
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("provider", [{"models": [Model("gpt-x", window=60_000)]}], indirect=True)
def test_what_only_fits_folded_stays_folded_and_a_ref_is_answered_without_the_tool(
    stage: Stage, provider: ScriptedProvider, known: bool
) -> None:
    """The window is known, or its provider tells of it by refusing what was unfolded."""
    row = {"tariffs__own__names": "gpt-x", "tariffs__own__window": 60_000} if known else {}
    chat = stage.chat(stage.proxy(**row), model="gpt-x", tools=("bash",))
    folded(chat, provider)

    ref = re.findall(r'stack_recall\(ref=\\"(\w+)', json.dumps(provider.received[-1].messages))[0]

    stage.excuse()
    chat.tools = ("bash", *many(127))
    provider.will(does(text="Hello."), does(recall(ref)), does(text="There it is."))

    assert chat.says("And now?").stack_status == "full"
    assert chat.says("And then?").text == "There it is."
    assert offered(provider) == (128, 0)
    assert whole_outputs(provider) < 10
