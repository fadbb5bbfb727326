"""A tree of frames that has ended, and the next one beside it: the model pops its root, and the user types again (C20,
S1-106). Every scenario ends before the judge of `tests.laws`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from llm_test_provider import Model, ScriptedAnswer, ScriptedProvider, says
from tests.harness import (
    Conversation,
    Json,
    Stage,
    activate,
    as_one_text,
    bash,
    does,
    op,
    plan,
    pop,
    push,
    recall,
    texts,
)
from tests.laws import CLEARED, text_of
from tests.scenarios.sessions import TOOLS, Session, made_by, outputs_in, todo
from tests.scenarios.speaking import beside, meanwhile

BLOCK = re.compile(r'<stack-context session=.*?frame="(\w+)".*?</stack-context>', re.DOTALL)
ENDED = "All is done: a.py rounds."
REQUIRING = {"models": [Model("gpt-x", required=("reasoning_content",))]}


def blocks(messages: Sequence[Json]) -> list[str]:
    """The blocks that stand on a line as words of ours, in order."""
    said = (text_of(m) for m in messages if m["role"] == "user")
    return [found[0] for text in said if (found := BLOCK.search(text))]


def beside_it(block: str) -> list[tuple[str | None, str | None, str | None]]:
    """Title, status and results of what a block lists as finished."""
    frames = ElementTree.fromstring(block).iterfind("completed-siblings/frame")
    return [(f.findtext("title"), f.get("status"), f.findtext("results")) for f in frames]


def newest_block(provider: ScriptedProvider) -> str:
    return blocks(provider.received[-1].messages)[-1]


def ends(chat: Conversation, provider: ScriptedProvider, results: str = ENDED, status: str = "completed") -> None:
    """The user asks for something, and the model pops its root with that."""
    provider.will(does(pop(results, status)), says("Finished."))
    chat.says("make a.py round")


@pytest.mark.rows("S1-106", "S0-21")
def test_the_block_of_a_new_request_does_not_repeat_its_words(chat: Conversation, provider: ScriptedProvider) -> None:
    """They stand directly in front of it; the title and what was done before are what it tells."""
    ends(chat, provider)
    provider.will(says("ok"))
    chat.says("Now b.py\nPlease make all amounts in it round to cents, and test that with negative ones too.")

    block = newest_block(provider)
    assert "negative ones" not in block
    assert "Now b.py" in block
    assert beside_it(block)


@pytest.mark.rows("C20", "S1-106", "S1-36")
def test_behind_an_ended_tree_the_users_words_begin_another_root(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    ends(chat, provider)
    provider.will(says("On it."), says("Sure."))
    chat.says("now write the changelog\nin English")

    frames = chat.proxy.frames()
    assert chat.proxy.statuses() == {
        "make a.py round": "completed",
        "now write the changelog": "in_progress",
    }
    new = frames["now write the changelog"]
    assert new["successCriteria"] == "now write the changelog\nin English"
    assert "parentSessionID" not in new
    state = chat.proxy.get(f"/stack/conversations/{chat.proxy.conversations[0]['id']}/state")
    assert state["rootFrameIDs"] == [frame["sessionID"] for frame in frames.values()]
    assert state["activeFrameID"] == new["sessionID"]
    line = provider.received[-1].messages
    assert texts(line)[-2] == "user: now write the changelog\nin English"
    assert text_of(line[-1]) == newest_block(provider)
    assert f'<current-frame id="{new["sessionID"]}" status="in_progress">' in newest_block(provider)
    assert beside_it(newest_block(provider)) == [("make a.py round", "completed", ENDED)]

    chat.says("and sign it")  # the judge sees that this line begins with the one before
    assert len(blocks(provider.received[-1].messages)) == 1


@pytest.mark.rows("C20")
def test_the_tree_that_is_drawn_has_both_roots(chat: Conversation, provider: ScriptedProvider) -> None:
    ends(chat, provider)
    provider.will(does(op("tree")), says("On it."))
    chat.says("now write the changelog")

    drawn = text_of(provider.received[-1].messages[-1])
    page = chat.proxy.page(f"/stack/conversations/{chat.proxy.conversations[0]['id']}/tree")
    for shown in (drawn, page):
        assert shown.index("now write the changelog") < shown.index("make a.py round")


@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.rows("C20", "S1-162")
def test_a_conversation_opens_once_and_a_further_root_is_a_frame(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    ends(chat, provider)
    provider.will(says("On it."))
    chat.says("now write the changelog")

    told = re.findall(r'"type":"([a-z.]+)".*?"frame":"(\w+)"', chat.proxy.page("/stack/events?follow=false"))
    first, second = (frame["sessionID"] for frame in chat.proxy.frames().values())
    kinds = ("conversation.opened", "frame.created", "frame.completed")
    assert [each for each in told if each[0] in kinds] == [
        ("conversation.opened", first),
        ("frame.completed", first),
        ("frame.created", second),
    ]


@pytest.mark.rows("C20")
def test_a_third_root_lists_the_two_before_it(chat: Conversation, provider: ScriptedProvider) -> None:
    ends(chat, provider)
    provider.will(does(push("Draft")), says("Begun."))
    chat.says("now write the changelog")
    assert beside_it(text_of(provider.received[-1].messages[-1])) == []  # a fork has it in view
    provider.will(does(pop("drafted"), pop("No release is planned.", "failed")), says("I could not."))
    chat.says("finish it")
    provider.will(says("Thanks."))
    chat.says("thanks, all the same")

    assert list(chat.proxy.statuses().values()) == ["completed", "failed", "completed", "in_progress"]
    assert beside_it(newest_block(provider)) == [
        ("now write the changelog", "failed", "No release is planned."),
        ("make a.py round", "completed", ENDED),
    ]


@pytest.mark.rows("C20", "S3-29")
@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_restart_before_or_behind_the_users_words_changes_nothing(
    chat: Conversation, provider: ScriptedProvider, when: str
) -> None:
    ends(chat, provider)
    if when == "before":
        chat.proxy.restart()
    provider.will(says("On it."), does(pop("Written.")), says("Ready."))
    chat.says("now write the changelog")
    if when == "behind":
        chat.proxy.restart()
    before = provider.received[-1].messages
    chat.says("go on")

    assert provider.received[-2].messages[: len(before)] == before
    assert chat.proxy.statuses() == {"make a.py round": "completed", "now write the changelog": "completed"}


def test_asked_again_the_same_root_has_begun_and_is_told_once(chat: Conversation, provider: ScriptedProvider) -> None:
    ends(chat, provider)
    provider.will(says("On it."), says("On it, again."))
    chat.says("now write the changelog")
    first = provider.received[-1].messages
    del chat.history[-1]
    chat.asks()

    assert provider.received[-1].messages == first
    assert list(chat.proxy.statuses().values()) == ["completed", "in_progress"]


def test_each_branch_has_the_root_that_its_own_words_began(chat: Conversation, provider: ScriptedProvider) -> None:
    """Behind the end another message begins another root; from before the end the first one still goes on."""
    ends(chat, provider)
    provider.will(says("On it."), says("Tagged."), says("Which file?"))
    other, earlier = chat.branch(len(chat.history)), chat.branch(0)
    chat.says("now write the changelog")
    threads = [answer.headers["x-stack-thread"] for answer in (other.says("now tag it"),)]
    earlier.history = [*other.history[:1]]
    conversation = chat.proxy.conversations[0]["id"]

    assert list(chat.proxy.frames(conversation, threads[0])) == ["make a.py round", "now tag it"]
    assert list(chat.proxy.frames(conversation, "main")) == ["make a.py round", "now write the changelog"]
    earlier.asks()  # a retry of the very first request: its answer is another one
    assert text_of(provider.received[-1].messages[-1]) == "make a.py round"


def test_a_root_that_began_while_the_proxy_was_off_is_told_later(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    ends(chat, provider)
    provider.will(says("On it."), says("Yes."))
    chat.says("now write the changelog", headers={"x-stack-mode": "off"})
    chat.says("is it there?")

    assert beside_it(newest_block(provider)) == [("make a.py round", "completed", ENDED)]
    assert list(chat.proxy.statuses()) == ["make a.py round", "now write the changelog"]


def test_what_the_ended_tree_planned_is_not_begun_in_the_next_one(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(plan("Ship it")), does(pop(ENDED)), says("Finished."))
    chat.says("make a.py round")
    provider.will(does(activate("Ship it")), does(push("Ship it")), says("Shipping."))
    chat.says("now ship it")

    told = [text_of(m) for m in provider.received[-1].messages if m["role"] == "tool"]
    assert told[-2].startswith("Error: frame ")
    assert told[-2].endswith("which is completed. Push it anew instead.")
    frames = [*chat.proxy.get(f"/stack/conversations/{chat.proxy.conversations[0]['id']}/frames")["frames"]]
    assert [(f["title"], f["status"]) for f in frames] == [
        ("make a.py round", "completed"),
        ("Ship it", "planned"),
        ("now ship it", "in_progress"),
        ("Ship it", "in_progress"),
    ]


@pytest.mark.rows("S1-76")
def test_an_item_of_the_clients_plan_that_stayed_open_is_planned_anew(stage: Stage, provider: ScriptedProvider) -> None:
    """What is done already stays where it was done."""
    chat = stage.chat(tools=TOOLS)
    provider.will(ScriptedAnswer(calls=(todo("[x] Lexer | [ ] Parser"),)), does(pop(ENDED)), says("Enough."))
    chat.says("build the compiler")
    chat.returns("ok")
    provider.will(ScriptedAnswer(calls=(todo("[x] Lexer | [>] Parser"),)), says("Parsing."))
    chat.says("the parser too, please")
    chat.returns("ok")

    frames = chat.proxy.get(f"/stack/conversations/{chat.proxy.conversations[0]['id']}/frames")["frames"]
    titles = {f["sessionID"]: f["title"] for f in frames}
    assert [(f["title"], f["status"], titles.get(f.get("parentSessionID", ""), "")) for f in frames] == [
        ("build the compiler", "completed", ""),
        ("Lexer", "completed", "build the compiler"),
        ("Parser", "planned", "build the compiler"),
        ("the parser too, please", "in_progress", ""),
        ("Parser", "in_progress", "the parser too, please"),
    ]


@pytest.mark.rows("C20", "S4-36")
def test_the_work_of_an_ended_tree_leaves_by_a_fold_and_is_recalled(stage: Stage, provider: ScriptedProvider) -> None:
    """What the user said and what it closed with stay; one trace stands for the rest, whose ref brings it back."""
    chat = stage.chat(tools=TOOLS)
    session = Session(chat, provider)
    steps = [made_by(step) for step in ("read src/limit.py", "edit src/limit.py", "run pytest -q")]
    provider.will(*(ScriptedAnswer(calls=(made,)) for made, _ in steps), does(pop(ENDED)), says("It rounds now."))
    chat.says("make a.py round")
    for _, result in steps:
        chat.returns(session.output(result))
    assert outputs_in(provider.received[-1].messages) == [1, 2, 3]
    root = chat.proxy.frames()["make a.py round"]["sessionID"]
    provider.will(says("On it."))
    chat.says("now write the changelog")

    line = provider.received[-1].messages
    assert outputs_in(line) == []
    assert [said for said in texts(line) if said in ("user: make a.py round", "assistant: It rounds now.")] == [
        "user: make a.py round",
        "assistant: It rounds now.",
    ]
    told = "\n".join(texts(line))
    assert 'Your finished work: "make a.py round", 3 steps. ' in told
    assert f'stack_recall(ref="{root}", query="a word in it") shows what was' in told
    assert ENDED in as_one_text(line)
    assert chat.proxy.frames()["make a.py round"]["folded"]
    provider.will(does(recall(root)), says("I see."))
    chat.says("how did you check it?")
    assert 1 in outputs_in(provider.received[-1].messages)


@pytest.mark.parametrize("provider", [REQUIRING], indirect=True)
@pytest.mark.spoken_in("chat", reason="a model of chat completions that wants its thoughts back with every call")
def test_the_pop_that_ended_a_tree_keeps_its_thoughts_where_the_rest_is_folded(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """The call stays on the line, and without what was thought before it the provider refuses the request."""
    session = Session(stage.chat(tools=TOOLS), provider, thinks="Let me see.")
    steps = [made_by(step) for step in ("read src/limit.py", "run pytest -q")]
    provider.will(*(ScriptedAnswer(calls=(made,), reasoning="Let me see.") for made, _ in steps))
    provider.will(does(pop(ENDED), reasoning="That is all."), says("It rounds now."))
    session.chat.says("make a.py round")
    for _, result in steps:
        session.chat.returns(session.output(result))
    provider.will(says("On it."))

    assert session.chat.says("now write the changelog").status == 200
    line = provider.received[-1].messages
    assert outputs_in(line) == []
    assert [m["reasoning_content"] for m in line if m.get("tool_calls")] == ["That is all."]


def test_a_client_that_clears_old_results_leaves_the_block_where_it_stands(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat()
    provider.will(
        does(bash("ls")),
        does(pop(ENDED)),
        says("Finished. It rounds now as it should, everywhere."),
    )
    provider.will(says("I am on it, and write the changelog right now."), says("Sure."))
    chat.says("make a.py round")
    chat.returns("a.py and many words " * 20)
    chat.says("now write the changelog")
    before = provider.received[-1].messages
    for message in chat.history:
        if message["role"] == "tool":
            message["content"] = CLEARED
    chat.says("go on")

    assert provider.received[-1].messages[: len(before)] == before
    assert len(blocks(provider.received[-1].messages)) == 1


@pytest.mark.rows("C20")
def test_work_of_an_ended_tree_that_is_not_worth_a_fold_stays(chat: Conversation, provider: ScriptedProvider) -> None:
    """The root takes nothing off the line by its end alone."""
    ends(chat, provider)
    before = provider.received[-1].messages
    provider.will(says("On it."))
    chat.says("now write the changelog")

    assert provider.received[-1].messages[: len(before)] == before


def test_a_request_for_a_summary_begins_no_root(chat: Conversation, provider: ScriptedProvider) -> None:
    """A client that compacts speaks for itself: the tree goes on until the user has something to say."""
    ends(chat, provider)
    provider.will(says("We rounded."))
    chat.says("Summarize this conversation so far, so that another agent can go on with it.")

    assert list(chat.proxy.statuses()) == ["make a.py round"]


def test_behind_a_compacted_history_the_newest_words_begin_it(chat: Conversation, provider: ScriptedProvider) -> None:
    chat.headers = {"x-session-id": "ses_1", "x-session-affinity": "ses_1"}
    ends(chat, provider)
    chat.history = [
        {"role": "user", "content": "What did we do so far?"},
        {"role": "assistant", "content": "We made a.py round."},
    ]
    provider.will(says("On it."))
    chat.says("now write the changelog")

    assert chat.proxy.statuses() == {"make a.py round": "completed", "now write the changelog": "in_progress"}
    assert [beside_it(block) for block in blocks(provider.received[-1].messages)] == [
        [("make a.py round", "completed", ENDED)]
    ]


@pytest.mark.rows("S4-41")
def test_what_a_person_says_from_beside_the_client_begins_a_root_too(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """Said while the root is popped, told between two rounds; the next request has the block."""
    provider.will(says("Begun."))
    chat.says("make a.py round")
    person = beside(chat)
    meanwhile(provider, 2, lambda: person.says("write the changelog"), does(pop(ENDED)))
    provider.will(says("Both."), says("Sure."))
    chat.says("go on")

    assert chat.proxy.statuses() == {"make a.py round": "completed", "write the changelog": "in_progress"}
    chat.says("sign it")
    assert beside_it(newest_block(provider)) == [("make a.py round", "completed", ENDED)]
    assert len(chat.proxy.frames()) == 2


@pytest.mark.rows("S1-172")
def test_a_root_that_is_popped_from_inside_a_child_is_told_with_its_results(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """The call that ends both leaves with the child, whose opening call tells of it."""
    provider.will(does(push("Read the parser")), does(bash("cat parser.py")))
    chat.says("Explain the parser to me, please.")
    root = chat.proxy.frames()["Explain the parser to me, please."]["sessionID"]
    provider.will(does(pop("The parser is explained in NOTES.", frame=root)), says("Done."))
    chat.returns("def parse(): ...")

    told = str(provider.received[-1].messages)
    assert f"Root frame {root} is completed" in told
    assert "The parser is explained in NOTES." in told
    assert chat.proxy.statuses() == {"Explain the parser to me, please.": "completed", "Read the parser": "blocked"}
