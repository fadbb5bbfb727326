"""What does not fit: told in every provider's words, learned from, cut, cleared, trimmed, and in the end shortened."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from llm_test_provider import FixedReply, Model, ScriptedProvider, When, only_done, overflow, says, throttled
from llm_test_provider import ScriptedAnswer as Scripted
from llm_test_provider.answer import EVENT_STREAM_TYPE, ErrorEvent
from llm_test_provider.error_texts import OVERFLOWS, THROTTLES
from proxy.core.compaction.truncate_outputs import CLEARED_PREFIX
from tests.client_dialects import MESSAGES, RESPONSES
from tests.harness import Answer, Conversation, Stage, as_one_text, bash, does, op, pop, push, recall

PLAIN = pytest.mark.asked("plain")
STREAMED = pytest.mark.asked("streamed")
SILENT = pytest.mark.spoken_in("chat", reason="a stream of nothing but its terminator is what gateways for it send")
WINDOW = 40_000
SMALL = {"models": [Model("gpt-x", window=WINDOW, refusal="openai")]}
"""A provider that refuses what is longer, of a model that no table knows, and says how long it may be."""


UNFOLDED = {"infer_requests": False, "mirror_plans": False, "frame_max_tokens": 10_000_000}
"""Nothing else shall change the line."""


def words(tokens: int, about: str) -> str:
    return f"{about} " + "word " * tokens


def worked(chat: Conversation, provider: ScriptedProvider, *results: str) -> None:
    """A task, and so many steps of a command and its result; the answer to the last one is for the caller."""
    provider.will(*(does(bash(f"step {n}")) for n in range(len(results))))
    chat.says("do it all")
    for result in results[:-1]:
        chat.returns(result)


# ------------------------------------------------------------------------------------------------------------ refusals
@pytest.mark.rows("S4-24")
@PLAIN
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 6], ids=["each", "sixth"])
def test_every_wording_of_overflow_is_trimmed_once_and_passes(
    stage: Stage, provider: ScriptedProvider, step: int
) -> None:
    """S9, S4-24: 35 wordings, each in its own envelope and status, over HTTP: the client sees its answer, the provider
    two requests, the second shorter."""
    proxy = stage.proxy(**UNFOLDED)
    for wording in OVERFLOWS[::step]:
        chat = stage.chat(proxy, model=f"house-{wording.name}")
        results = [words(6_000, f"{wording.name} {n}") for n in range(4)]
        worked(chat, provider, *results)
        before = len(provider.received)
        provider.will(overflow(wording.name), says("It fits now."))
        stage.excuse()

        answer = chat.returns(results[-1])

        assert (answer.status, answer.text) == (200, "It fits now."), wording.name
        refused, passed = provider.received[before:]
        assert len(passed.raw) < 0.7 * len(refused.raw), wording.name


@PLAIN
def test_the_users_words_and_instructions_stay_when_the_line_is_trimmed(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Also those that the result of a pushed frame quotes, where that leaves."""
    chat = stage.chat(stage.proxy(**UNFOLDED), model="house-short")
    provider.will(does(push("Auth")), says("How?"), says("I use JWT."), does(pop("The login works.")))
    provider.will(does(bash("ls")), says("Two files."))
    chat.says("add a login")
    chat.says("use JWT, please")
    chat.says("go on")
    (made,) = chat.history[-1]["tool_calls"]
    chat.history.append({"role": "tool", "tool_call_id": made["id"], "content": "a.py b.py"})
    role = "system" if stage.tongue is MESSAGES else "developer"
    chat.history.append({"role": role, "content": "Never touch the network."})
    chat.asks()
    results = [words(6_000, f"result {n}") for n in range(4)]
    worked(chat, provider, *results)
    provider.will(overflow(OVERFLOWS[0].name), says("It fits now."))
    stage.excuse()
    chat.returns(results[-1])

    line = as_one_text(provider.received[-1].messages)
    assert "a.py b.py" not in line
    assert "frame-results" not in line
    assert "use JWT, please" in line
    assert "Never touch the network." in line


@PLAIN
def test_no_wording_of_throttling_is_taken_for_overflow(stage: Stage, provider: ScriptedProvider) -> None:
    """S9: five look-alikes pass as they came, asked once, and nothing leaves the line for them."""
    proxy = stage.proxy(**UNFOLDED)
    for wording in THROTTLES:
        chat = stage.chat(proxy, model=f"house-{wording.name}")
        results = [words(6_000, f"{wording.name} {n}") for n in range(4)]
        worked(chat, provider, *results)
        before = len(provider.received)
        provider.will(throttled(wording.name))

        answer = chat.returns(results[-1])

        assert answer.status == wording.status, wording.name
        if stage.tongue is MESSAGES and wording.shape == "openai":  # told in the shape of the API that is asked
            assert answer.json["error"]["message"] == wording.text(0, 0), wording.name
        else:
            assert answer.raw == wording.body(0, 0), wording.name
        assert len(provider.received) == before + 1
        provider.will(says("Later."))
        assert chat.asks().text == "Later."
        assert len(provider.received[-1].messages) == len(provider.received[-2].messages)


@SILENT
@STREAMED
@pytest.mark.parametrize("comment", [b"", b": PROCESSING\n\n"], ids=["at once", "behind a comment"])
def test_a_stream_that_ends_without_a_word_is_taken_for_overflow_where_the_line_is_long(
    stage: Stage, provider: ScriptedProvider, comment: bytes
) -> None:
    """S9, the silent variant: no word of it has left for the client, so it is asked again, once."""
    chat = stage.chat(stage.proxy(**UNFOLDED))
    results = [words(6_000, f"result {n}") for n in range(4)]
    worked(chat, provider, *results)
    silence = FixedReply(200, comment + b"data: [DONE]\n\n", (EVENT_STREAM_TYPE,))
    provider.will(only_done().but(instead=silence), says("It fits now."))
    stage.excuse()

    answer = chat.returns(results[-1])

    assert (answer.text, answer.finishes, answer.raw.count(b"[DONE]")) == ("It fits now.", ["stop"], 1)
    assert answer.events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert len(provider.received[-1].messages) < len(provider.received[-2].messages)
    provider.will(says("ok"))
    assert chat.says("go on").text == "ok"


@SILENT
@STREAMED
def test_two_silent_streams_pass_the_second_one(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(**UNFOLDED))
    results = [words(6_000, f"result {n}") for n in range(4)]
    worked(chat, provider, *results)
    provider.will(only_done(), only_done())
    stage.excuse()

    answer = chat.returns(results[-1])

    assert (answer.status, answer.raw) == (200, b"data: [DONE]\n\n")
    assert len(provider.received) == 6


@SILENT
@STREAMED
def test_a_silent_stream_to_a_short_line_passes_as_it_came(stage: Stage, provider: ScriptedProvider) -> None:
    """Nothing is trimmed for a silence that has another reason."""
    chat = stage.chat(stage.proxy(**UNFOLDED))
    results = [words(300, f"result {n}") for n in range(4)]
    worked(chat, provider, *results)
    provider.will(only_done())

    assert chat.returns(results[-1]).raw == b"data: [DONE]\n\n"
    assert len(provider.received) == 5


IN_ONE = {"message": "Your input exceeds the context window of this model.", "code": "context_length_exceeded"}
HASTE = {"message": "Rate limit reached for tokens per min. Please try again in 8s.", "code": "rate_limit_exceeded"}


def error_in(error: dict[str, str], behind: int) -> Scripted:
    """An answer that is an error behind so many events that only begin it."""
    return says("unreached", error=ErrorEvent(error, behind, with_choices=behind == 1, as_failed=behind > 1))


@pytest.mark.rows("S4-24")
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_an_overflow_told_inside_an_answer_is_trimmed_once_and_passes(
    stage: Stage, provider: ScriptedProvider, behind: int
) -> None:
    """S9: 200, and then an error that says it: so OpenAI streams it, and gateways tell it in all three APIs."""
    if behind > 1 and stage.tongue is not RESPONSES:
        pytest.skip("an answer begins with two events in one API alone")
    chat = stage.chat(stage.proxy(**UNFOLDED))
    results = [words(6_000, f"result {n}") for n in range(4)]
    worked(chat, provider, *results)
    provider.will(error_in(IN_ONE, behind), does(op("status")), says("It fits now."), says("ok"))
    stage.excuse()

    answer = chat.returns(results[-1])

    assert (answer.text, answer.ended) == ("It fits now.", True)
    refused, passed = provider.received[-3:-1]
    assert len(passed.raw) < 0.7 * len(refused.raw)
    if stage.tongue is RESPONSES and answer.streamed:
        assert [e["sequence_number"] for e in answer.events] == list(range(len(answer.events)))
    assert chat.says("go on").text == "ok"


@STREAMED
@pytest.mark.parametrize("behind", [0, 1])
def test_another_error_inside_an_answer_passes_as_it_came(
    stage: Stage, provider: ScriptedProvider, behind: int
) -> None:
    """Nothing is trimmed for haste; nor for an overflow again and again."""
    chat = stage.chat(stage.proxy(**UNFOLDED))
    results = [words(6_000, f"result {n}") for n in range(4)]
    worked(chat, provider, *results)
    provider.will(error_in(HASTE, behind), error_in(IN_ONE, behind), error_in(IN_ONE, behind))

    assert "Rate limit reached" in chat.returns(results[-1]).raw.decode()
    assert len(provider.received) == 5
    stage.excuse()
    assert "exceeds the context window" in chat.tries().raw.decode()
    assert len(provider.received) == 7


# ------------------------------------------------------------------------------------------------------------- learned
@pytest.mark.one_process("each process learns for itself what a provider refuses")
@pytest.mark.rows("S4-20", "S4-21", "S4-05")
@PLAIN
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
def test_a_limit_that_a_refusal_named_is_kept_from_then_on(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-20, S4-21: the next line is checked before it leaves; another process has to learn for itself."""
    proxy = stage.proxy(**UNFOLDED)
    chat = stage.chat(proxy)
    worked(chat, provider, *(words(9_000, f"result {n}") for n in range(5)))
    provider.will(*(does(bash(f"more {n}")) for n in range(6)), says("done"))
    for n in range(5):
        stage.excuse()
        assert chat.returns(words(9_000, f"more {n}")).status == 200

    statuses = [r.status for r in provider.received]
    assert statuses.count(400) == 1
    assert max(len(r.raw) for r in provider.received[statuses.index(400) + 1 :]) < 5 * WINDOW

    proxy.restart()
    for n in range(2):
        stage.excuse()
        assert chat.returns(words(9_000, f"after {n}")).status == 200


@pytest.mark.proves("S4-20")
@pytest.mark.rows("S4-20")
@PLAIN
def test_what_our_own_texts_take_of_the_reserve_is_no_reason_to_stand_aside(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """S4-20, DESIGN 11: the client's body leaves room for the answer, the line a little less; it fits all the same."""
    chat = stage.chat(stage.proxy(**UNFOLDED), model="claude-haiku-4-5")
    provider.will(says("one"))

    answer = chat.says("word " * (200_000 - 32_000 - 300))

    assert (answer.status, answer.stack_status) == (200, "full")


# ----------------------------------------------------------------------------------------------------------------- cut
@pytest.mark.rows("S4-64")
def test_an_output_over_the_cap_is_cut_the_same_way_for_ever(stage: Stage, provider: ScriptedProvider) -> None:
    """L4, S4-64: beginning and end with a ref between them; on disk it is whole; the same bytes in every later request,
    after a restart too."""
    proxy = stage.proxy(**UNFOLDED, output_cap=2_000)
    chat = stage.chat(proxy)
    whole = "BEGINNING " + "".join(f"row {n} of it\n" for n in range(4_000)) + "the END"
    worked(chat, provider, "short", whole)
    provider.will(does(bash("again")))
    chat.returns(whole)
    shown = provider.received[-1].messages[-1]
    assert shown["content"].startswith("BEGINNING")
    assert shown["content"].endswith("the END")
    assert len(shown["content"]) < len(whole) / 4
    ref = shown["content"].partition('ref="')[2].partition('"')[0]
    proxy.restart()
    provider.will(does(recall(ref, query="row 2000 of")), says("read"))
    chat.returns("short too")
    assert "row 2000 of it" in provider.received[-1].messages[-1]["content"]
    assert shown in provider.received[-1].messages


@pytest.mark.rows("S4-64")
@PLAIN
@pytest.mark.parametrize(("rows", "status"), [(4_000, "full"), (420, "asleep")], ids=["far too long", "hardly"])
def test_a_thread_wakes_for_the_cut_of_an_output_where_that_pays(
    stage: Stage, provider: ScriptedProvider, rows: int, status: str
) -> None:
    """Inside its first tool loop too, where there is nothing to fold yet."""
    chat = stage.chat(stage.proxy(**UNFOLDED, output_cap=2_000, wake_at_tokens=2_000))
    whole = "".join(f"row {n} of it\n" for n in range(rows))
    worked(chat, provider, whole)
    provider.will(says("read"))

    answer = chat.returns(whole)

    assert answer.stack_status.partition(";")[0] == status
    told = next(m["content"] for m in provider.received[-1].messages if m["role"] == "tool")
    assert (told == whole) == (status == "asleep")
    assert ("stack_recall" in told) == (status == "full")
    decided = chat.proxy.get("/stack/requests?limit=1")["requests"][0]["receipt"]["decisions"]
    assert [(d["kind"], d["done"], d["removed"] > 0) for d in decided] == [("wake", status == "full", True)]


def test_a_long_message_of_the_user_is_never_cut(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(**UNFOLDED, output_cap=500))
    provider.will(says("read"))
    chat.says(words(3_000, "everything"))
    assert words(3_000, "everything").strip() in as_one_text(provider.received[0].messages)


# ------------------------------------------------------------------------------------------------------------- cleared
@pytest.mark.proves("S4-30")
@pytest.mark.rows("S4-30", "S4-31", "S4-32", "S4-33", "S4-34", "S4-09")
@PLAIN
@pytest.mark.parametrize("provider", [{"models": [Model("gpt-x", window=90_000)]}], indirect=True)
def test_old_outputs_are_cleared_before_a_group_leaves(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-30 to S4-34: a line over its window keeps every call; the oldest results become breadcrumbs, which recall
    follows, and stay what they are."""
    proxy = stage.proxy(**UNFOLDED)
    chat = stage.chat(proxy)
    worked(chat, provider, *(words(15_000, f"result {n} of src/part_{n}.py") for n in range(6)))
    provider.will(does(bash("one more")))
    stage.excuse()

    answer = chat.returns(words(15_000, "result 5 of src/part_5.py"))

    assert (answer.status, answer.finishes, answer.stack_status) == (200, ["tool_calls"], "full")
    line = provider.received[-1].messages
    assert sum(len(m.get("tool_calls") or ()) for m in line) == 6
    results = [m["content"] for m in line if m["role"] == "tool"]
    cleared = [r for r in results if r.startswith(CLEARED_PREFIX)]
    assert cleared == results[: len(cleared)]
    assert 2 <= len(cleared) <= 4
    assert "src/part_0.py" in cleared[0]
    ref = cleared[0].rpartition('ref="')[2].partition('"')[0]
    provider.will(does(recall(ref)), says("read"))
    chat.returns("one more")
    assert "result 0 of src/part_0.py word" in provider.received[-1].messages[-1]["content"]
    assert [m["content"] for m in provider.received[-1].messages if m["role"] == "tool"][: len(cleared)] == cleared


# ----------------------------------------------------------------------------------------------------------- stateless
@pytest.mark.one_process("each process learns for itself what a provider refuses")
@PLAIN
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
@pytest.mark.parametrize("how", ["side", "off"])
def test_a_history_that_outgrew_the_window_is_shortened_never_refused(
    stage: Stage, provider: ScriptedProvider, how: str
) -> None:
    """DESIGN 8, 11: the client saw how short the line is and never compacted; its own history is three windows long.
    First the provider refuses it, then it is known."""
    chat = stage.chat(stage.proxy(**UNFOLDED, output_cap=1_000))
    worked(chat, provider, *(words(6_000, f"result {n}") for n in range(20)))
    provider.will(says("All done."))
    assert chat.returns(words(6_000, "result 19")).stack_status == "full"
    for asked in range(2):
        before = len(provider.received)
        provider.will(says("In short: done."))
        chat.history.append({"role": "user", "content": f"Summarise our work, {asked}."})
        if how == "side":
            chat.system, chat.tools = "You write summaries.", ()
            answer = chat.tries()
        else:
            answer = chat.tries(headers={"x-stack-mode": "off"})
        chat.history.pop()

        assert (answer.status, answer.text) == (200, "In short: done.")
        assert answer.stack_status == "stateless; reason=window"
        assert [r.status for r in provider.received[before:]] == ([400, 200] if asked == 0 else [200])
        line = as_one_text(provider.received[-1].messages)
        assert all(
            said in line for said in ("do it all", f"Summarise our work, {asked}.", "result 19", "left out here")
        )
        assert "result 0 " not in line


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
@PLAIN
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
def test_without_a_store_a_refusal_for_length_is_asked_again_shorter(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 11: the ladder's second step, where the store is locked by another process."""
    proxy = stage.proxy(**UNFOLDED, output_cap=1_000)
    chat = stage.chat(proxy)
    worked(chat, provider, *(words(15_000, f"result {n}") for n in range(5)))
    provider.will(says("one"))
    chat.returns(words(15_000, "result 4"))
    provider.when(When(user="locked"), says("two"), loop=True)
    path = proxy.config.store_path
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as intruder:
        intruder.execute("BEGIN EXCLUSIVE")
        chat.history.append({"role": "user", "content": "while it is locked"})
        answers = list(until_stateless(chat))
        intruder.execute("ROLLBACK")

    assert {answer.status for answer in answers} == {200}
    assert answers[-1].stack_status == "stateless; reason=store_locked"
    assert answers[-1].text == "two"


def until_stateless(chat: Conversation) -> Iterator[Answer]:
    """Answers until the proxy has noticed that its store takes nothing; as many as come in ten seconds at most."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        yield (answer := chat.tries())
        if answer.stack_status.startswith("stateless"):
            return


@PLAIN
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
def test_an_asleep_thread_is_refused_as_ever(stage: Stage, provider: ScriptedProvider) -> None:
    """L5: its client sees its own usage, and compacts by itself."""
    chat = stage.chat(stage.proxy(**UNFOLDED, wake_at_tokens=1_000_000))
    worked(chat, provider, *(words(15_000, f"result {n}") for n in range(3)))

    assert chat.returns(words(15_000, "result 2")).status == 400
    assert provider.received[-1].raw == stage.notes[-1].body


def test_a_hidden_round_is_checked_by_what_was_learned(stage: Stage, provider: ScriptedProvider) -> None:
    """A refusal of a hidden round teaches too, and what follows it fits."""
    chat = stage.chat(stage.proxy(**UNFOLDED))
    worked(chat, provider, *(words(6_000, f"result {n}") for n in range(3)))
    provider.will(does(op("status")), overflow(used=21_000, window=20_000), says("one"), says("two"))
    stage.excuse()
    assert chat.returns(words(6_000, "result 2")).text == "one"
    stage.excuse()
    assert chat.says(words(4_000, "and this")).text == "two"
    assert len(provider.received[-1].raw) < 20_000 * 5


# ------------------------------------------------------------------------------------------------------ little windows
LITTLE = {"models": [Model("gpt-x", window=6_000)]}
KNOWN = {**UNFOLDED, "tariffs__own__names": "gpt-x", "tariffs__own__window": 6_000}


@pytest.mark.parametrize("provider", [LITTLE], indirect=True)
def test_what_the_client_sent_last_stays_while_the_model_recalls(stage: Stage, provider: ScriptedProvider) -> None:
    """L4: what is recalled pushes out what is older, never the results that the model was just given."""
    chat = stage.chat(stage.proxy(**KNOWN))
    worked(chat, provider, *(words(900, f"result {n}") for n in range(4)))
    assert "result 0" in as_one_text(provider.received[-1].messages)
    provider.will(does(recall("do it all")), does(recall("do it all", page="2")), says("done"))

    assert chat.returns(words(900, "result 3")).text == "done"
    results = [m["content"] for m in provider.received[-1].messages if m["role"] == "tool"]
    assert words(900, "result 3") in results
    assert words(900, "result 0") not in results
    assert {received.status for received in provider.received} == {200}


@pytest.mark.rows("S0-09")
@pytest.mark.parametrize("provider", [{"models": [Model("gpt-x", window=4_000)]}], indirect=True)
def test_a_page_of_recall_is_as_small_as_the_window_asks_for(stage: Stage, provider: ScriptedProvider) -> None:
    """S0-09: of a page as long as half of the window no turn could ever recall one."""
    chat = stage.chat(stage.proxy(**{**KNOWN, "tariffs__own__window": 4_000}))
    worked(chat, provider, *(words(800, f"result {n}") for n in range(4)))
    provider.will(says("so far"), does(recall("do it all")), says("done"))
    chat.returns(words(800, "result 3"))

    assert chat.says("what was in the first?").text == "done"
    recalled = provider.received[-1].messages[-1]["content"]
    assert "result 0 word" in recalled
    assert len(recalled.split()) < 1_100


@pytest.mark.parametrize("provider", [LITTLE], indirect=True)
def test_nothing_is_recalled_that_the_window_has_no_room_for(stage: Stage, provider: ScriptedProvider) -> None:
    """The result just given fills what is left, and may not leave: the model is told, not the client refused."""
    chat = stage.chat(stage.proxy(**KNOWN))
    worked(chat, provider, words(900, "result 0"), words(1_500, "one") + words(1_500, "two"))
    provider.will(does(recall("do it all")), says("done"))

    assert chat.returns(words(2_900, "result 1")).text == "done"
    assert "no room" in provider.received[-1].messages[-1]["content"]


@PLAIN
@pytest.mark.parametrize("provider", [{"models": [Model("gpt-x", window=6_000, refusal="openai")]}], indirect=True)
def test_where_nothing_more_can_leave_the_line_the_client_s_own_request_is_asked(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """DESIGN 11: results that stand beside the call that opened a frame stay on its line; the client's history can be
    shortened all the same."""
    chat = stage.chat(stage.proxy(**UNFOLDED))
    provider.will(
        *(does(push(f"Part {n}"), bash(f"step {n}")) for n in range(3)),
        does(bash("more")),
        says("Here."),
    )
    chat.says("do it all")
    for n in range(2):
        chat.returns(words(1_700, f"result {n}"))

    whole = chat.returns(words(1_700, "result 2"))
    assert (whole.status, whole.stack_status) == (200, "bypass; reason=window")
    assert provider.received[-1].raw == stage.notes[-1].body

    shortened = chat.returns(words(1_700, "result 3"))
    assert (shortened.status, shortened.text) == (200, "Here.")
    assert shortened.stack_status == "stateless; reason=window"
    told = as_one_text(provider.received[-1].messages)
    assert ("do it all" in told, "result 0" in told, "result 3" in told) == (True, False, True)


def test_what_is_refused_far_from_its_window_is_told_to_the_client(stage: Stage, provider: ScriptedProvider) -> None:
    """Nothing of ours made it too long: the agent hears what it would hear without us, at once."""
    chat = stage.chat(stage.proxy(**{**KNOWN, "tariffs__own__window": 200_000}))
    provider.will(says("one"), overflow(), says("two"))
    assert chat.says("go").stack_status == "full"
    stage.excuse()

    refused = chat.says("go on")
    assert (refused.status, [received.status for received in provider.received]) == (400, [200, 400])
