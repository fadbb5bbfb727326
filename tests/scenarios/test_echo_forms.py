"""A history comes back in other words: a translator or the client changed all of it on the way.

It is the same history: hidden calls and frames stay, and each message is recorded once.
"""

import json
import re
import unicodedata
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from llm_test_provider import ScriptedAnswer, ScriptedProvider, call, says
from tests.harness import Conversation, Stage, as_one_text, bash, does, pop, push

Json = dict[str, Any]
Form = Callable[[list[Json]], list[Json]]
LARGE = 9_007_199_254_740_993
"""The first integer that a double cannot hold."""
TEXT = "First I plan.  \n\n  Then I read é: "
_numbers = count()


def in_each_answer(change: Callable[[str], str]) -> Form:
    def form(history: list[Json]) -> list[Json]:
        for message in history:
            if message["role"] == "assistant" and message.get("content"):
                message["content"] = change(message["content"])
        return history

    return form


def trimmed_lines(text: str) -> str:
    return "\n\n".join(block.strip() for block in text.split("\n\n"))


def with_new_ids(history: list[Json]) -> list[Json]:
    told = json.dumps(history)
    for known in sorted(set(re.findall(r'"(?:tool_call_)?id": "([^"]+)"', told)), key=len, reverse=True):
        told = told.replace(f'"{known}"', f'"x{next(_numbers)}"')
    return list(json.loads(told))


def as_doubles(history: list[Json]) -> list[Json]:
    for message in history:
        for made in message.get("tool_calls") or ():
            values = json.loads(made["function"]["arguments"], parse_int=float)
            made["function"]["arguments"] = json.dumps(values)
    return history


def calls_as_text(history: list[Json]) -> list[Json]:
    """Calls are told as text, and results as messages of the user."""
    told: list[Json] = []
    for message in history:
        made = message.get("tool_calls") or ()
        words = [f"[Called {c['function']['name']} with {c['function']['arguments']}]" for c in made]
        if message["role"] == "tool":
            told.append({"role": "user", "content": f"[Result of {message['tool_call_id']}]\n{message['content']}"})
        elif made:
            told.append({"role": "assistant", "content": "\n".join([message.get("content") or "", *words]).strip()})
        else:
            told.append(message)
    return told


def in_two_messages(history: list[Json]) -> list[Json]:
    told: list[Json] = []
    for message in history:
        if message.get("tool_calls") and message.get("content"):
            told += [{"role": "assistant", "content": message["content"]}, {**message, "content": None}]
        else:
            told.append(message)
    return told


FORMS: dict[str, Form] = {
    "trimmed": in_each_answer(trimmed_lines),
    "joined": in_each_answer(lambda text: text.replace("\n\n", "")),
    "windows": in_each_answer(lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n")),
    "decomposed": in_each_answer(lambda text: unicodedata.normalize("NFD", text)),
    "new ids": with_new_ids,
    "doubles": as_doubles,
    "in two messages": in_two_messages,
    "new ids, trimmed": lambda history: in_each_answer(trimmed_lines)(with_new_ids(history)),
}


def without_judge(stage: Stage) -> None:
    """The judge compares calls and results by their ids, which change on the way here."""
    stage.notes.clear()
    stage.provider.received.clear()


def answers() -> list[Any]:
    """A frame is opened behind hidden words and closed again."""
    looked = call("bash", command="look", number=LARGE)
    return [
        ScriptedAnswer(text=TEXT, calls=(push("Ledger"),)),
        ScriptedAnswer(text="Reading é,\nline by line.\n", calls=(looked,)),
        ScriptedAnswer(text="Once more.\n", calls=(call("bash", command="more"), call("bash", command="most"))),
        does(pop("It is read.")), says("All of it is read.\r\nIt is short."), says("You are welcome."),
    ]  # fmt: skip


@pytest.mark.rows("X-34")
@pytest.mark.spoken_in("chat", reason="the forms are written for its messages; the core compares values of any dialect")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_a_history_in_other_words_is_the_same_history(
    stage: Stage, provider: ScriptedProvider, chat: Conversation, form: Form
) -> None:
    """X-34: one conversation and one thread; the first-sent bytes stay on the line."""
    provider.will(*answers())
    chat.says("Please read the ledger.")
    chat.history = form(chat.history)
    chat.returns("line one\nline two\n")
    assert "stack_frame_push" in as_one_text(provider.received[-1].messages)
    chat.history = form(chat.history)
    chat.returns("line three\n", "line four\n")
    chat.history = form(chat.history)
    chat.says("Thanks.")

    assert [row["threads"] for row in chat.proxy.conversations] == [["main"]]
    frames = chat.proxy.frames()
    assert {name: frame["status"] for name, frame in frames.items()}["Ledger"] == "completed"
    logs = [entry["wire"] for frame in frames.values() for entry in chat.proxy.log(frame["sessionID"])]
    assert len(logs) == len(set(logs))
    assert provider.received[2].messages[2]["content"] == TEXT
    assert [m["tool_call_id"] for m in provider.received[3].messages if m["role"] == "tool"][-3:] == [
        c["id"] for m in provider.received[3].messages for c in m.get("tool_calls", ())
    ][-3:]
    without_judge(stage)


@pytest.mark.rows("X-34")
@pytest.mark.spoken_in("chat", reason="the forms are written for its messages; the core compares values of any dialect")
def test_calls_and_results_told_as_text_are_the_calls_and_results(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    """X-34: the model sees its own calls; what came as the user's message stays one."""
    provider.will(*answers())
    chat.says("Please read the ledger.")
    chat.history = [*calls_as_text(chat.history), {"role": "user", "content": "[Result]\nline one"}]
    chat.asks()
    assert "stack_frame_push" in as_one_text(provider.received[-1].messages)
    chat.returns("line three\n", "line four\n")
    chat.history = calls_as_text(chat.history)
    chat.says("Thanks.")

    assert [row["threads"] for row in chat.proxy.conversations] == [["main"]]
    assert chat.proxy.frames()["Ledger"]["status"] == "completed"
    assert "[Result]" in as_one_text(provider.received[2].messages)
    without_judge(stage)


@pytest.mark.rows("X-34")
@pytest.mark.spoken_in("chat", reason="the forms are written for its messages; the core compares values of any dialect")
def test_calls_told_in_the_order_in_which_they_finished_are_the_same_calls(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    """X-34: a client that runs calls side by side tells them, and one text of all results, as they finished. The model
    is not told that a result is missing."""
    read, write, count = (call("bash", command=f"{word} a.py") for word in ("cat", "touch", "wc"))
    provider.will(does(push("Ledger"), read, write, count, text="Three at once."), does(bash("ls")), says("All done."))
    chat.says("Please read the ledger.")
    made = chat.history[-1]["tool_calls"]
    words = ", ".join(f"{{'name': 'bash', 'arguments': {made[at]['function']['arguments']}}}" for at in (2, 0, 1))
    chat.history[-1] = {"role": "assistant", "content": f"Three at once.\nCalling tools:\n[{words}]"}
    chat.says("Observation:\n5 a.py\nx = 1\ntouched")
    one = chat.history[-1]["tool_calls"][0]["function"]["arguments"]
    chat.history[-1] = {"role": "assistant", "content": f"Calling tools:\n[{{'name': 'bash', 'arguments': {one}}}]"}
    chat.says("Observation:\na.py")

    assert [row["threads"] for row in chat.proxy.conversations] == [["main"]]
    sent = as_one_text(provider.received[-1].messages)
    assert "stack_frame_push" in sent
    assert "cancelled" not in sent
    assert "Observation:\\n5 a.py" in sent or "Observation:\n5 a.py" in sent
    without_judge(stage)


@pytest.mark.rows("X-34")
@pytest.mark.spoken_in("chat", reason="the forms are written for its messages; the core compares values of any dialect")
def test_calls_that_the_user_talked_over_were_cancelled(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    """Where nothing tells a result, nothing claims that there is one."""
    provider.will(does(bash("ls")), says("Well."))
    chat.says("Please list.")
    chat.says("No, stop: the tool would take too long.")

    assert "cancelled" in as_one_text(provider.received[-1].messages)


@pytest.mark.rows("X-08")
def test_a_call_that_the_client_shortened_keeps_what_stood_beside_it(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """The id and the name are the same: our calls are put back beside it, as the model wrote them all."""
    recall = call("stack_recall", query="ledger")
    provider.will(
        does(push("Ledger"), bash("cd /work && ls"), text="I look."),
        does(bash("cd /work && cat a.py"), recall), does(pop("It is read.")), says("Done."),
    )  # fmt: skip
    chat.says("Please read the ledger.")
    for result in ("a.py", "x = 1"):
        chat.history = json.loads(json.dumps(chat.history).replace("cd /work && ", ""))
        chat.returns(result)
        assert "stack_frame_push" in as_one_text(provider.received[-1].messages)

    assert "stack_recall" in as_one_text(provider.received[2].messages)
    assert [row["threads"] for row in chat.proxy.conversations] == [["main"]]
    assert chat.proxy.frames()["Ledger"]["status"] == "completed"


@pytest.mark.rows("X-34")
def test_the_same_calls_made_again_are_not_the_first_ones(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    """X-34: ids that were given out here say which calls are meant."""
    again = does(call("bash", command="look"), text="Step 1.")
    provider.will(again, says("Nothing yet."), again, says("Something."))
    chat.says("look")
    first = chat.history[1]
    chat.returns("nothing")
    chat.says("look")
    assert chat.history[-1]["tool_calls"][0]["id"] != first["tool_calls"][0]["id"]
    chat.history = [chat.history[0], chat.history[-1]]
    stage.excuse()
    chat.returns("a file")

    assert "a file" in as_one_text(provider.received[-1].messages)
