"""Recorded agent conversations, quoted as clients quote them for a summary: each is found, and none for another.

The recordings are other people's, so they stay outside the project: without them this test skips and says so.
`tests/core/matching/test_quotes.py` holds the same on texts of our own.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.core.matching.quotes import MessageText, Quote, find_quote, split_into_pieces
from tests.laws import text_of

RECORDINGS = Path(__file__).resolve().parents[3] / "shared" / "trajectories"
BEFORE = "Sum up the conversation that follows, with the names of all files and what is open.\n\n"
BEHIND = "\n\nWrite the summary now, as a hand-over for whoever goes on."
CUT = 300
"""Characters that are left of a result where results are cut short."""
LEAST_FOUND = 0.95
LEAST_COVERED = 0.98
"""Of a quote, on average."""

pytestmark = [
    pytest.mark.yardstick,
    pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings are not beside this checkout"),
]

Json = dict[str, Any]


def as_dialogue(messages: list[Json]) -> str:
    return "\n\n".join(f"{m['role'].upper()}: {text_of(m)}{called(m)}" for m in messages)


def called(message: Json) -> str:
    made = message.get("tool_calls") or []
    return "".join(f"\n[{each['function']['name']}: {each['function']['arguments']}]" for each in made)


def cut_short(messages: list[Json]) -> str:
    return as_dialogue([{**m, "content": f"{text_of(m)[:CUT]}..."} if m["role"] == "tool" else m for m in messages])


def in_json(messages: list[Json]) -> str:
    return json.dumps(messages, indent=1)


def said_in(messages: list[Json]) -> list[MessageText]:
    said: list[MessageText] = []
    for message in messages:
        said.append(MessageText(message["role"], text_of(message)))
        said += [MessageText("assistant", each["function"]["arguments"]) for each in message.get("tool_calls") or []]
    return said


@pytest.fixture(scope="module")
def recordings() -> dict[str, list[Json]]:
    told = {file.name: json.loads(gzip.decompress(file.read_bytes())) for file in sorted(RECORDINGS.glob("*.gz"))}
    return {name: [m for m in each["messages"] if m["role"] != "system"] for name, each in told.items()}


@pytest.mark.parametrize("form", [as_dialogue, cut_short, in_json], ids=lambda form: form.__name__)
def test_recordings_are_known_by_their_words(
    recordings: dict[str, list[Json]], form: Callable[[list[Json]], str]
) -> None:
    """None for another, and no word of the instruction."""
    said = {name: said_in(messages) for name, messages in recordings.items()}
    covered: list[float] = []
    for name, messages in recordings.items():
        told = form(messages)
        pieces = split_into_pieces(f"{BEFORE}{told}{BEHIND}")
        assert pieces is not None
        found: dict[str, Quote] = {of: quote for of, each in said.items() if (quote := find_quote(pieces, each))}
        assert found.keys() <= {name}
        for quote in found.values():
            assert len(BEFORE) <= quote.start < quote.end <= len(BEFORE) + len(told), name
            covered.append((quote.end - quote.start) / len(told))
    assert len(covered) >= LEAST_FOUND * len(recordings)
    assert sum(covered) >= LEAST_COVERED * len(covered)
