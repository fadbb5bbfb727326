"""Which conversation is this? Every way a client gives its history back, by values."""

import pytest

from proxy.core.ledger.ledger import Conversation, Entry, EntryKind, Ledger, Thread, without_thinking
from proxy.core.ledger.messages import Call, Message, Request
from proxy.core.matching import lookup_keys as anchors
from proxy.core.matching import match_history as matching
from proxy.core.matching import rewritten_history as aligning
from proxy.core.matching import walk_history as walking
from proxy.core.matching.match_history import RequestRole
from proxy.core.matching.match_result import Match, MatchKind
from tests.core.matching.book import ANSWER, ASK, CALLED, MORE, READ, RESULT, Book, compacted_after, message, request


@pytest.mark.rows("X-03")
def test_a_history_we_produced_continues(book: Book) -> None:
    """X-03: only the new tail is new."""
    found = matching.match(book.ledger, request(ASK, CALLED, RESULT, ANSWER, MORE))
    assert (found.kind, found.depth) == (MatchKind.CONTINUED, 4)


LONG = tuple(
    message("assistant" if at % 2 else "user", f"{at} is said here") for at in range(2 * walking.MIN_MESSAGES_TO_REUSE)
)
GOES_BACK = LONG[: walking.MIN_MESSAGES_TO_REUSE + 1]
EDITED = (*LONG[:5], message("assistant", "said otherwise"), *LONG[6:])


@pytest.mark.parametrize("asked", [LONG, (*LONG, ASK), GOES_BACK, EDITED], ids=["again", "on", "back", "edited"])
@pytest.mark.parametrize("twin", [None, 3], ids=["alone", "beside a twin"])
def test_a_long_history_is_found_where_it_stands_whatever_was_found_before(
    asked: tuple[Message, ...], twin: int | None
) -> None:
    """What was walked last says nothing by itself: every message is held against what is known now."""
    book = Book()
    for at in range(0, len(LONG), 2):
        book.answer(book.arrive(request(*LONG[: at + 1])), LONG[at + 1])
    before = walking.walk(book.ledger, LONG)
    if twin is not None:  # the same words, answered to the same request again: the newest one counts where work goes on
        book.answer(before[twin - 1].id, LONG[twin])
        newest = book.ledger.turns_by_parent[before[twin - 1].id][-1]
        book.ledger.add_entry(Entry("e" * 32, newest, book.ledger.next_seq, EntryKind.MESSAGE, "main", LONG[twin + 1]))
    found = walking.walk(book.ledger, asked)
    book.ledger.last_walked_path = ()
    assert found == walking.walk(book.ledger, asked)
    assert len(before) == len(LONG)
    assert len(found) == next((at for at, (a, b) in enumerate(zip(asked, LONG, strict=False)) if a != b), len(found))


@pytest.mark.parametrize(
    "echo",
    [
        message("assistant", "", (Call("call_1", "read", '{ "path" : "a.py" }'),)),
        message("assistant", "", (Call("call_1", "read", '{"path":"a.py","limit":100}'),)),
    ],
    ids=["re-serialised", "defaults added"],
)
def test_a_turn_is_recognised_however_its_arguments_are_spelled(book: Book, echo: Message) -> None:
    found = matching.match(book.ledger, request(ASK, echo, RESULT, ANSWER, MORE))
    assert found.depth == 4


def test_a_turn_with_calls_is_recognised_without_its_text() -> None:
    """crewai drops the text of a turn that has calls."""
    book = Book()
    book.answer(book.arrive(request(ASK), Match(MatchKind.NEW)), message("assistant", "I will read it.", (READ,)))
    assert matching.match(book.ledger, request(ASK, CALLED, RESULT)).depth == 2


def test_other_arguments_are_another_call(book: Book) -> None:
    other = message("assistant", "", (Call("call_1", "read", '{"path":"b.py"}'),))
    assert matching.match(book.ledger, request(ASK, other, RESULT)).depth < 2


def test_rounds_of_one_turn_come_back_as_one_message() -> None:
    """What the client saw of two rounds is joined by a blank line."""
    book = Book()
    node = book.arrive(request(ASK), Match(MatchKind.NEW))
    pushed = message("assistant", "Let me see.", (Call("p", "stack_frame_push", "{}"),))
    book.answer(node, pushed, message("assistant", "It is done."))
    seen = message("assistant", "Let me see.\n\nIt is done.")
    assert matching.match(book.ledger, request(ASK, seen, MORE)).depth == 2


THOUGHT_ALOUD = "<think>It asks for a file.</think>\n\nI read it.\n\n<think>And now?</think>\nIt greets."


@pytest.mark.parametrize(
    ("echo", "is_known"),
    [
        (THOUGHT_ALOUD, True),
        ("I read it.\n\n\nIt greets.", True),
        ("I read it.\n\nIt greets.", True),
        ("<think>\nIt asks for a file.\n</think>\n\nI read it.\n\nIt greets.", True),
        ("<think>It asks for a file.</think>", False),
        ("I read it. It says nothing.", False),
    ],
)
@pytest.mark.parametrize("calls", [(), (READ,)], ids=["words", "words and a call"])
def test_what_was_thought_aloud_does_not_count(echo: str, calls: tuple[Call, ...], *, is_known: bool) -> None:
    book = Book()
    book.answer(book.arrive(request(ASK), Match(MatchKind.NEW)), message("assistant", THOUGHT_ALOUD, calls))
    assert (matching.match(book.ledger, request(ASK, message("assistant", echo, calls))).depth == 2) is is_known


def test_thoughts_that_only_end_are_thoughts_too() -> None:
    """Where the template of a model opens them, the model only closes them."""
    assert without_thinking("It asks for a file.</think>I read it.") == "I read it."
    assert without_thinking("if a < b: </thinking") == "if a < b: </thinking"


def test_a_partial_answer_that_the_client_kept_is_the_turn() -> None:
    book = Book()
    node = book.arrive(request(ASK), Match(MatchKind.NEW))
    turn = book.answer(node, message("assistant", "It prints a gree"), complete=False)
    found = matching.match(book.ledger, request(ASK, message("assistant", "It prints"), MORE))
    assert [e.id for e in found.path] == [node, turn]


def test_a_whole_answer_is_not_recognised_by_its_beginning(book: Book) -> None:
    found = matching.match(book.ledger, request(ASK, CALLED, RESULT, message("assistant", "It prints"), MORE))
    assert found.depth == 3


def test_the_same_words_twice_are_two_messages(book: Book) -> None:
    node = book.arrive(request(ASK, CALLED, RESULT, ANSWER, ASK))
    assert node != book.ledger.path(node)[0].id


@pytest.mark.rows("X-05")
def test_another_continuation_is_a_branch(book: Book) -> None:
    """X-05: the old tail stays."""
    node = book.arrive(request(ASK, CALLED, RESULT, ANSWER, MORE))
    book.answer(node, message("assistant", "Nothing more to say about it, really."))
    edited = matching.match(book.ledger, request(ASK, CALLED, RESULT, ANSWER, message("user", "no, something else")))
    assert (edited.kind, edited.depth) == (MatchKind.BRANCHED, 4)
    assert node in book.ledger.entries


EXAMPLE = message("assistant", "To read a file, call the tool that reads files.")


@pytest.mark.parametrize(
    ("asked", "how"),
    [
        (request(ASK, EXAMPLE, message("user", "something else")), MatchKind.NEW),
        (request(ASK, EXAMPLE, MORE), MatchKind.NEW),
        (request(ASK, EXAMPLE, MORE, ANSWER, MORE), MatchKind.RETRIED),
        (request(ASK, EXAMPLE, message("user", "and now, edited?"), ANSWER, MORE), MatchKind.ALIGNED),
        (request(ASK, EXAMPLE, MORE, ANSWER, message("user", "no, something else")), MatchKind.BRANCHED),
    ],
    ids=["another session", "the same words again", "a retry", "rewritten", "a branch"],
)
def test_examples_that_every_session_begins_with_are_no_history(asked: Request, how: MatchKind) -> None:
    book = Book()
    book.answer(book.arrive(request(ASK, EXAMPLE, MORE), Match(MatchKind.NEW)), ANSWER)
    book.answer(book.arrive(request(ASK, EXAMPLE, MORE, ANSWER, MORE)), message("assistant", "It is the same."))
    assert matching.match(book.ledger, asked).kind is how


def test_a_history_with_calls_that_somebody_lived_through_may_branch_anywhere() -> None:
    book = Book()
    book.arrive(request(ASK, CALLED, RESULT, MORE), Match(MatchKind.NEW))
    assert matching.match(book.ledger, request(ASK, CALLED, RESULT, ASK)).kind is MatchKind.BRANCHED


def test_where_two_answers_look_alike_the_newest_wins() -> None:
    book = Book()
    node = book.arrive(request(ASK), Match(MatchKind.NEW))
    book.answer(node, ANSWER)
    newest = book.answer(node, ANSWER)
    assert matching.match(book.ledger, request(ASK, ANSWER, MORE)).path[-1].id == newest


def test_a_changed_first_message_is_aligned_on_the_newest_turns(book: Book) -> None:
    """Qwen Code changes message 1 between two processes; all call ids stay."""
    asked = request(message("user", "please read it (new folder listing)"), CALLED, RESULT, ANSWER, MORE)
    found = matching.match(book.ledger, asked)
    assert found.kind is MatchKind.ALIGNED
    assert [bool(a) for a in found.aliases] == [False, True, True, True, False]


def test_a_shortened_history_is_aligned(book: Book) -> None:
    found = matching.match(book.ledger, request(message("user", "summary of what was"), ANSWER, MORE))
    assert found.kind is MatchKind.ALIGNED
    assert found.adopts in book.ledger.rounds


def test_a_pruned_output_is_the_stored_one_and_an_edited_one_is_new(book: Book) -> None:
    """First-sent bytes win over a client's pruning; they never replace what a client really changed."""
    cleared = message("tool", "[Old tool result content cleared]", answers="call_1")
    edited = message("tool", "print('goodbye')\n", answers="call_1")
    start = message("user", "another start")
    assert matching.match(book.ledger, request(start, CALLED, cleared, ANSWER)).aliases[2]
    assert not matching.match(book.ledger, request(start, CALLED, edited, ANSWER)).aliases[2]


@pytest.mark.parametrize(
    ("text", "is_pruning"),
    [
        ("line one  \nline two\n" * 60, True),
        ("[tool output removed to save space]", True),
        (("line one\nline two\n" * 60)[:700] + "\n... truncated", True),
        ("something entirely different", False),
        ("line one\nline two\n" * 80, False),
    ],
    ids=["white space", "note", "beginning", "other text", "longer"],
)
def test_what_counts_as_a_pruning(text: str, is_pruning: bool) -> None:
    assert aligning.is_pruned_form("line one\nline two\n" * 60, text) is is_pruning


@pytest.mark.parametrize(
    ("text", "is_pruning"),
    [
        ("[Old tool result content cleared]", True),
        ("<output removed to save space>", True),
        ("3 files removed, 2 of them in src", False),
        ("[ERROR] the disk is full, no file was written", False),
    ],
)
def test_a_note_may_be_longer_than_the_few_words_it_stands_for(text: str, is_pruning: bool) -> None:
    """opencode's answer to an edit has 26 characters, and its note 33."""
    assert aligning.is_pruned_form("Edit applied successfully.", text) is is_pruning


def test_an_anchor_needs_more_than_a_call_id(book: Book) -> None:
    """Call ids repeat across runs: the same id with another name or other arguments is no anchor."""
    other = message("assistant", "", (Call("call_1", "write", '{"path":"a.py"}'),))
    assert matching.match(book.ledger, request(message("user", "x"), other, RESULT)).kind is MatchKind.NEW


def test_a_short_answer_is_no_anchor(book: Book) -> None:
    node = book.arrive(request(ASK, CALLED, RESULT, ANSWER, MORE))
    book.answer(node, message("assistant", "Done."))
    assert (
        matching.match(book.ledger, request(message("user", "x"), message("assistant", "Done."), MORE)).kind
        is MatchKind.NEW
    )


@pytest.mark.rows("S3-30")
def test_a_request_goes_on_from_an_opening_whose_answer_was_never_kept() -> None:
    """A process that is killed takes its last answer with it, or leaves a draft. The client has all of it."""
    book = Book()
    node = book.arrive(request(ASK), Match(MatchKind.NEW))
    asked = request(ASK, CALLED, RESULT)

    lost = matching.match_unanswered_opening(book.ledger, asked)
    book.answer(node, message("assistant", "I will"), complete=False)
    drafted = matching.match_unanswered_opening(book.ledger, asked)
    book.answer(node, ANSWER)

    assert lost == drafted == Match(MatchKind.CONTINUED, (book.ledger.entries[node],))
    assert matching.match_unanswered_opening(book.ledger, asked) is None, "it has an answer, which is another one"


@pytest.mark.parametrize(
    "asked",
    [
        request(ASK),
        request(ASK, MORE),
        request(MORE, CALLED, RESULT),
        request(ASK, CALLED, RESULT, system="You plan parties."),
        request(ASK, CALLED, RESULT, tools=("invite",)),
    ],
    ids=["the opening", "no answer in it", "another opening", "another agent", "other tools"],
)
def test_nothing_else_goes_on_from_an_opening_without_an_answer(asked: Request) -> None:
    book = Book()
    book.arrive(request(ASK), Match(MatchKind.NEW))

    assert matching.match_unanswered_opening(book.ledger, asked) is None


def test_an_opening_that_was_gone_on_from_is_not_without_an_answer() -> None:
    book = Book()
    book.arrive(request(ASK, ANSWER, MORE), Match(MatchKind.NEW))

    assert matching.match_unanswered_opening(book.ledger, request(ASK, CALLED, RESULT)) is None


def test_no_thread_with_tools_goes_on_from_an_answer_given_without() -> None:
    """opencode's compaction: its summary is the answer of a side conversation."""
    side = Book()
    side.ledger.threads["main"] = Thread("main", "summariser", ())
    side.answer(side.arrive(request(ASK, tools=()), Match(MatchKind.NEW)), ANSWER)
    assert (
        matching.match(side.ledger, request(message("user", "What did we do so far?"), ANSWER, MORE)).kind
        is MatchKind.NEW
    )


@pytest.mark.parametrize(
    ("system", "tools"), [("You plan parties.", ("read", "write")), ("s", ("invite",)), ("You plan parties.", ())]
)
def test_a_greeting_that_another_agent_also_gave_is_no_anchor(book: Book, system: str, tools: tuple[str, ...]) -> None:
    """DESIGN 5.3: words alone say too little, whatever came before them. With a second thing that is known they do."""
    other = (message("user", "good morning"), ANSWER, message("user", "plan a party"))
    assert matching.match(book.ledger, request(*other, system=system, tools=tools)).kind is MatchKind.NEW
    shortened = request(message("user", "summary"), RESULT, ANSWER, MORE, system=system, tools=tools or ("read",))
    assert matching.match(book.ledger, shortened).kind is MatchKind.ALIGNED


@pytest.mark.parametrize("first", [True, False])
def test_of_two_conversations_that_look_alike_the_one_with_this_system_and_tools_is_meant(first: bool) -> None:
    agent, chat = Book(), Book()
    chat.ledger.threads["main"] = Thread("main", "another", ())
    for book, when, tools in ((agent, 10 if first else 20, ("read", "write")), (chat, 15, ())):
        book.now = when
        book.answer(book.arrive(request(ASK, tools=tools), Match(MatchKind.NEW)), ANSWER)
    best = matching.best_match([agent.ledger, chat.ledger], request(ASK, ANSWER, MORE))
    assert best is not None
    assert best[0] is agent.ledger


def test_of_two_conversations_that_look_alike_the_one_that_spoke_last_is_meant() -> None:
    older, newer = Book(), Book()
    for book, when in ((older, 10), (newer, 20)):
        book.now = when
        book.answer(book.arrive(request(ASK), Match(MatchKind.NEW)), CALLED)
    older.arrive(request(ASK, CALLED, RESULT))
    best = matching.best_match([older.ledger, newer.ledger], request(ASK, CALLED, RESULT))
    assert best is not None
    assert best[0] is newer.ledger


FORKED = message("user", "You are a fork. Your directive: count the lines.")
SIBLING = message("user", "You are a fork. Your directive: count the words.")


@pytest.mark.rows("X-32")
@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("begun", ["from the start", "in the middle"])
def test_what_leaves_the_history_that_a_fork_took_over_is_no_branch_of_the_fork(answered: bool, begun: str) -> None:
    """Its sibling resembles it most: it shares the whole history and the tools. Both left their parent."""
    history = (ASK, CALLED, RESULT)
    parent, fork = Book(), Book()
    if begun == "from the start":
        parent.answer(parent.arrive(request(ASK), Match(MatchKind.NEW)), CALLED)
    parent.answer(parent.arrive(request(*history), None if begun == "from the start" else Match(MatchKind.NEW)), ANSWER)
    fork.ledger.conversation = Conversation("f" * 32, "t", parent="c" * 32)
    fork.ledger.threads["main"] = Thread("main", "s", ("read",))
    opening = fork.arrive(request(*history, FORKED), Match(MatchKind.NEW))
    if answered:
        fork.answer(opening, ANSWER)
    for books in ((parent, fork), (fork, parent)):
        ledgers = [book.ledger for book in books]
        sibling = matching.best_match(ledgers, request(*history, SIBLING, tools=("read",)))
        again = matching.best_match(ledgers, request(*history, FORKED, tools=("read",)))
        onward = matching.best_match(ledgers, request(*history, FORKED, ANSWER, MORE, tools=("read",)))
        assert sibling is not None
        assert sibling[0] is parent.ledger
        assert again is not None
        assert (again[0], again[1].kind) == (fork.ledger, MatchKind.RETRIED)
        assert onward is not None
        assert onward[0] is fork.ledger


def run_of(turns: int, output: str) -> tuple[Book, list[Message]]:
    """A task that was run once more: it opens as every run of it does, and its server counts its call ids alike; what
    the tools say is its own. The book, and its messages up to the next result."""
    book = Book()
    messages = [ASK]
    found: Match | None = Match(MatchKind.NEW)
    for n in range(turns):
        called = message("assistant", "", (Call(f"call_{n}", "read", '{"path":"a.py"}'),))
        book.answer(book.arrive(request(*messages), found), called)
        messages += [called, message("tool", f"{output}, line {n}", answers=f"call_{n}")]
        found = None
    return book, messages


def held_against_each_other(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for every message that was compared with an entry. Counted, for a busy machine's clock says nothing."""
    compared: list[None] = []
    alike = aligning._is_same_message

    def counting(ledger: Ledger, stored: Entry, message: Message) -> bool:
        compared.append(None)
        return alike(ledger, stored, message)

    monkeypatch.setattr(
        aligning, "_is_same_message", counting
    )  # how often is asked here; a time would tell of the machine
    return compared


def test_where_one_conversation_holds_the_history_no_other_is_looked_at_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many runs of one task open alike: each request of one of them was aligned with all the others."""
    others = [run_of(20, f"run {n}")[0].ledger for n in range(3)]
    mine, messages = run_of(20, "this run")
    compared = held_against_each_other(monkeypatch)
    best = matching.best_match([*others, mine.ledger], request(*messages))
    assert best is not None
    assert (best[0], best[1].kind, best[1].depth) == (mine.ledger, MatchKind.CONTINUED, 40)
    assert not compared


def test_a_history_that_went_another_way_takes_no_square_of_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result that is found nowhere was held against every entry behind it."""
    once, _ = run_of(100, "once")
    again = request(*run_of(100, "once more")[1])
    compared = held_against_each_other(monkeypatch)
    found = matching.match(once.ledger, again)
    assert found.kind is MatchKind.ALIGNED
    assert [bool(alias) for alias in found.aliases] == [False, *[True, False] * 99]
    assert 0 < len(compared) < 2 * len(again.messages)


@pytest.mark.rows("X-07")
@pytest.mark.parametrize(
    ("tools", "system", "named", "part"),
    [
        (("read", "write"), "s", False, RequestRole.MAIN),
        (("read", "write"), "changed at midnight", False, RequestRole.MAIN),
        ((), "s", False, RequestRole.MAIN),
        (("read",), "s", False, RequestRole.FORK),
        (("read",), "other", False, RequestRole.SIDE),
        ((), "other", False, RequestRole.SIDE),
        (("read",), "plan mode", True, RequestRole.MAIN),
        ((), "title generator", True, RequestRole.SIDE),
    ],
)
def test_what_a_request_is_to_the_thread_it_matched(
    tools: tuple[str, ...], system: str, named: bool, part: RequestRole
) -> None:
    """X-07 and DESIGN 5.5, 5.7."""
    asked = request(ASK, CALLED, RESULT, tools=tools, system=system)
    assert matching.role_of_request(asked, Thread("main", "s", ("read", "write")), named=named) is part


@pytest.mark.rows("X-06")
def test_a_named_session_that_matches_nothing_was_compacted(book: Book) -> None:
    """X-06: the frames go on from where the thread stood."""
    found = matching.match_compacted(book.ledger, request(message("user", "What did we do so far?"), MORE))
    tip = book.ledger.newest_tip()
    assert tip is not None
    assert found == Match(MatchKind.COMPACTED, adopts=tip.id)
    assert matching.match_compacted(book.ledger, request(MORE, tools=("other",), system="other")) is None


@pytest.mark.rows("X-06")
@pytest.mark.parametrize("role", ["assistant", "user"])
@pytest.mark.parametrize("first", [ASK, message("user", "What did we do so far?")], ids=["as before", "other words"])
def test_histories_that_were_compacted_one_after_the_other_begin_alike(book: Book, first: Message, role: str) -> None:
    """X-06: each goes on from where the thread stood, and what follows says which one is meant; the old one too."""
    kept = [message("user", "Keep it short, please.")]
    summaries = [message(role, f"This was done: {done}.") for done in ("nothing", "a little", "a lot")]
    stood, paths = [], []
    for summary in summaries:
        stood.append(book.ledger.newest_tip())
        paths.append(compacted_after(book, first, *kept, summary, MORE))
    assert [path[0].adopts for path in paths] == [tip.id for tip in stood if tip]
    assert len({path[0].id for path in paths}) == len(paths)
    for path, summary in zip(paths, summaries, strict=True):
        asked = request(first, *kept, summary, MORE, message("assistant", "Well, then."), ASK)
        assert list(matching.match(book.ledger, asked).path) == path
    before = matching.match(book.ledger, request(ASK, CALLED, RESULT, ANSWER, MORE))
    assert (before.kind, before.depth, before.path[0].adopts) == (MatchKind.CONTINUED, 4, "")


def test_the_id_of_a_compacted_history_says_what_it_goes_on_from(book: Book) -> None:
    """So that nobody who says the same words elsewhere stands in its place, and two processes make the same of it."""
    tip = book.ledger.newest_tip()
    assert tip is not None
    first, *_ = compacted_after(book, MORE)
    again = matching.new_entries(book.ledger, request(MORE), Match(MatchKind.COMPACTED, adopts=tip.id), "main", 99)
    assert again[0].id == first.id
    on = Match(MatchKind.CONTINUED, book.ledger.path(tip.id))
    behind = matching.new_entries(book.ledger, request(ASK, CALLED, RESULT, ANSWER, MORE), on, "main", 99)
    assert behind[0].id != first.id


@pytest.mark.rows("S1-71a")
def test_a_delegated_prompt_is_found_while_its_call_waits() -> None:
    """S1-71a: the first message of a subagent is the prompt of a pending call, character for character."""
    book = Book()
    prompt = "Look through all the tests and tell me which are slow."
    task = message("assistant", "", (Call("call_t", "task", f'{{"description":"slow tests","prompt":"{prompt}"}}'),))
    turn = book.answer(book.arrive(request(ASK), Match(MatchKind.NEW)), task)
    assert anchors.delegating_turn(book.ledger, prompt) == turn
    assert anchors.delegating_turn(book.ledger, prompt + " Please.") == ""
    book.arrive(request(ASK, task, message("tool", "none is slow", answers="call_t")))
    assert anchors.delegating_turn(book.ledger, prompt) == ""
