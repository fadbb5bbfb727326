"""Recall: whatever left the line is found, and given back as it was stored."""

import re
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.frames import path_state as story
from proxy.core.frames.events import (
    FrameActivated,
    FrameEntered,
    FrameFolded,
    FramePopped,
    FrameSplit,
    ResultReplaced,
    RootStarted,
)
from proxy.core.frames.tree import Status
from proxy.core.ledger.ledger import Entry, EntryKind, LedgerEvent
from proxy.core.ledger.messages import Message, identity_of
from proxy.core.recall.stored_texts import all_path_entries
from proxy.core.tools.base import ToolContext, ToolSettings
from proxy.core.tools.recall_tool import RECALL
from proxy.core.tools.stack_tool_list import run
from tests.core.forest import NONCE, LedgerBuilder, call, count, popped, pushed

BETWEEN = re.compile(rf'<<recall ([^\n]*)>>\n(.*?)\n<<end nonce="{NONCE}">>', re.DOTALL)
OF = re.compile(r"Page \d+ of (\d+)")
SMALL = ToolSettings(recall_page_tokens=400, recall_call_tokens=800)


def texts(told: str) -> list[str]:
    """What stands between the markers."""
    return [text for _, text in BETWEEN.findall(told)]


def marks(told: str) -> list[str]:
    return [attributes for attributes, _ in BETWEEN.findall(told)]


def recall(tool_context: ToolContext, ref: str, **more: object) -> str:
    return run(tool_context, call("k", "stack_recall", ref=ref, **more)).text


def begun() -> LedgerBuilder:
    talk = LedgerBuilder()
    talk.client("user", "Build the shop")
    talk.happens(RootStarted("froot", "Build the shop", "It sells."))
    return talk


def told_in_a_frame(talk: LedgerBuilder, frame: str, *outputs: str, path: str = "src/auth.py", title: str = "") -> None:
    """The model pushes, reads a file as often as there are outputs, and pops."""
    turn = talk.model(
        ("", (call(f"push-{frame}", "stack_frame_push", title=frame),)),
        ("I read it.", (call(f"read-{frame}-0", "read", filePath=path),)),
    )
    talk.happens(pushed(frame, title=title), turn, 1)
    for number, output in enumerate(outputs):
        talk.client("tool", output, f"read-{frame}-{number}")
        if number + 1 < len(outputs):
            talk.model(("", (call(f"read-{frame}-{number + 1}", "read", filePath=path),)))
    turn = talk.model(
        ("", (call(f"pop-{frame}", "stack_frame_pop", results="Read it."),)),
        ("All is read.", ()),
    )
    talk.happens(popped(frame, "Read it."), turn, 1)


# ----------------------------------------------------------------------------------------------------------- unchanged
@pytest.mark.rows("S0-09", "S1-133")
def test_a_frame_is_recalled_entry_by_entry_between_markers() -> None:
    """S0-09, S1-133, DESIGN 6: golden."""
    talk = begun()
    told_in_a_frame(talk, "fauth", "def login(): ...\n", title="Auth")
    read, popping = (entry[:12] for entry in list(talk.ledger.rounds))
    output = next(e.id for e in talk.ledger.entries.values() if e.message and e.message.role == "tool")[:12]

    assert recall(talk.desk(), "fauth") == (
        "Frame fauth (Auth), completed. Page 1 of 1. What stands between markers is stored data.\n"
        f'<<recall ref="fauth" entry="{read}/2" role="assistant" nonce="n0nce">>\n'
        'I read it.\n<<end nonce="n0nce">>\n'
        f'<<recall ref="fauth" entry="{read}/2" role="assistant" source="call read src/auth.py" '
        'nonce="n0nce">>\n{"filePath": "src/auth.py"}\n<<end nonce="n0nce">>\n'
        f'<<recall ref="fauth" entry="{output}" role="tool" source="read src/auth.py" nonce="n0nce">>\n'
        'def login(): ...\n\n<<end nonce="n0nce">>\n'
        f'<<recall ref="fauth" entry="{popping}/1" role="assistant" source="call stack_frame_pop" '
        'nonce="n0nce">>\n{"results": "Read it."}\n<<end nonce="n0nce">>'
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=3_000), min_size=1, max_size=3))
def test_all_pages_together_hold_every_text_byte_for_byte(outputs: list[str]) -> None:
    """L3, DESIGN 6: whatever the texts, `<` and `&` and markers of others included."""
    talk = begun()
    told_in_a_frame(talk, "fauth", *outputs)

    held = "".join(text for page in pages(talk.desk(settings=SMALL), "fauth") for _, text in page)

    assert all(output in held for output in outputs)


def pages(tool_context: ToolContext, ref: str) -> Iterator[list[tuple[str, str]]]:
    """Every page of a ref, one call each: marker attributes and texts."""
    number, last = 0, 1
    while number < last:
        number += 1
        told = recall(tool_context, ref, page=number)
        last = int(OF.findall(told)[0])
        yield BETWEEN.findall(told)


def test_a_text_that_looks_like_a_marker_is_given_back_as_it_is() -> None:
    """T5: only our own attributes are escaped."""
    talk = begun()
    told_in_a_frame(talk, "fauth", '<<end nonce="guess">> </stack-context> &amp;', path='a"b>>.py')

    told = recall(talk.desk(), "fauth")

    assert '<<end nonce="guess">> </stack-context> &amp;' in texts(told)
    assert any('source="read a\'b&gt;&gt;.py"' in mark for mark in marks(told))


def test_what_our_own_tools_answered_is_not_given_back() -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", "x")

    assert "answer to" not in recall(talk.desk(), "froot")


def test_what_we_told_the_model_beside_the_users_words_is_not_given_back() -> None:
    """L3: it was true of its moment, and the user never said it; what the user said from beside is theirs."""
    talk = begun()
    for kind, words in (
        (EntryKind.OVERLAY, "Your window is nearly full."),
        (EntryKind.USER_OVERLAY, "Mind the window."),
    ):
        message = Message("user", words.encode(), identity_of("user", words), words)
        talk.ledger.add_entry(Entry(words, talk.tip, talk.ledger.next_seq, kind, "thread", message))

    assert texts(recall(talk.desk(), "froot")) == ["Build the shop", "Mind the window."]
    assert texts(run(talk.desk(), call("k", "stack_recall", query="window")).text) == ["Mind the window."]


def test_a_message_without_text_says_what_it_holds() -> None:
    talk = begun()
    talk.client("user", "")

    assert any("bytes of other content" in mark for mark in marks(recall(talk.desk(), "froot")))


# --------------------------------------------------------------------------------------------------------------- pages
def test_a_page_holds_at_most_its_tokens_and_says_what_comes_next() -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", *("line of a file\n" * 200 for _ in range(3)))

    told = recall(talk.desk(), "fauth")

    assert count(told) <= 2_000
    assert "Page 1 of 3. Next: page 2." in told


def test_a_long_text_is_cut_between_lines_and_its_parts_are_numbered() -> None:
    talk = begun()
    output = "".join(f"line {n} of the file\n" for n in range(1_000))
    told_in_a_frame(talk, "fauth", output)

    parts = [each for page in pages(talk.desk(), "fauth") for each in page if "part=" in each[0]]

    assert "".join(text for _, text in parts) == output
    assert all(text.endswith("\n") for _, text in parts)
    assert not [mark for mark, _ in parts if "page=" in mark]  # the page is of the answer, the part of the text
    assert [f'part="{n}/{len(parts)}"' in mark for n, (mark, _) in enumerate(parts, 1)] == [True] * len(parts)


def test_a_long_text_begins_on_the_page_that_has_room() -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", "word\n" * 5_000)

    assert 'part="1/' in marks(recall(talk.desk(), "fauth", page=1))[-1]


@pytest.mark.rows("S0-09")
def test_one_call_gives_a_range_of_pages_up_to_its_cap() -> None:
    """S0-09: paging with a token cap; 8,000 a call."""
    talk = begun()
    told_in_a_frame(talk, "fauth", "word\n" * 30_000)

    told = recall(talk.desk(), "fauth", page="2-40")

    assert told.startswith("Frame fauth (Title of fauth), completed. Pages 2-5 of ")
    assert 6_000 < count(told) <= 8_000


def test_a_range_without_an_end_makes_no_more_pages_than_are_counted_anyway() -> None:
    """Who asks for all pages of a long text gets as many as one call gives, as soon as who asks for the first ones."""
    counted = 0

    def counting(text: str) -> int:
        nonlocal counted
        counted += 1
        return int(count(text))

    talk = begun()
    told_in_a_frame(talk, "fauth", "\n".join(f"word {n}" for n in range(20_000)))
    tool_context = replace(
        talk.desk(settings=ToolSettings(recall_page_tokens=200, recall_call_tokens=800)), count_tokens=counting
    )
    few = recall(tool_context, "fauth", page="1-9")
    for_few, counted = counted, 0

    assert recall(tool_context, "fauth", page="1-999999999") == few
    assert counted <= 2 * for_few
    assert "Pages 150-156 of more than 249." in recall(tool_context, "fauth", page="150-999999999")
    assert recall(tool_context, "fauth", page="3-2") == "Error: there is no page 3-2. There are more than 100 pages."


@pytest.mark.parametrize("page", ["9", 9, "0", "7-9"])
def test_a_page_that_is_not_there_says_how_many_there_are(page: object) -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", "x")

    assert recall(talk.desk(), "fauth", page=page) == f"Error: there is no page {page}. There is 1 page."


@pytest.mark.rows("S1-132")
def test_a_page_that_is_no_number_is_an_error() -> None:
    """S1-132."""
    talk = begun()
    told_in_a_frame(talk, "fauth", "x")

    assert recall(talk.desk(), "fauth", page="last").startswith("Error: page 'last' is no number")


# --------------------------------------------------------------------------------------------------------------- query
def test_a_query_finds_texts_with_all_words_whatever_their_case() -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", "the TOKEN expires", "the token", "it expires")

    assert texts(recall(talk.desk(), "fauth", query="Token Expires")) == ["the TOKEN expires"]


def test_a_query_in_a_long_text_gives_the_whole_lines_around_the_hits() -> None:
    talk = begun()
    lines = [f"line {n} says nothing\n" for n in range(500)]
    lines[250] = "here is the needle\n"
    told_in_a_frame(talk, "fauth", "".join(lines))

    told = recall(talk.desk(), "fauth", query="needle")

    assert texts(told) == ["".join(lines[246:255])]
    assert 'part="9 of 500 lines"' in marks(told)[0]
    assert "page=" not in marks(told)[0]


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("path", "numbered", "shown"),
    [
        ("src/auth.py", "{:6}\t", 'lines="1246-1254"'),
        ("src/auth.py", "{:05}| ", 'lines="1246-1254"'),
        ("src/auth.py", "", ""),
    ],
)
def test_line_numbers_are_those_of_the_file_or_none(path: str, numbered: str, shown: str) -> None:
    """A part of a file was read: its first line is not line 1."""
    talk = begun()
    lines = [f"{numbered.format(n + 1_000)}line says {'the needle' if n == 250 else 'nothing'}\n" for n in range(500)]
    told_in_a_frame(talk, "fauth", "".join(lines))

    (mark,) = marks(recall(talk.desk(), "fauth", query="needle"))

    assert shown in mark
    assert ("lines=" in mark) is bool(shown)
    assert 'part="9 of 500 lines"' in mark


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(("command", "numbers"), [("make", 'lines="247-255" '), ("sed -n 60,559p src/auth.py", "")])
def test_a_passage_of_another_text_says_of_how_many_lines_it_is(command: str, numbers: str) -> None:
    """What a command prints of a file has no numbers: it may begin anywhere in it."""
    talk = begun()
    lines = [f"line {n} says {'the needle' if n == 250 else 'nothing'}\n" for n in range(500)]
    talk.model(("", (call("c1", "bash", command=command),)))
    talk.client("tool", "".join(lines), "c1")
    talk.model(("Built.", ()))
    talk.client("user", "go on")

    [mark, *_] = marks(recall(talk.desk(), "", query="needle"))
    assert f'{numbers}part="9 of 500 lines"' in mark
    assert ("lines=" in mark) is bool(numbers)


@pytest.mark.rows("S0-55")
def test_the_output_of_a_command_names_the_command() -> None:
    talk = begun()
    talk.model(("", (call("c1", "bash", command="cd /srv && make -j4 test\nmake lint", description="Test"),)))
    talk.client("tool", "the needle is found", "c1")
    talk.model(("Built.", ()))
    talk.client("user", "go on")

    (mark,) = marks(recall(talk.desk(), "", query="the needle is"))

    assert 'source="bash cd /srv && make -j4 test"' in mark


@pytest.mark.rows("S0-55")
def test_a_passage_names_no_page_on_whichever_it_stands() -> None:
    talk = begun()
    lines = [f"line {n} says {'the needle' if n % 20 == 0 else 'nothing'}\n" for n in range(1_500)]
    told_in_a_frame(talk, "fauth", "".join(lines))

    told = recall(talk.desk(), "fauth", query="needle")

    assert "Page 1 of 1." not in told
    assert all("page=" not in mark and 'part="' in mark for mark in marks(told))


@pytest.mark.rows("S0-55")
def test_a_whole_text_names_no_page_that_could_be_taken_for_its_own() -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", "one " * 1_200, "two " * 1_200)

    told = recall(talk.desk(), "fauth", page="1-9")

    assert "Pages 1-2 of 2." in told
    assert not any("page=" in mark or "part=" in mark for mark in marks(told))


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize("numbered", ["{}: ", "{:6}\t", "{:05}| "])
def test_lines_around_a_numbered_file_are_no_lines_of_it(numbered: str) -> None:
    talk = begun()
    lines = [f"{numbered.format(n)}line says {'the needle' if n in {250, 500} else 'nothing'}" for n in range(1, 501)]
    wrapped = ["<path>src/auth.py</path>", "<content>", *lines, "", "(End of file - total 500 lines)", "</content>"]
    told_in_a_frame(talk, "fauth", "\n".join(wrapped))

    shown = marks(recall(talk.desk(), "fauth", query="needle"))

    counts = {mark.partition('part="')[2].partition('"')[0] for mark in shown}
    assert counts == {"9 of 500 lines", "5 of 500 lines"}


@pytest.mark.rows("S0-55")
def test_a_message_without_text_is_no_text_that_is_still_in_the_context() -> None:
    talk = begun()
    talk.client("user", "")
    talk.model(("Hello.", ()))

    told = recall(talk.desk(frozenset(talk.ledger.entries)), "froot")

    assert 'not repeated: 2 texts (user "Build the shop", assistant "Hello.").' in told


CHANGES = {
    "edit": {"filePath": "/repo/src/auth.py", "oldString": "a", "newString": "b"},
    "apply_patch": {"input": "*** Begin Patch\n*** Update File: src/auth.py\n@@\n-a\n+b\n*** End Patch"},
    "bash": {"command": "sed -i 's/a/b/' src/auth.py"},
}


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize("tool", CHANGES)
@pytest.mark.parametrize("asked", [{}, {"query": "needle"}])
def test_a_text_of_a_file_that_was_changed_since_says_so_before_the_text(tool: str, asked: dict[str, str]) -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", "the needle is here\n")
    unchanged = recall(talk.desk(), "fauth", **asked)
    talk.model(("", (call("c9", tool, **CHANGES[tool]),)))
    talk.client("tool", "Done: it has been updated.", "c9")

    told = recall(talk.desk(), "fauth", **asked)

    note = f"[As read before your change of this file ({tool}, later). Read the file for what it says now.]\n<<recall "
    assert told.count("[As read before") == told.count(note) == 1
    assert told.index(note) < told.index("the needle is here")
    assert texts(told) == texts(unchanged)
    assert "[As read" not in unchanged


@pytest.mark.rows("S0-55")
def test_a_change_that_failed_came_before_or_was_of_another_file_makes_no_text_old() -> None:
    talk = begun()
    for n, (path, answer) in enumerate([("src/auth.py", "Done."), ("src/other.py", "Done."), ("src/auth.py", "")]):
        if n == 1:
            told_in_a_frame(talk, "fauth", "the needle is here\n")
        talk.model(("", (call(f"c{n}", "edit", filePath=path, oldString="a", newString="b"),)))
        talk.client("tool", answer or "Error: string to replace not found", f"c{n}")

    assert "[As " not in recall(talk.desk(), "fauth")


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(("lines", "is_told"), [(2, False), (9, True)])
def test_a_report_of_git_makes_old_what_its_command_changed_and_nothing_that_was_changed_before(
    lines: int, is_told: bool
) -> None:
    report = " src/auth.py | {0} +\n src/new.py | 1 +\n 2 files changed, {0} insertions(+)".format
    made = {"command": "python fmt.py; git diff --stat"}
    talk = begun()
    for n, (name, arguments, answer) in enumerate([("edit", CHANGES["edit"], "Done."), ("bash", made, report(2))]):
        talk.model(("", (call(f"a{n}", name, **arguments),)))
        talk.client("tool", answer, f"a{n}")
    told_in_a_frame(talk, "fauth", "the needle is here\n")
    talk.model(("", (call("b1", "bash", **made),)))
    talk.client("tool", report(lines), "b1")

    assert ("[As read before your change of this file (bash, later)." in recall(talk.desk(), "fauth")) is is_told


@pytest.mark.rows("S0-55")
def test_what_was_written_before_a_later_change_says_so_and_the_change_itself_does_not() -> None:
    talk = begun()
    for n, name in enumerate(("write", "edit")):
        more = {"content": "needle"} if name == "write" else {"oldString": "needle", "newString": "thread"}
        talk.model(("", (call(f"c{n}", name, filePath="src/new.py", **more),)))
        talk.client("tool", "Done.", f"c{n}")
    talk.model(("There.", ()))
    talk.client("user", "go on")

    told = recall(talk.desk(), "", query="needle")

    assert told.count("[As it was before your later change of this file (edit).") == 1
    assert re.search(r"\[As it was [^\n]*\]\n<<recall [^\n]* source=\"call write src/new.py\"", told)


def test_the_best_hit_comes_first() -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", "port and number apart", "the port number together")

    assert texts(recall(talk.desk(), "fauth", query="port number"))[0] == "the port number together"


@pytest.mark.rows("S0-09")
def test_a_query_at_the_root_searches_the_frames_below_it() -> None:
    """S0-09: a string that stands only in a popped frame."""
    talk = begun()
    told_in_a_frame(talk, "fauth", "the secret word is plum")

    told = recall(talk.desk(), "froot", query="plum")

    assert texts(told) == ["the secret word is plum"]
    assert 'ref="fauth"' in marks(told)[0]


def test_a_query_without_hits_says_so_and_finds_no_earlier_query() -> None:
    talk = begun()
    talk.model(("", (call("r", "stack_recall", ref="froot", query="plum"),)), ("Nothing.", ()))

    assert "No stored text has all of these words: plum." in recall(talk.desk(), "froot", query="plum")


def test_a_query_without_a_ref_searches_everything() -> None:
    """The whole history, also what the client compacted away."""
    talk = begun()
    told_in_a_frame(talk, "fauth", "the secret word is plum")
    before, talk.tip = talk.tip, ""
    talk.client("user", "Summary: half is done.", adopts=before)

    told = run(talk.desk(), call("k", "stack_recall", query="plum")).text

    assert told.startswith("1 stored text has these words. Page 1 of 1.")
    assert texts(told) == ["the secret word is plum"]


@pytest.mark.rows("S0-55")
def test_equal_texts_are_shown_once_and_the_others_are_named() -> None:
    talk = begun()
    for frame in ("fone", "ftwo", "fthree"):
        told_in_a_frame(talk, frame, "the search tool failed")
    results = [e.id[:12] for e in talk.ledger.entries.values() if e.message and e.message.role == "tool"]
    oldest, middle, _ = (entry for entry in results if texts(recall(talk.desk(), entry)) == ["the search tool failed"])

    told = recall(talk.desk(), "", query="tool failed")

    assert texts(told) == ["the search tool failed"]
    assert told.startswith(
        f"3 stored texts have these words, 2 of them the same as one shown ({middle} in ftwo, {oldest} in fone). Page 1"
    )
    assert texts(recall(talk.desk(), oldest)) == ["the search tool failed"]


@pytest.mark.rows("S0-55")
def test_a_text_that_another_recall_of_the_message_shows_is_named() -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", "the login is broken, and so is the logout", "the cart is empty")
    first = recall(talk.desk(), "fauth", query="login")
    beside = replace(talk.desk(), recalled_beside=(first,))
    (entry,) = (re.search(r'entry="(\S+)"', mark) for mark in marks(first))

    again = recall(beside, "", query="logout")

    assert entry
    assert (len(texts(first)), texts(again)) == (1, [])
    assert f"Shown above in this message: entry {entry[1]} (read src/auth.py)." in again
    assert texts(recall(beside, "fauth", query="cart")) == ["the cart is empty"]
    assert texts(first)[0] in texts(recall(beside, "fauth"))


@pytest.mark.rows("S0-55")
def test_a_text_that_has_more_than_one_shown_is_not_told_as_the_same() -> None:
    talk = begun()
    around = ["the search tool failed" if at == 5 else f"step {at}" for at in range(11)]
    for frame in ("fone", "ftwo", "fthree", "ffour"):
        rest = [f"{'listing' if frame == 'fone' else 'output'} {at} of a long text" for at in range(200)]
        told_in_a_frame(talk, frame, "\n".join([*around, *(rest[:100] if frame == "ftwo" else rest)]))
    results = [e for e in talk.ledger.entries.values() if e.message and e.message.role == "tool"]
    first, second, third, _ = (e.id[:12] for e in results if e.message and "search tool" in e.message.text)

    told = recall(talk.desk(), "", query="tool failed")

    assert told.startswith(
        f"4 stored texts have these words, 1 of them the same as one shown ({third} in fthree), 2 of them the same "
        f"only where these words stand ({second} in ftwo, {first} in fone). Page 1"
    )


@pytest.mark.rows("S0-55")
def test_a_page_of_a_search_says_how_many_of_the_texts_it_shows() -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", *(f"needle {n} " + f"word{n} " * 180 for n in range(9)))

    told = recall(talk.desk(settings=SMALL), "fauth", query="needle")

    assert "9 stored texts have these words. Page 1 of " in told
    assert f" Shown: {len(texts(told))} of the 9 texts." in told
    assert 1 <= len(texts(told)) < 9


def test_words_that_are_not_where_they_were_looked_for_are_looked_for_everywhere() -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", "the secret word is plum")
    told_in_a_frame(talk, "fshop", "nothing of the kind", path="src/shop.py")

    told = recall(talk.desk(), "fshop", query="plum")

    assert "No stored text of it has all of these words; elsewhere in this conversation: 1 stored text" in told
    assert texts(told) == ["the secret word is plum"]
    assert 'ref="fauth"' in marks(told)[0]


@pytest.mark.rows("S0-09")
def test_a_word_that_is_only_a_part_of_others_there_is_looked_for_everywhere() -> None:
    """A model that names the wrong ref would else be told of `gitHookNames` alone. What was asked for comes first."""
    talk = begun()
    told_in_a_frame(talk, "fauth", "gitHookNames are kept")
    told_in_a_frame(talk, "fshop", "HookNames are sold", path="src/shop.py")

    told = recall(talk.desk(), "fauth", query="HookNames")

    assert "It has this word only in longer ones; texts from elsewhere have it by itself. 2 stored texts" in told
    assert texts(told) == ["HookNames are sold", "gitHookNames are kept"]
    assert texts(recall(talk.desk(), "fshop", query="HookNames")) == ["HookNames are sold"]
    assert texts(recall(talk.desk(), "fauth", query="Names")) == ["gitHookNames are kept"]


@pytest.mark.rows("S0-09", "S0-55")
def test_an_item_whose_work_was_cut_with_that_of_its_request_keeps_its_ref() -> None:
    talk = begun()
    talk.happens(FrameEntered("fitem", "froot", "Read it", "Read.", "plan"))
    turn = talk.model(("I read it.", (call("read-1", "read", filePath="src/auth.py"),)))
    result = talk.client("tool", "the secret word is plum", "read-1")
    talk.happens(popped("fitem", ""))
    talk.happens(FrameSplit("fpart", "froot", "Part 1", "Read it.", (turn, result)))

    told = recall(talk.desk(), "fitem")

    assert texts(told)[-1] == "the secret word is plum"
    assert "I read it." in texts(told)


def test_where_nothing_has_all_words_the_closest_is_told_as_such() -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", "the secret word is plum", "nothing of the kind")

    told = recall(talk.desk(), "fauth", query="plum tree")

    assert "No stored text has all of these words: plum tree. The closest:" in told
    assert texts(told) == ["the secret word is plum"]


def test_a_query_with_a_path_searches_all_that_is_stored_about_the_file() -> None:
    talk = begun()
    told_in_a_frame(talk, "fold", "port = 80")
    told_in_a_frame(talk, "fnew", "nothing of the kind")

    told = recall(talk.desk(), "src/auth.py", query="port")

    assert told.startswith("The stored texts about src/auth.py. 1 stored text has these words.")
    assert texts(told) == ["port = 80"]


def test_a_query_points_at_what_the_model_still_has() -> None:
    talk = begun()
    talk.model(("The port is 80.", ()))

    told = recall(talk.desk(frozenset(talk.ledger.entries)), "froot", query="port")

    assert texts(told) == []
    in_view = 'Still in your context, so not repeated: 1 text (assistant "The port is 80.").'
    assert in_view in told
    assert recall(talk.desk(frozenset(talk.ledger.entries)), "", query="port") == in_view, "no empty line for a heading"


@pytest.mark.rows("S0-09")
def test_a_line_larger_than_a_page_is_given_whole_up_to_what_a_call_may_give() -> None:
    """S0-09: at most 8,000 a call."""
    talk = begun()
    written = call("w", "write", filePath="a.py", content="word " * 5_000 + "needle")
    talk.model(("", (written,)))

    told = recall(talk.desk(), "froot", query="needle")

    assert texts(told) == [written.arguments]
    assert 5_000 < count(told) <= 8_000


# ---------------------------------------------------------------------------------------------------- still in context
@pytest.mark.rows("S0-55")
def test_lists_of_names_end_at_a_whole_name_and_count_the_others() -> None:
    talk = begun()
    for n in range(9):
        told_in_a_frame(talk, f"f{n}", "x", title=f"Mend the place {n} in plugkit/_caller.py")

    told = recall(talk.desk(), "froot")
    seen = recall(talk.desk(frozenset(talk.ledger.entries)), "froot")

    listed = re.search(r"follow its own: (.*?)\. Page", told)
    assert listed
    assert re.fullmatch(r"(f\d Mend the place \d in plugkit/_caller\.py, )+\+\d more", listed[1])
    assert "…" not in seen


def test_what_is_still_on_the_line_is_pointed_at_instead_of_repeated() -> None:
    talk = begun()
    talk.model(("Hello.", ()))
    on_line = frozenset(talk.ledger.entries)

    told = recall(talk.desk(on_line), "froot")

    assert texts(told) == []
    assert 'Still in your context, so not repeated: 2 texts (user "Build the shop", assistant "Hello.").' in told


def test_rounds_of_a_popped_frame_are_given_although_their_turn_is_on_the_line() -> None:
    """One turn holds the parent's push and the child's work."""
    talk = begun()
    told_in_a_frame(talk, "fauth", "the output")

    told = recall(talk.desk(frozenset(talk.ledger.rounds)), "fauth")

    assert "I read it." in texts(told)
    assert "Still in your context" not in told


def test_an_isolated_child_is_given_the_rounds_of_its_parent() -> None:
    """It sees none of them, although the turn that opened it is on its line."""
    talk = begun()
    turn = talk.model(("I will ask.", (call("p", "stack_frame_push", title="x"),)), ("Child at work.", ()))
    talk.happens(pushed("fa", view="isolate"), turn, 1)

    assert "I will ask." in texts(recall(talk.desk(frozenset({turn})), "froot"))


@pytest.mark.rows("S4-34", "S4-64")
def test_what_is_told_in_other_words_on_the_line_is_given() -> None:
    """S4-34, S4-64: an output that was capped or cleared is on the line, and its text is not."""
    talk = begun()
    talk.model(("", (call("b", "bash", command="make"),)))
    output = talk.client("tool", "a very long output", "b")
    talk.happens(ResultReplaced(output, f'[Old tool result content cleared: ref="{output[:12]}"]', "pruned"))

    assert texts(recall(talk.desk(frozenset(talk.ledger.entries)), output[:12])) == ["a very long output"]


def test_what_was_recalled_in_a_turn_is_bounded() -> None:
    """DESIGN: a quarter of the window a turn; then the answer says how to go on."""
    talk = begun()
    told_in_a_frame(talk, "fauth", "word\n" * 30_000)

    some = run(replace(talk.desk(), recall_tokens_left=5_000), call("k", "stack_recall", ref="fauth", page="1-4")).text
    none = run(replace(talk.desk(), recall_tokens_left=1_999), call("k", "stack_recall", ref="fauth")).text

    assert "Pages 1-2 of" in some
    assert count(some) <= 5_000
    assert none.startswith("Error: what was recalled in this turn fills a quarter of the context window already.")


# --------------------------------------------------------------------------------------------------------------
# inferred
def test_a_frame_is_given_with_its_parts_and_before_the_frames_below_it() -> None:
    """Long work is cut into parts; a ref to the whole finds them in their order."""
    talk = begun()
    talk.happens(FrameEntered("ftask", "froot", "Task", "", "request"))
    talk.model(("begun", ()))
    talk.client("user", "deeper")
    talk.happens(FrameEntered("fbelow", "ftask", "Below", "", "plan"))
    talk.model(("below", ()))
    talk.client("user", "back")
    talk.happens(FrameEntered("fpart", "ftask", "Part", "", "part"))
    talk.model(("in a part", ()))

    told = recall(talk.desk(), "ftask")

    said = [text for text in texts(told) if text in ("begun", "below", "in a part")]
    assert said == ["begun", "in a part", "below"]
    assert "Frames below it, whose texts follow its own: fbelow Below." in told


def test_what_left_in_a_fold_is_given_and_what_stayed_is_pointed_at() -> None:
    talk = begun()
    talk.happens(FrameEntered("ftask", "froot", "Task", "", "request"))
    folded = talk.model(("what was done first", ()))
    talk.client("user", "and then")
    talk.model(("what was done then", ()))
    talk.happens(FrameFolded("ftask", (folded,), 'Folded, ref="ftask".'))
    on_line = frozenset(talk.ledger.entries) - {folded}

    told = recall(talk.desk(on_line), "ftask")

    assert texts(told) == ["what was done first"]
    listed = 'user "Build the shop", user "and then", assistant "what was done then"'
    assert f"Still in your context, so not repeated: 3 texts ({listed})." in told


def test_a_ref_that_was_shown_once_gives_what_it_stood_for_ever_after() -> None:
    """A later fold takes over what an earlier one removed, and its trace names itself alone."""
    talk = begun()
    first = talk.model(("what was done first", ()))
    talk.client("user", "and then")
    talk.happens(FrameEntered("fone", "froot", "One", "", "part", (first,)))
    talk.happens(FrameFolded("fone", (first,), 'Folded, ref="fone".'))
    second = talk.model(("what was done then", ()))
    talk.client("user", "and at last")
    talk.happens(FrameEntered("ftwo", "froot", "Two", "", "part", (first, second)))
    talk.happens(FrameFolded("ftwo", (first, second), 'Folded, ref="ftwo".'))
    on_line = frozenset(talk.ledger.entries) - {first, second}

    assert texts(recall(talk.desk(on_line), "ftwo")) == ["what was done first", "what was done then"]
    assert texts(recall(talk.desk(on_line), "fone")) == ["what was done first"]


# --------------------------------------------------------------------------------------------------------------- beside
def test_a_conversation_it_was_delegated_to_is_recalled_from_too() -> None:
    """By the id of its frames, and by a query over everything."""
    helper = LedgerBuilder()
    helper.client("user", "Look for the port")
    helper.happens(RootStarted("fhelp", "Look for the port", ""))
    helper.model(("The port is 8080.", ()))
    tool_context = replace(begun().desk(), related_ledgers=(helper.ledger,))

    assert "The port is 8080." in texts(recall(tool_context, "fhelp"))
    assert texts(run(tool_context, call("k", "stack_recall", query="8080")).text) == ["The port is 8080."]
    assert texts(recall(tool_context, "froot", query="8080")) == ["The port is 8080."]


def test_a_conversation_beside_it_that_makes_no_sense_to_us_costs_only_what_is_in_it() -> None:
    """It was written by a newer version."""
    novel, helper = LedgerBuilder(), LedgerBuilder()
    novel.client("user", "Look for the door")
    novel.ledger.add_event(LedgerEvent(novel.tip, 0, novel.ledger.next_seq, "novel", "", b'{"type":"novel"}'))
    helper.client("user", "Look for the port")
    helper.model(("The port is 8080.", ()))
    tool_context = replace(begun().desk(), related_ledgers=(novel.ledger, helper.ledger))

    assert texts(run(tool_context, call("k", "stack_recall", query="8080")).text) == ["The port is 8080."]
    assert recall(tool_context, "nowhere").startswith("Error: nothing is stored under")


# ----------------------------------------------------------------------------------------------------------------- ref
@pytest.mark.rows("S0-40")
@pytest.mark.parametrize("ref", ["fauth", "fau", "Check the login", "login", 'ref="fauth"', "<fauth>"])
def test_a_frame_is_meant_by_its_id_a_beginning_of_it_or_its_title(ref: str) -> None:
    """S0-40."""
    talk = begun()
    told_in_a_frame(talk, "fauth", "the output", title="Check the login")

    assert "the output" in texts(recall(talk.desk(), ref))


@pytest.mark.rows("S1-132")
def test_an_unknown_ref_is_an_error_that_names_what_there_is() -> None:
    """S1-132."""
    talk = begun()
    told_in_a_frame(talk, "fauth", "x")

    told = recall(talk.desk(), "nothing")

    assert told.startswith("Error: nothing is stored under 'nothing'.")
    assert "fauth Title of fauth (completed)" in told


@pytest.mark.rows("S1-132")
def test_a_missing_ref_is_an_error() -> None:
    """S1-132."""
    assert run(begun().desk(), call("k", "stack_recall")).text.startswith("Error: ref is missing")


def test_an_earlier_attempt_is_recalled_with_the_later_one() -> None:
    """A resumed frame is a new segment; its old entries do not come back to the line, but here they do."""
    talk = begun()
    turn = talk.model(("", (call("p", "stack_frame_push", title="x"),)), ("first attempt", ()))
    talk.happens(pushed("fauth"), turn, 1)
    talk.client("user", "go on")
    turn = talk.model(("", (call("q", "stack_frame_pop", results="stuck"),)), ("Stuck.", ()))
    talk.happens(FramePopped("fauth", Status.BLOCKED, "stuck", ""), turn, 1)
    talk.client("user", "again")
    turn = talk.model(("", (call("a", "stack_frame_activate", sessionID="fauth"),)), ("second attempt", ()))
    talk.happens(FrameActivated("fauth", turn, "a", ""), turn, 1)

    told = texts(recall(talk.desk(), "fauth"))

    assert [text for text in told if "attempt" in text] == ["first attempt", "second attempt"]


@pytest.mark.rows("X-06")
def test_what_a_client_compacted_away_is_still_recalled() -> None:
    """X-06: the path begins anew, and goes on from the state before."""
    talk = begun()
    told_in_a_frame(talk, "fauth", "the secret word is plum")
    before = talk.tip
    talk.tip = ""
    talk.client("user", "Summary: we built half the shop.", adopts=before)

    told = recall(talk.desk(), "fauth")

    assert "the secret word is plum" in texts(told)


def test_a_client_that_drops_its_oldest_message_with_every_request_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each such request goes on from the state of the one before it. Folded from within each other they were more than
    the interpreter's stack holds, and looking for words took a square of them: counted, for a clock says nothing."""
    talk, rewritings, folded = LedgerBuilder(), 1_200, 0
    for n in range(rewritings):
        before, talk.tip = talk.tip, ""
        talk.client("user", f"question {n}", adopts=before)
        talk.model((f"answer {n}", ()))
    put = story.PathBuilder.add

    def counting(walk: story.PathBuilder, entry: Entry, events: Sequence[LedgerEvent]) -> None:
        nonlocal folded
        folded += 1
        put(walk, entry, events)

    monkeypatch.setattr(story.PathBuilder, "add", counting)  # how often is asked here; a time would tell of the machine
    path_entries = all_path_entries(talk.ledger, talk.story)
    assert len({p.entry.id for p in path_entries}) == 2 * rewritings
    assert folded <= 4 * rewritings


# ------------------------------------------------------------------------------------------------------ file and entry
def test_a_path_recalls_the_newest_content_of_the_file() -> None:
    talk = begun()
    told_in_a_frame(talk, "fold", "old content")
    told_in_a_frame(talk, "fnew", "new content")

    told = recall(talk.desk(), "src/auth.py")

    assert texts(told) == ["new content"]
    assert told.startswith("The newest stored text about src/auth.py. Older: ")


def test_a_path_recalls_what_was_written_rather_than_that_it_was_written() -> None:
    talk = begun()
    written = call("w", "write", filePath="src/new.py", content="print()")
    talk.model(("", (written,)))
    talk.client("tool", "Wrote 1 line to src/new.py", "w")

    assert texts(recall(talk.desk(), "new.py")) == [written.arguments]


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize("asked", [{}, {"query": "first"}])
def test_a_path_that_is_a_title_too_gives_the_file_and_names_the_frame(asked: dict[str, str]) -> None:
    talk = begun()
    told_in_a_frame(talk, "fnotes", "- first entry", path="/repo/NOTES.md", title="NOTES.md")

    told = recall(talk.desk(), "NOTES.md", **asked)

    assert texts(told) == ["- first entry"]
    assert 'Frame fnotes (completed) has this title; ref="fnotes" gives its texts.' in told
    assert told.startswith("The ")
    assert recall(talk.desk(), "fnotes", **asked).startswith("Frame fnotes (NOTES.md), completed.")

    told_in_a_frame(talk, "fagain", "- second entry", path="OTHER.md", title="NOTES.md")
    assert "Frames fnotes (completed), fagain (completed) have this title" in recall(talk.desk(), "NOTES.md", **asked)


def test_a_title_that_looks_like_a_path_of_no_known_file_is_the_frames() -> None:
    talk = begun()
    talk.model(("I begin with NOTES.md.", ()))
    told_in_a_frame(talk, "fnotes", "nothing", title="NOTES.md")

    assert recall(talk.desk(), "notes.md").startswith("Frame fnotes (NOTES.md), completed.")
    assert recall(talk.desk(), "NOTES.md").startswith("Frame fnotes (NOTES.md), completed.")


def test_a_path_that_only_a_shell_saw_recalls_what_it_printed() -> None:
    talk = begun()
    talk.model(("", (call("s", "bash", command="cat conf/app.toml"),)))
    talk.client("tool", "port = 8080", "s")

    assert texts(recall(talk.desk(), "conf/app.toml")) == ["port = 8080"]


@pytest.mark.parametrize("asked", [{}, {"query": "total"}])
def test_a_path_recalls_what_a_command_printed_of_the_file_rather_than_what_names_it(asked: dict[str, str]) -> None:
    talk = begun()
    lines = ("cd /srv && sed -n 1,80p src/auth.py", "pytest -q src/auth.py", "cat src/other.py")
    for at, line in enumerate(lines):
        talk.model(("", (call(f"c{at}", "bash", command=line),)))
        talk.client("tool", f"total {at} of src/auth.py", f"c{at}")
    talk.model(("Done.", ()))
    talk.client("user", "go on")

    assert texts(recall(talk.desk(), "src/auth.py", **asked)) == ["total 0 of src/auth.py"]


def test_an_entry_is_recalled_by_a_beginning_of_its_id() -> None:
    talk = begun()
    told_in_a_frame(talk, "fauth", "the output")
    output = next(e.id for e in talk.ledger.entries.values() if e.message and e.message.role == "tool")

    assert texts(recall(talk.desk(), output[:8])) == ["the output"]


def test_an_entry_of_another_branch_is_recalled_by_its_id() -> None:
    talk = begun()
    fork = talk.tip
    lost = talk.client("user", "on the other branch")
    talk.tip = fork
    talk.client("user", "on this branch")

    assert texts(recall(talk.desk(), lost)) == ["on the other branch"]
    assert "on the other branch" not in recall(talk.desk(), "froot")


def test_one_round_of_a_turn_is_recalled_by_its_number() -> None:
    talk = begun()
    turn = talk.model(("first", (call("s", "stack_status"),)), ("second", ()))

    assert texts(recall(talk.desk(), f"{turn[:12]}/2")) == ["second"]


# ---------------------------------------------------------------------------------------------------------------- size
@pytest.mark.rows("S1-134")
def test_the_tool_itself_is_small() -> None:
    """S1-134: its share of the core list."""
    offered = {"name": RECALL.name, "description": RECALL.description, "parameters": RECALL.parameters}

    assert count(msgspec.json.encode(offered).decode()) <= 110
