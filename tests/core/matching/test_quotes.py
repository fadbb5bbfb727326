"""What counts as a quote of a conversation, in whatever way clients write it, and what does not."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.matching.quotes import MAX_COMPARED_CHARACTERS, MessageText, Quote, find_quote, split_into_pieces
from tests.pace import within

BEFORE = "Summarise the conversation between these lines, and leave nothing out that is needed.\n---\n"
BEHIND = "\n---\nAnswer in one paragraph, please, and do not say that you were asked to."


def prose(lines: int, seed: str) -> str:
    random = Random(seed)
    words = ["alpha", "beta", "gamma", "delta", "größe", "path/to", "x = 1", 'say "so"', "C:\\new"]
    return "\n".join(
        "    " * (n % 3) + " ".join(f"{random.choice(words)} {random.randrange(9_999)}" for _ in range(7))
        for n in range(lines)
    )


SAID = [
    said
    for n in range(8)
    for said in (
        MessageText("user", f"Question number {n}: {prose(3, f'user {n}')}"),
        MessageText("assistant", f"I look it up, as you ask: {prose(4, f'assistant {n}')}"),
        MessageText("tool", prose(30, f"tool {n}")),
    )
] + [MessageText("assistant", "That is all I found.\n" + prose(4, "last"))]


def as_dialogue(said: list[MessageText]) -> str:
    return "\n\n".join(f"**{one.role.capitalize()}**: {one.text}" for one in said)


def in_tags(said: list[MessageText]) -> str:
    return "\n".join(f"<{one.role}>{one.text}</{one.role}>" for one in said)


def in_json(said: list[MessageText]) -> str:
    return json.dumps([{"role": one.role, "content": one.text} for one in said], ensure_ascii=False)


def in_json_twice(said: list[MessageText]) -> str:
    return json.dumps(in_json(said), ensure_ascii=False)


def indented(said: list[MessageText]) -> str:
    return textwrap.indent(as_dialogue(said), "    | ")


def in_windows(said: list[MessageText]) -> str:
    return as_dialogue(said).replace("\n", "\r\n")


def cut_short(said: list[MessageText]) -> str:
    short = [
        MessageText(one.role, f"{one.text[:600]}… [truncated]" if one.role == "tool" else one.text) for one in said
    ]
    return as_dialogue(short)


def without_some(said: list[MessageText]) -> str:
    return as_dialogue([one for at, one in enumerate(said) if at % 5])


FORMS = [as_dialogue, in_tags, in_json, in_json_twice, indented, in_windows, cut_short, without_some]


def found(text: str, said: list[MessageText] | None = None) -> Quote | None:
    pieces = split_into_pieces(text)
    assert pieces is not None
    return find_quote(pieces, SAID if said is None else said)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_quote_is_found_in_whatever_form(form: Callable[[list[MessageText]], str]) -> None:
    """From about its beginning to about its end, and never beyond: what stands around it is an instruction."""
    told = form(SAID)
    quote = found(BEFORE + told + BEHIND)

    assert quote is not None
    assert len(BEFORE) <= quote.start < len(BEFORE) + 400
    assert len(BEFORE) + len(told) - 250 < quote.end <= len(BEFORE) + len(told)


def test_an_instruction_that_was_said_before_is_no_part_of_the_quote() -> None:
    """The client asked within the conversation first, and asks anew with all of it quoted."""
    asked = [*SAID, MessageText("user", BEHIND)]
    quote = found(BEFORE + as_dialogue(SAID) + BEHIND, asked[:-1])
    early = found(BEFORE + as_dialogue(SAID) + BEHIND, [MessageText("user", BEHIND), *SAID])

    assert quote is not None
    assert early == quote


# ------------------------------------------------------------------------------------------------------------- no quote
def shuffled(said: list[MessageText]) -> list[MessageText]:
    return Random(7).sample(said, len(said))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (as_dialogue([one for one in SAID if one.role == "tool"]), SAID),
        (as_dialogue(shuffled(SAID)), SAID),
        (as_dialogue(SAID[:2]), SAID),
        (as_dialogue(SAID) + prose(900, "something else"), SAID),
        ("\n".join(f"{one.text}\n{prose(60, f'between {n}')}" for n, one in enumerate(SAID)), SAID),
        (as_dialogue([MessageText(one.role, one.text[:40]) for one in SAID] * 9), SAID),
        (as_dialogue(SAID), []),
        (as_dialogue(SAID), [MessageText("user", "short"), MessageText("assistant", "words")]),
        ("", SAID),
    ],
    ids=["files", "shuffled", "two messages", "a part", "mixed", "beginnings", "nothing said", "little said", "empty"],
)
def test_in_doubt_it_is_no_quote(text: str, said: list[MessageText]) -> None:
    assert found(text, said) is None


def test_what_is_longer_than_anybody_quotes_is_not_looked_at() -> None:
    assert split_into_pieces("x" * (MAX_COMPARED_CHARACTERS + 1)) is None
    assert split_into_pieces("a]" * (MAX_COMPARED_CHARACTERS // 2)) is None


@given(
    st.text(max_size=300), st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text()), max_size=5)
)
def test_any_text_can_be_looked_at(text: str, said: list[tuple[str, str]]) -> None:
    """Whatever is found are places in it."""
    quote = found(text, [MessageText(*one) for one in said])
    assert quote is None or 0 <= quote.start < quote.end <= len(text)


@pytest.mark.parametrize("hostile", ["beginnings", "lines", "one line", "backslashes", "brackets"])
def test_the_work_grows_with_the_length_alone(hostile: str) -> None:
    """10 MB of near matches: a second or two of a thread, where anything quadratic would take hours."""
    near = "\n".join(one.text[:90] for one in SAID)
    text = {
        "beginnings": near,
        "lines": SAID[1].text,
        "one line": SAID[1].text.replace("\n", " "),
        "backslashes": "\\" * 99,
        "brackets": "a]",
    }[hostile]
    text = (text * (10_000_000 // len(text) + 1))[:10_000_000]

    with within(10):
        pieces = split_into_pieces(text)
        assert pieces is None or find_quote(pieces, SAID) is None
