"""Requests of the user are the top of the tree: each is one task with its own title, and nothing that the model or a
person is told makes one a part of another."""

from __future__ import annotations

import re

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, Stage, as_one_text, bash, does, op, pop, push, recall
from tests.scenarios.sessions import TOOLS, Session, portrait, todo

LEDGER, EXPORT, PLUGINS = "The nightly ledger run warns", "Accounting needs an export", "explain the plugin registry"
THREE_REQUESTS = f"""
    user: {LEDGER} of unbalanced books. Find out why and mend it.
    run ./ledger --nightly
    edit src/ledger.py
    says: The books were read twice.
    user: {EXPORT} of open items as CSV. Write the command.
    edit src/export.py
    run ./export --sample
    says: The command is ./export.
    user: Thanks. Now {PLUGINS} to me, with the classes that take part.
    read src/plugins.py
    says: There are four classes.
"""

ELSEWHERE = re.compile(r"<(earlier-requests|completed-siblings)\b.*?</\1>", re.DOTALL)
"""Where a block tells what stands beside the frame, or beside those above it."""


@pytest.fixture
def session(stage: Stage, provider: ScriptedProvider) -> Session:
    return Session(stage.chat(tools=TOOLS), provider)


def told_by_us(provider: ScriptedProvider, words: str) -> list[str]:
    """Texts of ours on the newest line that hold these words."""
    texts = [str(m["content"]) for m in provider.received[-1].messages if m["role"] in ("user", "tool")]
    return [text for text in texts if words in text and "<stack-context" in text]


@pytest.mark.rows("S0-52", "S0-21", "S2-28", "S3-01")
@pytest.mark.parametrize("form", ["flat", "nested", "minimal"])
def test_the_request_at_work_is_the_goal_of_a_block(stage: Stage, provider: ScriptedProvider, form: str) -> None:
    settings = {"view": "minimal"} if form == "minimal" else {"block_format": form}
    chat = stage.chat(stage.proxy(**settings), tools=TOOLS)
    Session(chat, provider).plays(THREE_REQUESTS)
    provider.will(does(push("Read the registry", "all classes are known")), does(bash("ls")), says("ok"))
    chat.says("Next task: write a benchmark of the registry")
    block = told_by_us(provider, "Read the registry")[-1]

    goal = block[: block.rindex("Read the registry")]
    assert "rite a benchmark of the registry" in goal
    for other in (LEDGER, EXPORT):
        above = ELSEWHERE.sub("", goal)
        assert other not in above, f"{other} is told above the frame"


@pytest.mark.rows("S0-52")
def test_no_trace_tells_a_request_as_part_of_another(session: Session, provider: ScriptedProvider) -> None:
    session.plays(THREE_REQUESTS)
    provider.will(says("ok"))
    session.chat.says("Next task: draw a logo for the site")
    traces = told_by_us(provider, "one from here")  # "gone from here", of a single call "Gone from here"

    assert traces
    for trace in traces:
        assert not any(f" in {title}" in trace for title in (LEDGER, EXPORT, PLUGINS, PLUGINS.capitalize(), "Thanks"))
    assert any(PLUGINS.capitalize() in trace for trace in traces)


@pytest.mark.rows("S0-52")
def test_the_tree_has_the_requests_at_its_top_by_their_tasks(session: Session, provider: ScriptedProvider) -> None:
    session.plays(THREE_REQUESTS)
    at = session.chat.proxy.conversations[0]["id"]
    drawn = session.chat.proxy.page(f"/stack/conversations/{at}/tree")

    assert "Conversation" in drawn.splitlines()[0]
    for title in (LEDGER, EXPORT, PLUGINS.capitalize()):
        assert sum(title in line for line in drawn.splitlines()) == 1, title
    assert "Thanks" not in drawn


@pytest.mark.rows("S0-52")
def test_a_greeting_is_no_task(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(push("Read it")), does(bash("ls")), does(pop("read")), says("ok"))
    chat.says("Hello! Please fix the parser of dates")
    chat.returns("dates.py")

    assert next(iter(chat.proxy.frames())) == "Fix the parser of dates"
    assert "<title>Hello" not in as_one_text(provider.received[1].messages)


@pytest.mark.rows("S0-52")
def test_the_first_words_that_ask_for_something_are_the_task(chat: Conversation, provider: ScriptedProvider) -> None:
    """Not what the client or the user said before."""
    provider.will(says("Hi! How can I help?"), does(push("Read it")), does(bash("ls")), does(pop("read")), says("ok"))
    chat.says("(conversation starts)")
    assert next(iter(chat.proxy.frames())) == "Conversation"
    chat.says("Fix the parser of dates")
    chat.returns("dates.py")

    assert next(iter(chat.proxy.frames())) == "Fix the parser of dates"


@pytest.mark.rows("S0-52")
def test_what_the_first_request_made_stands_below_it_once_there_is_another(
    session: Session, provider: ScriptedProvider
) -> None:
    """Its frame is made when it ends. What a client reads of the tree is the same as if it had been there before."""
    chat, proxy = session.chat, session.chat.proxy
    provider.will(does(todo("[>] Lexer | [ ] Parser")), does(bash("a")), does(todo("[x] Lexer | [x] Parser")))
    provider.will(
        does(push("Read the grammar")), does(bash("b")), does(pop("It has 12 rules.")), says("Both are made.")
    )
    chat.says("Build the formatter.")
    for result in ("ok", session.output("x"), "ok", session.output("y")):
        chat.returns(result)
    session.turn("Translate the onboarding email into French.", "read b", "edit c", closing="Done.")
    conversation = proxy.conversations[0]["id"]
    frames = {f["title"]: f for f in proxy.get(f"/stack/conversations/{conversation}/frames")["frames"]}
    first = frames["Build the formatter."]["sessionID"]

    assert "parentSessionID" not in frames["Conversation"]
    assert frames["Conversation"]["successCriteria"] == ""
    below = {title: frame.get("parentSessionID") for title, frame in frames.items()}
    assert below["Lexer"] == below["Parser"] == below["Read the grammar"] == first
    top = frames["Conversation"]["sessionID"]
    assert below["Build the formatter."] == below["Translate the onboarding email into French."] == top
    assert len(frames) == len(proxy.get(f"/stack/conversations/{conversation}/frames")["frames"]), "a title each"

    detail = proxy.get(f"/stack/frames/{first}")
    assert {frames[title]["sessionID"] for title in ("Lexer", "Parser", "Read the grammar")} == set(detail["children"])
    assert proxy.get(f"/stack/frames/{frames['Lexer']['sessionID']}")["ancestors"] == [first, top]
    drawn = proxy.page(f"/stack/conversations/{conversation}/tree").splitlines()
    depth = {title: line.index(title) for line in drawn for title in ("Lexer", "Build the form") if title in line}
    assert depth["Lexer"] > depth["Build the form"]


@pytest.mark.rows("S0-52")
@pytest.mark.parametrize("view", ["fork", "isolate"])
def test_a_block_has_the_first_request_beside_the_second_only_where_its_words_are_out_of_sight(
    stage: Stage, provider: ScriptedProvider, view: str
) -> None:
    """A fork sees what the user asked and was answered before; what a frame of the first request did is no sibling."""
    session = Session(stage.chat(stage.proxy(child_view=view), tools=TOOLS), provider)
    chat = session.chat
    provider.will(does(todo("[>] Lexer | [ ] Parser")), does(bash("a")), does(todo("[x] Lexer | [x] Parser")))
    provider.will(
        does(push("Read the grammar")), does(bash("b")), does(pop("It has 12 rules.")), says("Both are made.")
    )
    chat.says("Build the formatter.")
    for result in ("ok", session.output("x"), "ok", session.output("y")):
        chat.returns(result)
    provider.will(does(push("Find the words")), does(bash("ls")), says("ok"))
    chat.says("Translate the onboarding email into French.")
    block = told_by_us(provider, "Find the words")[-1]

    assert ("Build the formatter." in block) == (view == "isolate")
    assert ("Both are made." in block) == (view == "isolate")
    assert "Both are made." in as_one_text(provider.received[-1].messages)
    assert "Translate the onboarding email" in block
    assert "Read the grammar" not in block


@pytest.mark.rows("S0-52", "S0-55")
def test_behind_a_request_that_the_model_popped_the_next_message_begins_one(
    session: Session, provider: ScriptedProvider
) -> None:
    """All that followed was told as a part of the popped one, which was made a second time."""
    session.turn("Add retries to the client", "read src/client.py", closing="Retries are in.")
    provider.will(
        does(bash("make")),
        does(pop("It is 10 s.")),
        says("It is 10 s."),
        does(bash("make")),
        says("It is 20 s."),
        does(bash("make")),
        says("There are four classes."),
    )
    for asked in ("Also add a timeout", "no, 20 s", "Explain the parser to me"):
        session.chat.says(asked)
        session.chat.returns("done")

    of_requests = portrait(session.chat.proxy).partition("  request ")[2]
    assert [line.strip() for line in of_requests.splitlines() if "says" not in line] == [
        "completed: Add retries to the client",
        "user: Add retries to the client",
        "read src/client.py",
        "request completed: Add a timeout",
        "run make",
        "stack_frame_pop",
        "request completed: Add a timeout",
        "user: no, 20 s",
        "run make",
        "request in_progress: Explain the parser to me",
        "user: Explain the parser to me",
        "run make",
    ]


@pytest.mark.rows("S0-52", "S0-55")
def test_an_item_of_the_plan_in_the_words_of_the_request_is_the_request(session: Session) -> None:
    """It stood beside the request, or below it, as a second task of the same title."""
    session.plays("""
        user: Please fix the cart.
        todo: [>] Fix the cart | [ ] Write the changelog
        edit src/cart.py
        todo: [x] Fix the cart | [>] Write the changelog
        edit CHANGELOG.md
        todo: [x] Fix the cart | [x] Write the changelog
        says: Both are done.
        user: Next: dark mode for the dashboard
        todo: [>] Dark mode for the dashboard | [ ] Screenshots
        edit theme.css
        todo: [x] Dark mode for the dashboard | [>] Screenshots
        run make shots
        says: It is dark.
    """)

    drawn = portrait(session.chat.proxy, steps=False)
    assert [line.strip() for line in drawn.splitlines()[1:]] == [
        "plan completed: Write the changelog",
        "request completed: Please fix the cart.",
        "request in_progress: Dark mode for the dashboard",
        "plan in_progress: Screenshots",
    ]


@pytest.mark.rows("S0-52", "S0-55")
def test_the_conversation_is_told_by_no_request(session: Session, provider: ScriptedProvider) -> None:
    """Neither to the model, where it lists or names frames, nor to a person; a list of conversations takes the first
    request's task."""
    session.plays(THREE_REQUESTS)
    proxy, chat = session.chat.proxy, session.chat
    conversation = proxy.conversations[0]
    root = proxy.frames()["Conversation"]["sessionID"]
    provider.will(does(op("recall")), does(recall(root)), does(op("context_info")), says("ok"))
    chat.says("Next task: draw a logo for the site")
    results = [str(m["content"]) for m in provider.received[-1].messages if m["role"] == "tool"][-3:]

    assert f"{root} Conversation (in_progress)" in results[0]
    assert f"Frame {root} (Conversation), in_progress" in results[1]
    assert all(result.count(LEDGER) <= 1 for result in results[:1]), "one frame has that title"
    handover = proxy.page(f"/stack/conversations/{conversation['id']}/export?format=handover")
    lines = [line for line in handover.splitlines() if root in line]
    assert lines
    assert not any(LEDGER in line for line in lines)
    assert conversation["title"].startswith(LEDGER)


@pytest.mark.rows("S0-52")
def test_frames_of_one_title_are_told_apart(chat: Conversation, provider: ScriptedProvider) -> None:
    """By the request that they belong to, else by their number; a title of which there is one stays as it is."""
    provider.will(does(push("Read it")), does(bash("ls")), does(pop("read")), does(push("Read it")), does(bash("ls")))
    provider.will(does(pop("read again")), says("Mended."))
    chat.says("Mend the parser of dates.")
    chat.returns("dates.py")
    chat.returns("dates.py")
    provider.will(
        does(push("Read it")), does(bash("ls")), does(pop("read")), does(op("recall")), does(recall("Read it"))
    )
    provider.will(says("ok"))
    chat.says("Next task: draw a logo for the site")
    chat.returns("logo.svg")
    bare, shared = [str(m["content"]) for m in provider.received[-1].messages if m["role"] == "tool"][-2:]
    ids = {
        frame["sessionID"]: frame
        for frame in chat.proxy.get(f"/stack/conversations/{chat.proxy.conversations[0]['id']}/frames")["frames"]
    }

    names = re.findall(r"(f\w+) (Read it[^;]*?) \(completed\)", bare)
    assert sorted(name for _, name in names) == [
        "Read it in Draw a logo for the site",
        "Read it in Mend the parser of dates. (no. 1)",
        "Read it in Mend the parser of dates. (no. 2)",
    ]
    assert {frame for frame, _ in names} <= set(ids)
    assert "Mend the parser of dates. (completed)" in bare
    assert shared.startswith('Error: 3 frames are called "Read it". Give the id of one: ')
    assert all(f"{frame} {name}" in shared for frame, name in names)


@pytest.mark.rows("S0-55")
def test_quotes_in_titles_stand_as_they_were_written(session: Session, provider: ScriptedProvider) -> None:
    session.plays(THREE_REQUESTS.replace(LEDGER, '"x" is no error'))
    chat = session.chat
    provider.will(does(todo('[>] Say \\"late\\"')), does(bash("a")), does(push('Find \\"x\\" first')), does(bash("b")))
    provider.will(does(pop("found")), does(todo('[x] Say \\"late\\"')), says("Done."))
    chat.says("Next task: build the formatter")
    for result in ("ok", session.output("x"), session.output("y"), "ok"):
        chat.returns(result)
    traces = told_by_us(provider, "Your finished work:")
    frames = chat.proxy.frames()

    assert 'Say "late"' in frames
    assert 'Find "x" first' in frames
    assert any('Your finished work: "x" is no error of unbalanced books' in trace for trace in traces)
    assert not any('""' in trace or "\\" in trace for trace in traces)
