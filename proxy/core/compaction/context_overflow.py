"""Shortens a context that does not fit the model's window: the oldest call groups leave and one trace with a `ref`
replaces them. For clients without a stored conversation the same is done on the request alone.

The head, all user messages, the calls that opened the frames on the path, and the newest call groups always stay. The
closing words that the user read before a message of theirs leave last. A call group leaves as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from proxy.core.compaction.facts import facts_of_span, interim_summary_text
from proxy.core.compaction.kept_user_messages import MAX_QUOTE_TOKENS, words_inside
from proxy.core.compaction.message_groups import group_numbers
from proxy.core.compaction.segments import searches_that_stay
from proxy.core.compaction.trace import BROKEN_SECTION, facts_elements
from proxy.core.context import Context, owner_of
from proxy.core.frames import ContextTrimmed, PathEntry, PathState, call_key, frame_id_of, groups_still_needed, path_to
from proxy.core.ledger import INSTRUCTION_ROLES, Message
from proxy.core.observers import ToolRoles, broken_lines, broken_tools
from proxy.core.text import element, escape_xml, estimate_tokens, text_element, truncate_to_tokens

KEPT_WINDOW_SHARE = 0.6
"""Share of the window that may be used afterwards."""
WITHHELD_RESULT_TEXT = (
    "Error: this answer is left out, because your context window had no room for it. Ask for less of it, or make room: "
    "pop the frame you are in."
)
OVERFLOW_NOTE = "overflow"
MAX_FACTS_TOKENS, FACTS_SHARE = 600, 0.1
"""Tokens, and share of the removed ones, for what the removed steps did, in the note about them."""
MIN_WITHHELD_TOKENS = 100
"""Shorter results are not withheld: the text in their place would be about as long."""


class OverflowNotes(msgspec.Struct, frozen=True):
    """What the note about removed steps is written with: roles of the client's tools, and the conversation's nonce."""

    tool_roles: ToolRoles
    nonce: str


def drop_oldest(path_state: PathState, context: Context, room: int, notes: OverflowNotes) -> ContextTrimmed | None:
    """The event that brings the context down to `room` tokens; None if nothing can leave."""
    excess = context.tokens - room
    groups = _droppable_groups(path_state, context)
    leaving: set[int] = set()
    messages = [list(filter(None, (path_entry.message for path_entry in group))) for group in groups]
    for number in sorted(range(len(groups)), key=lambda at: not any(m.calls or m.answers for m in messages[at])):
        if excess <= 0:
            break
        excess -= sum(_entry_tokens(path_state, p) for p in groups[number])
        leaving.add(number)
    dropped = [group for number, group in enumerate(groups) if number in leaving]
    trace = _overflow_trace(path_state, dropped, notes) if dropped else ""
    if sum(_entry_tokens(path_state, p) for group in dropped for p in group) <= estimate_tokens(trace):
        return None  # the trace would be no shorter
    entries = tuple(dict.fromkeys(p.path_id for group in dropped for p in group))
    return ContextTrimmed(entries, trace, _entry_before(path_state, context, _first_after_seal(path_state, entries)))


def droppable_tokens(path_state: PathState, context: Context, notes: OverflowNotes) -> int:
    """Tokens that removing all groups that may leave would save."""
    groups = _droppable_groups(path_state, context)
    tokens = sum(_entry_tokens(path_state, p) for group in groups for p in group)
    return max(0, tokens - estimate_tokens(_overflow_trace(path_state, groups, notes))) if groups else 0


def withhold_results(path_state: PathState, context: Context, excess: int) -> ContextTrimmed | None:
    """The event that withholds results of stack tools, the longest first, until `excess` tokens are saved; None if none
    is long enough. The block of a frame is never withheld."""
    withheld: list[tuple[str, str]] = []
    for key, tokens in sorted(_withholdable_results(path_state, context), key=lambda answer: -answer[1]):
        if excess <= 0:
            break
        excess -= tokens
        withheld.append(key)
    return ContextTrimmed((), "", answers=tuple(withheld), words=WITHHELD_RESULT_TEXT) if withheld else None


def _withholdable_results(path_state: PathState, context: Context) -> Iterator[tuple[tuple[str, str], int]]:
    """Turn and call of each long result still shown as it was given, with its tokens."""
    shown_wires = {m.wire for m in context.messages if m.answers}
    rounds = [(p.entry.id, p.round) for p in path_state.entries if p.round is not None]
    for turn, stack_round in rounds:
        for result in stack_round.results:
            key = (turn, call_key(stack_round.number, result.answers))
            if (
                result.wire in shown_wires
                and key not in path_state.tree.result_texts
                and result.tokens >= MIN_WITHHELD_TOKENS
            ):
                yield key, result.tokens


def _droppable_groups(path_state: PathState, context: Context) -> list[list[PathEntry]]:
    groups = _joined_by_links(_call_groups([p for p in path_state.entries if p.path_id in context.entries]))
    staying = (
        _opening_turns(path_state)
        | searches_that_stay([p for p in path_state.entries if p.path_id in context.entries])
        | path_state.tree.provider_compactions
        | {p.entry.id for p in path_state.newest_client_entries}
    )
    return [group for group in groups[:-1] if not any(p.entry.id in staying for p in group)]


def _opening_turns(path_state: PathState) -> frozenset[str]:
    """Turns that opened a frame on the path; the results of those calls hold its block, and later its summary."""
    path = path_to(path_state.tree, path_state.tree.active) if path_state.tree.active else ()
    return frozenset(frame.opening.turn for frame in path if frame.opening)


def _call_groups(path_entries: Sequence[PathEntry]) -> list[list[PathEntry]]:
    """Assistant messages with the results that follow, oldest first; all rounds of one entry are one group. User
    messages and instructions belong to no group."""
    groups: list[list[PathEntry]] = []
    for path_entry in path_entries:
        role = path_entry.entry.message.role if path_entry.entry.message else "assistant"
        if role == "user" or role in INSTRUCTION_ROLES:
            continue
        same_entry = bool(groups) and groups[-1][0].path_id == path_entry.path_id
        if path_entry.round is not None or role == "assistant":
            if same_entry:
                groups[-1].append(path_entry)
            else:
                groups.append([path_entry])
        elif groups:
            groups[-1].append(path_entry)
    return groups


def _joined_by_links(groups: list[list[PathEntry]]) -> list[list[PathEntry]]:
    """The groups with those joined that share a link, at the place of the newest of them."""
    messages = [[m for p in group if (m := p.message)] for group in groups]
    if not any(message.links for group in messages for message in group):
        return groups
    flat = [(at, message) for at, group in enumerate(messages) for message in group]
    numbers = group_numbers([message for _, message in flat], [str(at) for at, _ in flat])
    number_of = {at: number for (at, message), number in zip(flat, numbers, strict=True) if message.role == "assistant"}
    joined: dict[int, list[PathEntry]] = {}
    for at, group in enumerate(groups):
        number = number_of.get(at, -at)
        joined[number] = [*joined.pop(number, []), *group]
    return list(joined.values())


def _entry_tokens(path_state: PathState, path_entry: PathEntry) -> int:
    if (replacement := path_state.tree.replaced_results.get(path_entry.entry.id)) is not None:
        return estimate_tokens(replacement)
    if path_entry.round is not None:
        done, texts = path_entry.round, path_state.tree.result_texts
        shown = ((r, texts.get((path_entry.entry.id, call_key(done.number, r.answers)))) for r in done.results)
        return done.spoken.message.tokens + sum(estimate_tokens(text) if text else r.tokens for r, text in shown)
    return path_entry.entry.message.tokens if path_entry.entry.message else 0


def _first_after_seal(path_state: PathState, entries: Sequence[str]) -> str:
    """The first of `entries` behind a compaction of the provider, which ignores all messages before it; else the first
    of all."""
    order = [p.path_id for p in path_state.entries]
    sealed = next(
        (
            i
            for i in range(len(order) - 1, -1, -1)
            if path_state.entries[i].entry.id in path_state.tree.provider_compactions
        ),
        0,
    )
    read_by_provider = set(order[sealed:])
    return next((entry for entry in entries if entry in read_by_provider), entries[0])


def _entry_before(path_state: PathState, context: Context, first: str) -> str:
    """The last entry of the context before `first`; empty if there is none."""
    previous = ""
    for path_entry in path_state.entries:
        if path_entry.path_id == first:
            return previous
        if path_entry.path_id in context.entries:
            previous = path_entry.path_id
    return previous


def _overflow_trace(path_state: PathState, dropped: Sequence[Sequence[PathEntry]], notes: OverflowNotes) -> str:
    """The text that replaces the removed groups: whose they are, a ref to each frame concerned, what they did as far as
    it is known exactly, interim summaries, and the beginning of what the user said in those frames."""
    turns = {p.entry.id for group in dropped for p in group}
    owners = [frame_id_of(owner_of(path_state, p)) for group in dropped for p in group]
    returned = [f.id for f in path_state.tree.frames.values() if f.opening and f.opening.turn in turns]
    refs = ", ".join(f'ref="{frame}"' for frame in dict.fromkeys((*owners, *returned)) if frame)
    span = [p for group in dropped for p in group]
    broken = broken_lines(broken_tools(path_state.entries, notes.tool_roles), frozenset(turns))
    words = interim_summary_text(path_state, span)
    summary = f"Summed up then: {escape_xml(words)}" if words else ""
    spoken = truncate_to_tokens(words_inside(path_state, span, estimate_tokens), MAX_QUOTE_TOKENS, estimate_tokens)
    room = min(MAX_FACTS_TOKENS, int(FACTS_SHARE * sum(_entry_tokens(path_state, p) for p in span)))
    oldest = f"the {len(dropped)} oldest steps" if len(dropped) > 1 else "the oldest step"
    opening = f"This is your own earlier work: {oldest} left your context, which did not fit the window."
    return element(
        "stack-context",
        {"note": OVERFLOW_NOTE, "nonce": notes.nonce},
        f"{opening} Nothing is lost: stack_recall brings them back, with {refs}.",
        *facts_elements(facts_of_span(path_state, span, notes.tool_roles), room, estimate_tokens),
        text_element(BROKEN_SECTION, "\n".join(f"- {line}" for line in broken)) if broken else "",
        summary,
        escape_xml(spoken),
    )


# ---------------------------------------------------------------------------------------------------------- stateless
class ShortenedHistory(msgspec.Struct, frozen=True):
    """A client's history with the dropped groups replaced by `trace`, which goes between `before` and `after`."""

    before: tuple[Message, ...]
    after: tuple[Message, ...]
    dropped_groups: int

    @property
    def trace(self) -> str:
        """Has no ref: the dropped messages exist only in the client's history."""
        return (
            f"<stack-context>The {self.dropped_groups} oldest steps of this work are left out here, "
            f"because they no longer fit "
            "the window. All messages of the user are here.</stack-context>"
        )


def drop_oldest_messages(
    messages: Sequence[Message], room: int, sealed: Callable[[Message], bool] = lambda _: False
) -> ShortenedHistory | None:
    """`messages` shortened to `room` tokens, or None if no group can leave. All user messages, `sealed` messages, the
    searches that loaded tools, and at least the newest group stay."""
    group_of = _group_numbers(messages, sealed)
    group_tokens: dict[int, int] = {}
    for position, group in group_of.items():
        group_tokens[group] = group_tokens.get(group, 0) + messages[position].tokens
    room_left = room - sum(m.tokens for position, m in enumerate(messages) if position not in group_of)
    first_kept = last = max(group_tokens, default=0)
    for group in range(last, 0, -1):
        room_left -= group_tokens[group]
        if room_left < 0:
            break
        first_kept = group
    first_kept = _with_linked(messages, group_of, first_kept)
    dropped = {position for position, number in group_of.items() if number < first_kept}
    if not dropped:
        return None
    head, tail = messages[: min(dropped)], messages[min(dropped) :]
    remaining = tuple(m for position, m in enumerate(tail, min(dropped)) if position not in dropped)
    return ShortenedHistory(tuple(head), remaining, first_kept - 1)


def _with_linked(messages: Sequence[Message], group_of: dict[int, int], first_kept: int) -> int:
    """The first group to keep, so that none of the kept ones shares a link with one that is dropped."""
    begun: dict[str, int] = {}
    linked: dict[int, int] = {}
    for position, group in group_of.items():
        for link in messages[position].links:
            linked[group] = min(linked.get(group, group), begun.setdefault(link, group))
    for group in sorted(linked, reverse=True):
        if group >= first_kept:
            first_kept = min(first_kept, linked[group])
    return first_kept


def _group_numbers(messages: Sequence[Message], sealed: Callable[[Message], bool]) -> dict[int, int]:
    """Group number, counted from 1, by position of assistant messages and their results that may leave."""
    numbered: dict[int, int] = {}
    group, may_leave = 0, False
    searches = {found.positions[0] for found in groups_still_needed(messages)}
    for position, message in enumerate(messages):
        if message.role == "assistant":
            may_leave = not sealed(message) and position not in searches
            group += may_leave
        if may_leave and (message.role == "assistant" or message.answers):
            numbered[position] = group
    return numbered
