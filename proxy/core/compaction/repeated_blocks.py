"""Leaves blocks of lines out of new tool outputs that stand in the context already (`tidy_outputs: repeats`): in their
place is a line that names the earlier output, and the last line the ref of the stored original.

An earlier output counts while it is in the context as it came. Once it has left, by a fold or because its frame was
popped, or was cleared, the outputs that refer to it are told whole again in the same request: the prefix behind the
place is new by then anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from proxy.core.compaction.tidy_outputs import MAX_TIDIED_CHARACTERS, MIN_SAVED_TOKENS
from proxy.core.compaction.truncate_outputs import OutputRules, describe_call, recall_ref, unread_entries
from proxy.core.frames import PathEntry, PathState, ResultReplaced
from proxy.core.ledger import Call, Message, OpenCalls
from proxy.core.text import CountTokens

REPEATS_REASON, WHOLE_REASON = "repeats", "whole again"
"""The reasons stored with the events."""
MIN_LINES, MIN_CHARACTERS = 8, 400
"""A shorter block is sent again. Its first and its last line always are, to show where it stands."""
_BLOCK_LINE = "[{lines} lines left out: they stand in the earlier result of {call}, entry {ref}]"
_LAST_LINE = '[lines that stand above are left out; as it came: stack_recall with ref="{ref}"]'
_LAST_LINE_BEGIN = _LAST_LINE.partition("{")[0]
_REFERENCE = re.compile(r"^\[\d+ lines left out: they stand in .*, entry (\w+)\]$", re.MULTILINE)


def tell_whole_again(path_state: PathState, in_context: Container[str]) -> tuple[ResultReplaced, ...]:
    """No other text than the stored one for each output that refers to one that is not in the context as it came."""
    replaced = path_state.tree.replaced_results
    if not any(_LAST_LINE_BEGIN in words for words in replaced.values()):
        return ()  # nearly always: nothing of the path has to be looked at
    outputs = [path_entry for path_entry, _, _ in _outputs(path_state, in_context)]
    refs = {recall_ref(path_entry) for path_entry in outputs if path_entry.entry.id not in replaced}
    return tuple(
        ResultReplaced(path_entry.entry.id, "", WHOLE_REASON)
        for path_entry in outputs
        if (words := replaced.get(path_entry.entry.id, "")).endswith(_LAST_LINE.format(ref=recall_ref(path_entry)))
        and not refs.issuperset(_REFERENCE.findall(words))
    )


def leave_out_repeats(
    path_state: PathState,
    in_context: Container[str],
    is_text: Callable[[bytes], bool],
    count: CountTokens,
    rules: OutputRules,
) -> tuple[ResultReplaced, ...]:
    """A shorter text for each output behind the last answer that repeats much. `in_context`: the entries about to be
    sent. What a rule keeps whole stays whole, and so does what quotes a line of ours. `is_text` says of the bytes of a
    message that it holds nothing but text."""
    replaced = path_state.tree.replaced_results
    new = [p.entry for p in unread_entries(path_state) if p.entry.message and p.entry.message.answers]
    unread = {entry.id for entry in new}
    seen = _SeenLines({line for entry in new if entry.message for line in entry.message.text.split("\n")})
    events: list[ResultReplaced] = []
    for path_entry, message, call in _outputs(path_state, in_context) if unread else ():
        ident = path_entry.entry.id
        if ident in replaced or call.is_stack_call or len(message.text) > MAX_TIDIED_CHARACTERS:
            continue
        rule = rules.rule_for(call.name)
        may_change = ident in unread and not message.loaded_tools and not (rule and rule.keep_whole)
        if may_change and is_text(message.wire) and not _REFERENCE.search(message.text):
            words = seen.without_repeats(message.text)
            words = f"{words}\n{_LAST_LINE.format(ref=recall_ref(path_entry))}"
            if message.tokens - count(words) >= MIN_SAVED_TOKENS:
                events.append(ResultReplaced(ident, words, REPEATS_REASON))
                continue
        seen.add(message.text, describe_call(call, rules.names), recall_ref(path_entry))
    return tuple(events)


def _outputs(path_state: PathState, in_context: Container[str]) -> Iterator[tuple[PathEntry, Message, Call]]:
    """The results in the context with their calls, oldest first."""
    calls = OpenCalls[Call]()
    for path_entry in path_state.entries:
        message = path_entry.message
        if message is None:
            continue
        calls.add((call.id, call) for call in message.calls)
        call = calls.find(message.answers) if message.answers else None
        if call is not None and path_entry.path_id in in_context:
            yield path_entry, message, call


class _Seen(NamedTuple):
    lines: list[str]
    call: str
    ref: str


class _SeenLines:
    """The lines of outputs, found by `MIN_LINES` of them in a row: the first place in the newest output. `wanted`: what
    is looked for has no other lines."""

    def __init__(self, wanted: Container[str]) -> None:
        self._wanted = wanted
        self._places: dict[tuple[str, ...], tuple[_Seen, int]] = {}

    def add(self, text: str, call: str, ref: str) -> None:
        seen = _Seen(text.split("\n"), call, ref)
        for at in range(len(seen.lines) - MIN_LINES, -1, -1):
            if seen.lines[at] in self._wanted:
                self._places[tuple(seen.lines[at : at + MIN_LINES])] = (seen, at)

    def without_repeats(self, text: str) -> str:
        """The text with a line in place of each long block that was seen; the block's first and last line stay."""
        lines = text.split("\n")
        kept: list[str] = []
        at = 0
        while at < len(lines):
            seen, length = self._block_at(lines, at)
            left_out = lines[at + 1 : at + length - 1]
            if seen is None or sum(map(len, left_out)) < MIN_CHARACTERS:
                kept += lines[at : at + max(1, length)]
            else:
                note = _BLOCK_LINE.format(lines=len(left_out), call=seen.call, ref=seen.ref)
                kept += [lines[at], note, lines[at + length - 1]]
            at += max(1, length)
        return "\n".join(kept)

    def _block_at(self, lines: list[str], start: int) -> tuple[_Seen | None, int]:
        """The output with the block that begins at `start`, and how many lines it has; (None, 0) if there is none."""
        place = self._places.get(tuple(lines[start : start + MIN_LINES]))
        if place is None:
            return None, 0
        seen, at = place
        length = MIN_LINES
        while start + length < len(lines) and at + length < len(seen.lines):
            if lines[start + length] != seen.lines[at + length]:
                break
            length += 1
        return seen, length
