"""Reading a file again: a note that points at something which left the line gets its content back."""

import pytest
from msgspec.structs import replace

from proxy.core.frames.events import ResultReplaced, RootStarted
from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES
from proxy.core.recall.unchanged_notes import RestoreOptions, is_unchanged_note, restore_file_contents
from tests.core.forest import NONCE, LedgerBuilder, call, count

CLAUDE = "Wasted call — file unchanged since your last Read. See that earlier tool_result."
QWEN = "[File src/a.py unchanged since last read in this session — its content was given earlier.]"
CONTENT = "1\tdef add(a, b):\n2\t    return a + b\n"
MEANS = RestoreOptions(NONCE, count, 10_000)


def begun() -> LedgerBuilder:
    talk = LedgerBuilder()
    talk.client("user", "Fix the sum")
    talk.happens(RootStarted("froot", "Fix the sum", "It adds."))
    return talk


def reads(talk: LedgerBuilder, result: str, path: str = "src/a.py", tool: str = "Read", **more: object) -> str:
    """The model reads a file; the entry of the result."""
    ident = f"call-{len(talk.ledger.entries)}"
    talk.model(("", (call(ident, tool, file_path=path, **more),)))
    return talk.client("tool", result, ident)


def changes(talk: LedgerBuilder, tool: str = "Edit", path: str = "src/a.py", **more: object) -> str:
    """The model writes or edits a file; the turn of the call."""
    ident = f"call-{len(talk.ledger.entries)}"
    turn = talk.model(("", (call(ident, tool, file_path=path, **more),)))
    talk.client("tool", "Updated.", ident)
    return turn


def told(talk: LedgerBuilder, *gone: str, new: str = "", means: RestoreOptions = MEANS) -> dict[str, str]:
    """What is supplied for the newest entry, when `gone` have left the line."""
    on_line = frozenset(talk.ledger.entries) - set(gone)
    return dict(restore_file_contents(talk.ledger, talk.story, on_line, {new or talk.tip}, means))


# ----------------------------------------------------------------------------------------------------------------- note
@pytest.mark.parametrize(
    "text",
    [
        CLAUDE,
        QWEN,
        "File unchanged since last read. What was read before still holds.",
        '{"status": "unchanged", "message": "File unchanged since last read."}',
        "The file has not been modified since you last read it.",
        CLAUDE + "\n\n<system-reminder>Keep the list up to date.</system-reminder>",
    ],
)
def test_a_note_is_known_by_what_it_says(text: str) -> None:
    assert is_unchanged_note(text)


@pytest.mark.parametrize(
    "text",
    [
        CONTENT,
        "",
        "1\tThe file is unchanged since last read.",
        "0 created, 3 unchanged",
        "class Cache:\n    '''Says whether a file is unchanged since last read.'''\n",
        CLAUDE + "x" * 2_000,
    ],
)
def test_what_has_content_of_its_own_is_no_note(text: str) -> None:
    assert not is_unchanged_note(text)


# ------------------------------------------------------------------------------------------------------------- supplied
@pytest.mark.parametrize(("note", "tool"), [(CLAUDE, "Read"), (QWEN, "read_file")])
def test_a_note_whose_content_left_the_line_is_followed_by_the_content(note: str, tool: str) -> None:
    """DESIGN 8, CLIENTS 8: golden."""
    talk = begun()
    earlier = reads(talk, CONTENT, tool=tool)
    again = reads(talk, note, tool=tool)

    assert told(talk, earlier) == {
        again: f"{note}\n"
        "Not all of that is in front of you any more. Here is what was stored of it, as it was; edits came after the "
        "text that they follow:\n"
        f'<<recall ref="froot" entry="{earlier[:12]}" role="tool" source="{tool} src/a.py" nonce="n0nce">>\n'
        f'{CONTENT}\n<<end nonce="n0nce">>'
    }


def test_a_note_about_what_is_still_on_the_line_stays_alone() -> None:
    talk = begun()
    reads(talk, CONTENT)
    reads(talk, CLAUDE)

    assert told(talk) == {}


def test_only_new_results_are_looked_at() -> None:
    """L2: what was sent once is sent again as it was."""
    talk = begun()
    earlier = reads(talk, CONTENT)
    reads(talk, CLAUDE)
    newest = reads(talk, "other", path="b.py")

    assert told(talk, earlier, new=newest) == {}


def test_of_several_reads_the_newest_is_given() -> None:
    talk = begun()
    gone = [reads(talk, "old\n"), changes(talk, old_string="old"), reads(talk, "new\n")]
    again = reads(talk, CLAUDE)

    text = told(talk, *gone)[again]

    assert "new\n" in text
    assert "old" not in text


def test_a_note_about_a_note_leads_to_the_content() -> None:
    talk = begun()
    gone = [reads(talk, CONTENT), reads(talk, CLAUDE)]
    again = reads(talk, CLAUDE)

    assert CONTENT in told(talk, *gone)[again]


def test_a_note_that_was_given_the_content_serves_the_next_one_while_it_is_on_the_line() -> None:
    talk = begun()
    earlier = reads(talk, CONTENT)
    first = reads(talk, CLAUDE)
    talk.happens(ResultReplaced(first, told(talk, earlier)[first], "read again"))
    again = reads(talk, CLAUDE)

    assert told(talk, earlier) == {}
    assert CONTENT in told(talk, earlier, first)[again]


def test_of_two_notes_that_lost_their_content_at_once_the_first_gets_it() -> None:
    """A fold takes the content away from under both; what it breaks of the prefix is sent anew anyway."""
    talk = begun()
    earlier = reads(talk, CONTENT)
    notes = {reads(talk, CLAUDE), reads(talk, QWEN)}
    on_line = frozenset(talk.ledger.entries) - {earlier}

    first = restore_file_contents(talk.ledger, talk.story, on_line, notes, MEANS)
    for entry, text in first:
        talk.happens(ResultReplaced(entry, text, "read again"))

    assert [CONTENT in text for _, text in first] == [True]
    assert restore_file_contents(talk.ledger, talk.story, on_line, notes, MEANS) == ()


def test_a_note_that_left_the_line_itself_is_given_nothing() -> None:
    talk = begun()
    gone = [reads(talk, CONTENT), reads(talk, CLAUDE)]

    assert told(talk, *gone) == {}


def test_a_result_that_is_told_in_other_words_on_the_line_counts_as_gone() -> None:
    """An output that was capped or cleared still stands on the line, but not its content."""
    talk = begun()
    earlier = reads(talk, CONTENT)
    talk.happens(ResultReplaced(earlier, "[cleared]", "pruned"))
    again = reads(talk, CLAUDE)

    assert CONTENT in told(talk)[again]


# --------------------------------------------------------------------------------------------------------------- ranges
def test_a_range_is_answered_by_the_read_of_that_range() -> None:
    talk = begun()
    gone = [reads(talk, "lines 10 to 20", offset=10, limit=10), reads(talk, "lines 50 to 60", offset=50, limit=10)]
    again = reads(talk, CLAUDE, offset=10, limit=10)

    text = told(talk, *gone)[again]

    assert "lines 10 to 20" in text
    assert "lines 50" not in text


def test_a_range_that_was_never_read_alone_is_answered_by_the_whole_file() -> None:
    talk = begun()
    gone = reads(talk, CONTENT)
    again = reads(talk, CLAUDE, offset=2, limit=1)

    assert CONTENT in told(talk, gone)[again]


def test_a_whole_file_is_not_answered_by_a_range_of_it() -> None:
    talk = begun()
    gone = [reads(talk, CONTENT, offset=1), reads(talk, "only the end", offset=500)]
    again = reads(talk, CLAUDE)

    text = told(talk, *gone)[again]

    assert CONTENT in text
    assert "only the end" not in text


# -------------------------------------------------------------------------------------------------------------- changes
def test_what_changed_the_file_since_is_given_with_it() -> None:
    talk = begun()
    gone = [reads(talk, CONTENT), changes(talk, old_string="a + b", new_string="a - b")]
    again = reads(talk, CLAUDE)

    text = told(talk, *gone)[again]

    assert text.index(CONTENT) < text.index('"new_string": "a - b"')


@pytest.mark.rows("S0-55")
def test_of_what_is_still_in_view_it_is_said_that_it_is() -> None:
    talk = begun()
    gone = reads(talk, CONTENT)
    changes(talk, old_string="a + b", new_string="a - b")
    again = reads(talk, CLAUDE)

    text = told(talk, gone)[again]

    assert "Still in your context, so not repeated: call Edit src/a.py.\n" in text
    assert "a - b" not in text
    assert "Still in your context" not in told(talk, gone, *talk.ledger.rounds)[again]


def test_a_file_that_was_only_written_is_given_as_it_was_written() -> None:
    talk = begun()
    gone = changes(talk, "Write", content="print(1)\n")
    again = reads(talk, CLAUDE)

    assert '"content": "print(1)\\n"' in told(talk, gone)[again]


def test_an_error_is_no_content() -> None:
    talk = begun()
    gone = [reads(talk, CONTENT), reads(talk, "<tool_use_error>File does not exist.</tool_use_error>")]
    again = reads(talk, CLAUDE)

    assert CONTENT in told(talk, *gone)[again]


@pytest.mark.rows("X-17")
def test_a_note_of_a_configured_tool_is_given_its_content() -> None:
    """X-17: what reads and what writes is what the configuration says."""
    names = DEFAULT_TOOL_ROLES.with_entries(
        {"fetch_text": {"role": "read", "arguments": ["target"]}, "put_text": "write"}
    )
    talk = begun()
    ident = f"call-{len(talk.ledger.entries)}"
    gone = [changes(talk, "put_text", content="print(1)\n")]
    talk.model(("", (call(ident, "fetch_text", target="src/a.py"),)))
    again = talk.client("tool", CLAUDE, ident)

    assert told(talk, *gone) == {}
    assert '"content": "print(1)\\n"' in told(talk, *gone, means=replace(MEANS, names=names))[again]


# ---------------------------------------------------------------------------------------------------------------- paths
def test_a_path_from_the_root_and_one_from_the_folder_are_one_file() -> None:
    talk = begun()
    gone = reads(talk, CONTENT, path="/shop/src/a.py")
    again = reads(talk, CLAUDE, path="./src/a.py")

    assert CONTENT in told(talk, gone)[again]


def test_another_file_is_not_given() -> None:
    talk = begun()
    gone = reads(talk, CONTENT, path="data.py")
    reads(talk, CLAUDE, path="a.py")

    assert told(talk, gone) == {}


def test_what_was_read_on_a_branch_that_the_client_left_is_found() -> None:
    talk = begun()
    fork = talk.tip
    reads(talk, CONTENT)
    talk.tip = fork
    talk.client("user", "Do it otherwise")
    again = reads(talk, CLAUDE)

    assert CONTENT in _on_this_path(talk, again)


def _on_this_path(talk: LedgerBuilder, again: str) -> str:
    """What is supplied when only the path at hand is on the line."""
    on_line = {p.path_id for p in talk.story.entries}
    return dict(restore_file_contents(talk.ledger, talk.story, on_line, {again}, MEANS))[again]


@pytest.mark.rows("X-06")
def test_what_was_read_before_the_client_compacted_is_found() -> None:
    """X-06."""
    talk = begun()
    reads(talk, CONTENT)
    before, talk.tip = talk.tip, ""
    talk.client("user", "Summary: the sum is wrong.", adopts=before)
    again = reads(talk, CLAUDE)

    assert CONTENT in _on_this_path(talk, again)


# ----------------------------------------------------------------------------------------------------------------- size
def test_content_larger_than_its_room_is_cut_between_lines_and_says_where_the_rest_is() -> None:
    talk = begun()
    content = "".join(f"{n}\tline of a long file\n" for n in range(2_000))
    earlier = reads(talk, content)
    again = reads(talk, CLAUDE)

    text = told(talk, earlier, means=RestoreOptions(NONCE, count, 1_000))[again]
    shown = text.partition(">>\n")[2].partition("\n<<end")[0]

    assert content.startswith(shown)
    assert shown.endswith("\n")
    assert 800 < count(text) < 1_200
    assert text.endswith(f'Cut here. The rest: stack_recall with ref "{earlier[:12]}".')
