"""`/v1/compress` and `/v1/retrieve/{hash}`: what LiteLLM's guardrail `headroom` sends, and what it reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.management.compress_api import hash_of_ref, ref_of_hash, rows_for, with_hashes
from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedProvider
from tests.harness import RunningProxy, Stage, running_stage

Json = dict[str, Any]
FILE = "\n".join(f"line {number}: some words about totals and rounding" for number in range(300))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ScriptedProvider() as provider, running_stage(provider, tmp_path, streamed=False) as made:
        yield made


def compress(proxy: RunningProxy, messages: list[Json], **more: Any) -> Json:
    status, said = proxy.asked("POST", "/v1/compress", {"messages": messages, "model": "gpt-5.4", **more})
    assert status == 200, said
    return dict(said)


def reads(number: int) -> list[Json]:
    """A call of a client's tool, with its result."""
    arguments = json.dumps({"path": f"src/file{number}.py"})
    asked = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"{FILE}\nmarker{number}"},
    ]


def finished_work(ask: Any) -> tuple[list[Json], Json]:
    """A history with one finished task and the beginning of another, and the last answer; `ask` is asked each time."""
    history: list[Json] = [
        {"role": "system", "content": "You are careful: stack_recall is a word of mine."},
        {"role": "user", "content": "Fix the rounding in the totals."},
    ]
    ask(history)
    for number in range(4):
        history += reads(number)
        ask(history)
    history += [
        {"role": "assistant", "content": "The totals are right now."},
        {"role": "user", "content": "Now write a letter to the accountants, something else entirely."},
    ]
    return history, ask(history)


@pytest.mark.rows("X-66")
def test_finished_work_leaves_and_can_be_asked_back(stage: Stage) -> None:
    proxy = stage.proxy(folding="full")
    history, said = finished_work(lambda messages: compress(proxy, messages))
    went_on = compress(proxy, [*history, *reads(9)])

    (digits,) = said["ccr_hashes"]
    texts = [str(message["content"]) for message in said["messages"]]
    found = proxy.asked("GET", f"/v1/retrieve/{digits}?query=marker2")[1]
    posted = proxy.asked("POST", f"/v1/retrieve/{digits}", {"query": "marker2"})[1]
    whole = proxy.asked("GET", f"/v1/retrieve/{digits}")[1]

    assert [row for row in said["messages"] if row["role"] != "tool"] == [
        row for row in history if row["role"] != "tool"
    ]
    assert [row["role"] for row in said["messages"]] == [row["role"] for row in history]
    assert said["tokens_after"] < said["tokens_before"] / 4
    assert said["tokens_saved"] == said["tokens_before"] - said["tokens_after"]
    assert 0 < said["compression_ratio"] < 0.25
    assert [text for text in texts[1:] if "stack_recall" in text or "stack_frame" in text] == []
    assert set(re.findall(r"hash=([a-f0-9]{24})", " ".join(texts))) == {digits}
    assert texts[-3] == f"(left the context: hash={digits})"
    assert "marker2" in found["original_content"]
    assert "marker1" not in found["original_content"]
    assert posted == found
    assert "src/file0.py" in whole["original_content"]
    assert went_on["messages"][: len(texts)] == said["messages"]
    assert went_on["messages"][len(texts) :] == reads(9)
    assert stage.provider.received == []
    total = proxy.get("/stack/totals")["total"]
    assert (len(proxy.conversations), total["requests"]) == (1, 7)
    assert total["saved"] > 0
    assert total["tokens_saved"] > 0


@pytest.mark.rows("X-66")
def test_what_litellm_holds_back_is_done_without(stage: Stage) -> None:
    """It sends neither assistants nor the last user message, and wants as many rows as it sent."""
    proxy = stage.proxy(folding="full")
    history: list[Json] = []
    for task in ("Fix the rounding in the totals.", "Write a letter to the accountants.", "Migrate the customers."):
        history += [{"role": "user", "content": task}]
        for number in range(4):
            rows = [row for row in history if row["role"] != "assistant"]
            last_user = max(at for at, row in enumerate(rows) if row["role"] == "user")
            rows = rows[:last_user] + rows[last_user + 1 :]
            said = compress(proxy, rows) if rows else {"messages": [], "ccr_hashes": []}
            assert [(r["role"], r.get("tool_call_id")) for r in said["messages"]] == [
                (r["role"], r.get("tool_call_id")) for r in rows
            ]
            history += reads(10 * len(history) + number)

    assert said["tokens_after"] < said["tokens_before"] * 0.8
    assert len(said["ccr_hashes"]) == 1
    found = proxy.asked("GET", f"/v1/retrieve/{said['ccr_hashes'][0]}?query=marker10")[1]["original_content"]
    assert "marker10" in found


@pytest.mark.rows("X-66")
def test_small_work_comes_back_as_it_went(stage: Stage) -> None:
    proxy = stage.proxy(wake_at_tokens="4000", models__pinned__upstream="default")
    messages = [{"role": "user", "content": [{"type": "text", "text": "hello"}], "name": "ann"}]

    said = compress(proxy, messages, tools=[{"type": "function", "function": {"name": "read"}}])

    assert said["messages"] == messages
    assert (said["tokens_saved"], said["compression_ratio"], said["transforms_applied"]) == (0, 1.0, [])
    assert compress(proxy, [{"role": "user", "content": "/stack help"}])["messages"][0]["content"] == "/stack help"
    assert compress(proxy, messages, model="pinned")["messages"] == messages
    assert compress(proxy, messages, model=None)["messages"] == messages
    assert compress(proxy, [])["messages"] == []


@pytest.mark.rows("X-66")
def test_what_is_no_such_request_is_answered(stage: Stage) -> None:
    proxy = stage.proxy()
    answers = [
        proxy.asked("POST", "/v1/compress", body)[0]
        for body in (b"{", b"[]", b"{}", b'{"messages": "x"}', b'{"messages": [1]}', b'{"messages": [], "tools": 1}')
    ]
    unknown = [proxy.asked("GET", f"/v1/retrieve/{name}")[0] for name in ("x", "0" * 24, hash_of_ref("fnothere"))]

    assert answers == [400] * 6
    assert unknown == [404] * 3


@pytest.mark.rows("X-66")
def test_what_a_key_kept_is_no_other_keys(stage: Stage) -> None:
    proxy = stage.proxy(tenancy="key", folding="full")
    ours, theirs = ({"authorization": f"Bearer {issue_key(proxy.config.keys_path, name)}"} for name in "ab")

    def ask(messages: list[Json]) -> Json:
        status, said = proxy.asked("POST", "/v1/compress", {"messages": messages, "model": "gpt-5.4"}, ours)
        assert status == 200, said
        return dict(said)

    _, said = finished_work(ask)
    proxy.headers = ours
    path = f"/v1/retrieve/{said['ccr_hashes'][0]}"

    assert proxy.asked("GET", path, None, ours)[0] == 200
    assert proxy.asked("GET", path, None, theirs)[0] == 404
    assert proxy.asked("POST", "/v1/compress", {"messages": []}, {})[0] == 401


@pytest.mark.rows("X-66")
def test_what_left_of_an_output_can_be_asked_back(stage: Stage) -> None:
    proxy = stage.proxy(folding="requests", output_cap=500)
    history = [{"role": "user", "content": "Fix the rounding in the totals."}, *reads(0)]
    compress(proxy, history)
    history += reads(1)

    said = compress(proxy, history)

    assert len(said["ccr_hashes"]) == 2
    assert [row.get("tool_call_id") for row in said["messages"]] == [row.get("tool_call_id") for row in history]
    for number, row in ((0, said["messages"][2]), (1, said["messages"][4])):
        (digits,) = re.findall(r"hash=([a-f0-9]{24})", row["content"])
        assert row["content"].startswith("line 0: ")
        assert f"marker{number}" in row["content"]
        found = proxy.asked("GET", f"/v1/retrieve/{digits}?query=marker{number}")[1]["original_content"]
        assert f"marker{number}" in found
        assert "line 150: " in proxy.asked("POST", f"/v1/retrieve/{digits}", {"query": "150"})[1]["original_content"]
    assert proxy.asked("GET", f"/v1/retrieve/{hash_of_ref('0123456789ab')}")[0] == 404


@pytest.mark.rows("X-66")
def test_a_stopped_conversation_is_refused(stage: Stage) -> None:
    proxy = stage.proxy()
    messages: list[Json] = [{"role": "user", "content": "Fix the rounding."}, *reads(0)]
    compress(proxy, messages)
    at = f"/stack/conversations/{proxy.conversations[0]['id']}"
    proxy.manage("POST", f"{at}/stop")

    status, said = proxy.asked("POST", "/v1/compress", {"messages": [*messages, *reads(1)], "model": "gpt-5.4"})

    assert (status, said["error"]["code"]) == (499, "stopped")
    assert proxy.get("/stack/totals")["total"]["requests"] == 2


@pytest.mark.rows("X-66")
def test_no_mode_offers_tools_that_nobody_answers(stage: Stage) -> None:
    """Not even that of a model, of a header, or of the conversation."""
    proxy = stage.proxy(mode="passive", **{"models.gpt-*.mode": "active"})
    messages: list[Json] = [{"role": "system", "content": "Be careful."}, {"role": "user", "content": "Fix it."}]
    compress(proxy, messages)
    proxy.manage("PUT", f"/stack/conversations/{proxy.conversations[0]['id']}/mode", {"mode": "active"})
    messages += reads(0)

    asked = {"messages": messages, "model": "gpt-5.4"}
    said = proxy.asked("POST", "/v1/compress", asked, {"x-stack-mode": "active"})[1]

    assert said["messages"][:2] == messages[:2]
    assert "stack_" not in json.dumps(said)


@pytest.mark.rows("X-66")
def test_odd_messages_come_back_as_they_went(stage: Stage) -> None:
    """Half of a surrogate pair, names of calls that are no texts, and what no dialect reads."""
    proxy = stage.proxy()
    odd: list[Json] = [
        {"role": "user", "content": "an output that was cut \ud83d"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": {}}]},
        {"role": "tool", "tool_call_id": [], "content": "x \ude00"},
    ]

    assert compress(proxy, odd[:1])["messages"] == odd[:1]
    assert compress(proxy, odd)["messages"] == odd
    assert compress(proxy, [{"role": 5}])["messages"] == [{"role": 5}]
    told = proxy.page("/metrics")
    assert 'status="bypass"' in told
    assert 'status="error"' not in told


def tool(name: str, content: str) -> Json:
    return {"role": "tool", "tool_call_id": name, "content": content}


def user(content: str) -> Json:
    return {"role": "user", "content": content}


def test_what_was_sent_stands_in_the_row_that_it_belongs_to() -> None:
    note, long = '<stack-context note="x">n</stack-context>', "words " * 50
    gone = "(left the context)"

    assert rows_for([user("yes"), user("yes, go on")], [user("yes, go on")]) == [user("yes"), user("yes, go on")]
    assert rows_for([user(""), user("go on")], [user(f"go on\n\n{note}")]) == [user(""), user(f"go on\n\n{note}")]
    assert rows_for([user("yes"), tool("a", long)], [user(f"yes\n\n{note}")]) == [
        user(f"yes\n\n{note}"),
        tool("a", gone),
    ]
    assert rows_for([user("yes"), tool("a", long)], [user("yes, said a person")]) == [
        user("yes"),
        tool("a", "yes, said a person"),
    ]
    assert rows_for([tool("a", long), user("b"), tool("c", long)], [user(note), tool("a", long), user("b")]) == [
        tool("a", long),
        user("b"),
        tool("c", gone),
    ]
    assert rows_for([tool("a", long), tool("b", long)], [tool("a", "cut"), user(note), tool("b", "short")]) == [
        tool("a", "cut"),
        tool("b", "short"),
    ]
    assert rows_for([tool("a", long), tool("b", long)], [tool("b", "short")]) == [tool("a", gone), tool("b", "short")]


def test_a_hash_names_a_frame_or_an_entry_and_nothing_else() -> None:
    assert ref_of_hash(hash_of_ref("fd5ekipox")) == "fd5ekipox"
    assert ref_of_hash(hash_of_ref("fa0123456789")) == "fa0123456789"
    entry = f"hash={hash_of_ref('3fa85f64aabb')}"
    for words in ('with ref="3fa85f64aabb"', 'with ref "3fa85f64aabb/2"', "with ref 3fa85f64aabb"):
        assert with_hashes(f"stack_recall {words}.") == f"headroom_retrieve {words} {entry}."
    assert with_hashes('<input ref="focus">') == '<input ref="focus">'
    assert [ref_of_hash(each) for each in ("", "0" * 24, "F" * 24, "ff" * 12, "66" * 13)] == [None] * 5
    assert with_hashes('<frame ref="fd5ekipox">stack_recall(ref="fd5ekipox", query="a word in it")') == (
        f'<frame ref="fd5ekipox" hash={hash_of_ref("fd5ekipox")}>headroom_retrieve(hash={hash_of_ref("fd5ekipox")}, '
        'query="a word in it")'
    )
