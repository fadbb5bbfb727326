"""Builds the context: the message list that is sent upstream for the active frame.

context(F) = head + entries owned by the frames on the path root..F, in ledger order. The result of the call that opened
a frame carries its block while it runs and its summary after it returned. Within a frame the list only grows, so the
prompt cache stays valid. Every call is followed by its result. A client's message keeps its bytes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, compress, count
from operator import attrgetter
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from proxy.core.context.role_order import AnswersLeftOut, alternate_roles, append_notes_to_results
from proxy.core.frames import (
    OpeningCall,
    PathEntry,
    PathState,
    Tree,
    call_key,
    descendants,
    frame_id_of,
    groups_that_load,
    path_to,
    visible_owners_of,
)
from proxy.core.ledger import INSTRUCTION_ROLES, EntryKind, Message, Round
from proxy.core.observers import is_closing_message, tells_results

UNANSWERED_CALL_RESULT = "(cancelled: the client returned no result for this call)"
"""Inserted as the result of a call that the client never answered."""
TOLD_CALL_RESULT = "(the client tells the result of this call as text, in its next message)"
"""Inserted where a client without a role for results writes them as the user's words."""


class MessageComposer(Protocol):
    """Writes our own messages in the wire format of the context."""

    def tool_result(self, call: str, text: str) -> Message: ...

    def user_message(self, text: str) -> Message: ...

    def without_reasoning(self, message: Message) -> Message: ...

    def without_unneeded_reasoning(self, message: Message) -> Message: ...

    def without_calls(self, message: Message, calls: Collection[str]) -> Message: ...

    def with_content(self, message: Message, text: str) -> Message: ...

    def joined(self, first: Message, second: Message) -> Message | None: ...

    def assistant_message(self, text: str) -> Message: ...

    def parse_appended_tools(self, wire: str) -> Message: ...


class Context(msgspec.Struct, frozen=True, dict=True):
    """The messages behind the head, in order. `entries` produced them; `left_out` are not shown."""

    messages: tuple[Message, ...]
    entries: frozenset[str]
    left_out: frozenset[str]
    added_tokens: int = 0
    """The part of `tokens` that belongs to messages of the proxy."""
    inherited_message_count: int = 0
    """Number of messages before the first one that the active frame owns; 0 in the root, or if the frame owns none."""

    @cached_property
    def tokens(self) -> int:
        return sum(m.tokens for m in self.messages)


_NO_RESULTS: Mapping[str, Message] = {}


class ContextItem(NamedTuple):
    """A message about to enter the context. `stack_results` are results of stack calls by call id. `unrun_calls` are
    ids of calls in an answer that broke off and that nobody ran. `is_overlay` marks a text of ours attached to an
    entry.

    A tuple instead of a dataclass because one is made per message of every context: that saves a fifth of the time.
    """

    message: Message
    entry: str
    stack_results: Mapping[str, Message] = _NO_RESULTS
    unrun_calls: Collection[str] = ()
    is_overlay: bool = False


_get_path_id = attrgetter("path_id")
_get_entry_id = attrgetter("entry.id")
_get_ids = attrgetter("entry.id", "path_id")


class ContextForm(msgspec.Struct, frozen=True):
    """What a model accepts. `suffixed`: no user message may follow a tool result, so our notes are appended to that
    result. `alternate`: user and assistant must alternate, so our texts join a message beside them. `bound`: reasoning
    is accepted only behind the messages it was made behind, so it is removed from the parent's steps that a narrower
    view shows, and from tool searches of frames that returned. `strips_all`: where reasoning is removed, none is left
    for items that need it elsewhere. `guided`: it gets guidance and tools that stand among the messages.
    `loops_open_with_reasoning`: an answer of a tool loop is refused without its own."""

    suffixed: bool = False
    alternate: bool = False
    bound: bool = False
    strips_all: bool = False
    guided: bool = True
    loops_open_with_reasoning: bool = False

    def without_reasoning(self, message: Message, composer: MessageComposer) -> Message:
        strip = composer.without_reasoning if self.strips_all else composer.without_unneeded_reasoning
        return strip(message)


ANY_FORM = ContextForm()


def build_context(path_state: PathState, composer: MessageComposer, form: ContextForm = ANY_FORM) -> Context:
    """The context of the active frame at the end of `path_state`."""
    selected = path_state.visible_entries
    units = (
        _apply_frame_view(path_state, selected, composer, form)
        if path_state.tree.active
        else _context_items(path_state, selected, composer, form)
    )
    if form.bound and not form.loops_open_with_reasoning and path_state.outliving_entries:
        units = _without_reasoning_of_returned_frames(path_state, units, composer)
    if any(unit.unrun_calls for unit in units):
        units = list(_drop_unrun_calls(units, composer))
    if form.guided:
        units = _with_stack_guidance(path_state, units, composer)
    messages = tuple(_pair_calls_and_results(units, composer))
    inherited = _count_inherited_messages(path_state, selected, units, messages)
    if form.suffixed or form.alternate:
        overlays = {p.path_id for p in selected if p.entry.is_overlay}
        notes = {id(u.message) for u in units if u.entry in overlays}
        traces = {id(u.message) for u in units if not u.entry}
        answers_left_out = AnswersLeftOut(_said_on_path(path_state, units))
        messages = (
            alternate_roles(messages, notes, composer, answers_left_out, traces)
            if form.alternate
            else tuple(append_notes_to_results(messages, notes | traces, composer))
        )
    entries = frozenset([u.entry for u in units if u.entry])
    left_out = frozenset(map(_get_path_id, path_state.entries)) - entries
    return Context(
        messages,
        entries,
        left_out,
        _count_added_tokens(units),
        min(inherited, len(messages)),
    )


def _without_reasoning_of_returned_frames(
    path_state: PathState, units: Iterable[ContextItem], composer: MessageComposer
) -> list[ContextItem]:
    """What outlives its frame stands behind the frame's results now, where the frame's block stood before."""
    moved = {id(p.message) for p in path_state.visible_entries if id(p) in path_state.outliving_entries}
    return [
        unit._replace(message=composer.without_reasoning(unit.message)) if id(unit.message) in moved else unit
        for unit in units
    ]


def build_client_context(
    path_state: PathState, client_messages: Sequence[Message], turn: str, composer: MessageComposer, form: ContextForm
) -> Context:
    """The context for a provider that takes none of our tools: nothing is folded, and no text of ours says that
    something is. It holds the client's own messages, what people said to the model behind the messages where it was
    said, and the hidden rounds of `turn`, which is under way."""
    behind: dict[int, list[ContextItem]] = {}
    rounds: list[ContextItem] = []
    position = -1
    places: dict[str, list[int]] = {}
    for number, message in enumerate(client_messages):
        places.setdefault(message.identity, []).append(number)
    for path_entry in path_state.entries:
        entry = path_entry.entry
        if entry.id == turn:
            rounds += _items_of_entry(path_state, path_entry, composer, form)
        elif entry.kind is EntryKind.USER_OVERLAY and entry.message is not None:
            said = ContextItem(entry.message, path_entry.path_id, is_overlay=True)
            (rounds if rounds else behind.setdefault(position, [])).append(said)
        elif entry.kind is EntryKind.MESSAGE and entry.message is not None:
            known = places.get(entry.message.identity, ())
            position = next((place for place in known if place > position), position)
    muted = {m.identity for p in path_state.entries if (m := _muted_answer(path_state, p))}
    shown = [form.without_reasoning(m, composer) if m.identity in muted else m for m in client_messages]
    units = [*_with_notes_behind(shown, behind), *rounds]
    if any(unit.unrun_calls for unit in units):
        units = list(_drop_unrun_calls(units, composer))
    notes = {id(unit.message) for unit in units if unit.is_overlay}
    messages = tuple(_pair_calls_and_results(units, composer))
    messages = alternate_roles(messages, notes, composer) if notes else messages
    entries = frozenset(map(_get_path_id, path_state.entries))
    return Context(messages, entries, frozenset(), _count_added_tokens([u for u in units if u.entry]))


def _muted_answer(path_state: PathState, path_entry: PathEntry) -> Message | None:
    """An answer whose reasoning has to be left out."""
    if path_entry.entry.id not in path_state.tree.without_reasoning:
        return None
    said = path_entry.message
    return said if said is not None and said.role == "assistant" else None


def _with_notes_behind(
    messages: Sequence[Message], behind: Mapping[int, Sequence[ContextItem]]
) -> Iterator[ContextItem]:
    """The client's messages, each with the notes that stand behind it; never between results of one group of calls."""
    waiting = list(behind.get(-1, ()))
    for number, message in enumerate(messages):
        if not message.is_result:
            yield from waiting
            waiting = []
        yield ContextItem(message, "")
        waiting += behind.get(number, ())
    yield from waiting


def _said_on_path(path_state: PathState, units: Iterable[ContextItem]) -> Iterator[Message | None]:
    """What was said on a path, the messages of `units` as they are there."""
    shown = {unit.entry: unit.message for unit in units if unit.entry}
    for path_entry in path_state.entries:
        said = path_entry.message
        yield said if path_entry.round else shown.get(path_entry.path_id, said)


def _with_stack_guidance(
    path_state: PathState, units: list[ContextItem], composer: MessageComposer
) -> list[ContextItem]:
    """Insert the message about the stack tools where the thread woke, else in front of the first assistant message."""
    wake_state = path_state.tree.wake_state
    if wake_state is None or not wake_state.appended:
        return units
    order = {p.path_id: number for number, p in enumerate(path_state.entries)}
    wake_position = max(
        (n for n, p in enumerate(path_state.entries) if wake_state.at in (p.path_id, p.entry.id)), default=-1
    )
    earlier = [number for number, unit in enumerate(units) if order.get(unit.entry, wake_position + 1) <= wake_position]
    answers = (number for number, unit in enumerate(units) if unit.message.role == "assistant")
    position = earlier[-1] + 1 if earlier else next(answers, len(units))
    return [*units[:position], ContextItem(composer.parse_appended_tools(wake_state.appended), ""), *units[position:]]


def _count_inherited_messages(
    path_state: PathState, selected: Sequence[PathEntry], units: Sequence[ContextItem], messages: Sequence[Message]
) -> int:
    frame = path_state.tree.frames.get(path_state.tree.active)
    if frame is None or not frame.parent:
        return 0
    own_entries = {p.path_id for p in selected if owner_of(path_state, p) == frame.owner}
    first_own = next((u.message for u in units if u.entry in own_entries), None)
    return next((number for number, m in enumerate(messages) if m is first_own), 0)


def answers_with_stale_reasoning(
    path_state: PathState, before: Context, after: Context, composer: MessageComposer
) -> tuple[str, ...]:
    """Ids of answers in `after` whose reasoning stands behind the first difference between `before` and `after`."""
    pairs = zip(before.messages, after.messages, strict=False)
    first_change = next(
        (number for number, (old, new) in enumerate(pairs) if old.wire != new.wire), len(before.messages)
    )
    changed = {id(m) for m in after.messages[first_change:]}
    spoken = ((p.entry.id, p.message) for p in path_state.entries)
    answers = ((entry, m) for entry, m in spoken if m and id(m) in changed and m.role == "assistant")
    return tuple(dict.fromkeys(entry for entry, m in answers if composer.without_reasoning(m) is not m))


def entries_after_client_rewrite(path_state: PathState) -> tuple[PathEntry, ...]:
    """Entries kept from the previous path behind the first difference, after the client rewrote its history."""
    previous = replace(path_state, entries=tuple(p for adopted in path_state.adopted.values() for p in adopted))
    old_entries, new_entries = context_entries(previous), context_entries(path_state)
    first_change = next(
        (
            number
            for number, pair in enumerate(zip(old_entries, new_entries, strict=False))
            if _entry_round_key(pair[0]) != _entry_round_key(pair[1])
        ),
        len(old_entries),
    )
    old_ids, new_ids = ({p.entry.id for p in state.entries} for state in (previous, path_state))
    if any(trim.entries & old_ids and not trim.entries & new_ids for trim in path_state.tree.removals):
        first_change = 0  # a trace would replace nothing
    return tuple(p for p in new_entries[first_change:] if p.path_id != p.entry.id)


def _entry_round_key(path_entry: PathEntry) -> tuple[str, int]:
    return path_entry.entry.id, path_entry.round.number if path_entry.round else 0


def _count_added_tokens(units: Iterable[ContextItem]) -> int:
    tokens = 0
    for unit in units:
        if unit.is_overlay or not unit.entry:
            tokens += unit.message.tokens
        elif unit.stack_results:
            tokens += sum([result.tokens for result in unit.stack_results.values()])
    return tokens


def owner_of(path_state: PathState, path_entry: PathEntry) -> str:
    """The segment that owns an entry now; on pop, user messages of the unfinished turn pass to the parent."""
    carried = path_state.tree.carried_owners
    if not carried:
        return path_entry.owner
    return carried.get(path_entry.path_id) or carried.get(path_entry.entry.id, path_entry.owner)


def holder_of(path_state: PathState, path_entry: PathEntry) -> str:
    """The frame that an entry belongs to now; what was done in a plan item before it moved belongs to the frame that it
    left."""
    owner = owner_of(path_state, path_entry)
    return path_state.tree.holder_by_owner.get(owner) or frame_id_of(owner)


def entries_owned_by(
    path_state: PathState, frames: Container[str], path_entries: Iterable[PathEntry]
) -> list[PathEntry]:
    """The entries that any segment of `frames` owns now."""
    carried = path_state.tree.carried_owners
    if not carried:
        return [p for p in path_entries if frame_id_of(p.owner) in frames]
    # `owner_of`, written out: this is asked of every entry of the path.
    return [
        p for p in path_entries if frame_id_of(carried.get(p.path_id) or carried.get(p.entry.id, p.owner)) in frames
    ]


def context_entries(path_state: PathState) -> list[PathEntry]:
    """Entries in the context of the active frame, in ledger order, ignoring the views of frames."""
    return list(compress(path_state.visible_entries, _in_context_flags(path_state, path_state.visible_entries)))


def _in_context_flags(path_state: PathState, path_entries: Sequence[PathEntry]) -> Iterable[bool]:
    return map(path_state.tree.removed_entries.isdisjoint, map(_get_ids, path_entries))


def _context_items(
    path_state: PathState, path_entries: Sequence[PathEntry], composer: MessageComposer, form: ContextForm
) -> list[ContextItem]:
    if not path_state.tree.removed_entries:
        return [unit for p in path_entries for unit in _items_of_entry(path_state, p, composer, form)]
    units: list[ContextItem] = []
    visible = _positions_in_context(path_state, path_entries)
    traces = _traces_by_position(path_state, path_entries, composer)
    for position in sorted(visible | traces.keys()):
        if position in visible:
            units += _items_of_entry(path_state, path_entries[position], composer, form)
        units += traces.get(position, ())
    return units


def _positions_in_context(path_state: PathState, path_entries: Sequence[PathEntry]) -> set[int]:
    """A result leaves with its call: one that the client cleared and gives back whole later is new on the path."""
    visible = set(compress(count(), _in_context_flags(path_state, path_entries)))
    is_shown: dict[str, bool] = {}
    for position, message in enumerate(path_entry.message for path_entry in path_entries):
        if message is not None and not is_shown.get(message.answers, True):
            visible.discard(position)
        for call in message.calls if message is not None else ():
            is_shown[call.id] = position in visible
    return visible


def _traces_by_position(
    path_state: PathState, path_entries: Sequence[PathEntry], composer: MessageComposer
) -> dict[int, list[ContextItem]]:
    """Traces by the position behind which they go, oldest first; -1 is in front of everything. A trace whose entries
    the client all dropped is left out."""
    position = _positions_by_id(path_entries)
    traces: dict[int, list[ContextItem]] = {}
    for trim in path_state.tree.removals:
        if trim.entries.isdisjoint(position):
            continue
        if not trim.at:
            after = -1
        elif trim.at in position:
            after = position[trim.at]
        else:
            after = min([position[entry] for entry in trim.entries if entry in position])
        traces.setdefault(after, []).append(ContextItem(composer.user_message(trim.trace), ""))
    return traces


def _positions_by_id(path_entries: Sequence[PathEntry]) -> dict[str, int]:
    path_ids, entry_ids = list(map(_get_path_id, path_entries)), list(map(_get_entry_id, path_entries))
    positions = dict(zip(path_ids, count(), strict=False))
    if path_ids != entry_ids:
        positions |= {
            entry: number for number, (entry, at) in enumerate(zip(entry_ids, path_ids, strict=True)) if entry != at
        }
    return positions


def _items_of_entry(
    path_state: PathState, path_entry: PathEntry, composer: MessageComposer, form: ContextForm
) -> list[ContextItem]:
    muted = path_entry.entry.id in path_state.tree.without_reasoning
    if path_entry.round is None:
        original = path_entry.entry.message
        if original is not None and (words := path_state.tree.replaced_results.get(path_entry.entry.id)) is not None:
            original = composer.with_content(original, words)
        if original is None:
            return []
        shown = form.without_reasoning(original, composer) if muted else original
        return [ContextItem(shown, path_entry.path_id, is_overlay=path_entry.entry.kind is EntryKind.OVERLAY)]
    message = path_entry.round.spoken.message
    tree = path_state.tree
    has_left = bool(path_entry.inner_calls) and tree.active and path_entry.inner_owner not in tree.visible_owners
    if has_left and not path_state.loads_tools(path_entry):  # results of a group that loaded tools stay
        message = composer.without_calls(message, path_entry.inner_calls)
    if not message.calls and not message.text.strip():
        return []  # an answer that said nothing: providers refuse empty assistant messages
    if muted:
        message = form.without_reasoning(message, composer)
    stored = {r.answers: r for r in path_entry.round.results}
    number = path_entry.round.number
    answered = path_entry.round.spoken.proxy_calls
    texts = {c.id: path_state.tree.result_texts.get((path_entry.entry.id, call_key(number, c.id))) for c in answered}
    results_by_call = {
        call: composer.tool_result(call, text) if text else stored.get(call) for call, text in texts.items()
    }
    stack_results = {call: result for call, result in results_by_call.items() if result}
    unrun: tuple[str, ...] = ()
    if not path_entry.round.spoken.complete:
        unrun = (*(c.id for c in message.calls if c.id not in stack_results), *message.links)
    return [ContextItem(message, path_entry.path_id, stack_results, unrun)]


# --------------------------------------------------------------------------------------------------------------- views
def _apply_frame_view(
    path_state: PathState, selected: Sequence[PathEntry], composer: MessageComposer, form: ContextForm
) -> list[ContextItem]:
    """The whole path, or what the deepest frame with a narrower view sees of its parents."""
    path = path_to(path_state.tree, path_state.tree.active)
    narrow = next((f for f in reversed(path) if f.opening and f.opening.view != "fork"), None)
    if narrow is None or narrow.opening is None:
        return _context_items(path_state, selected, composer, form)
    below = visible_owners_of(path_state.tree, path[path.index(narrow) :])
    inside = {narrow.id, *(frame.id for frame in descendants(path_state.tree, narrow.id))}
    outliving = path_state.outliving_entries
    own: list[PathEntry] = []
    above: list[PathEntry] = []
    for path_entry in selected:
        owner = owner_of(path_state, path_entry)
        is_own = owner in below or (id(path_entry) in outliving and frame_id_of(owner) in inside)
        (own if is_own else above).append(path_entry)
    parent_items = _context_items(
        path_state,
        _visible_parent_entries(path_state.tree, above, narrow.opening, composer),
        composer,
        form,
    )
    text = path_state.tree.result_texts.get((narrow.opening.turn, narrow.opening.call), narrow.opening.block)
    return [
        *(_without_reasoning(parent_items, composer, form) if form.bound else parent_items),
        ContextItem(composer.user_message(f"{narrow.title}\n\n{narrow.criteria}\n\n{text}"), ""),
        *_context_items(path_state, own, composer, form),
    ]


def _visible_parent_entries(
    tree: Tree, above: Sequence[PathEntry], opening: OpeningCall, composer: MessageComposer
) -> list[PathEntry]:
    """User messages and instructions, the closing words before user messages, compactions of the provider, tool
    searches with what they loaded, the view's last call groups before the one that opened the frame, and what was said
    in the turn that did: where the answer breaks off it is all that the user read. A result counts for the nearest call
    before it, because ids repeat."""
    groups = int(opening.view.removeprefix("last:")) if opening.view.startswith("last:") else 0
    calls = [p for p in above if p.round and p.round.spoken.message.calls][:-1]
    always_shown = calls[len(calls) - groups :] if groups else []
    always_shown += [p for p in above if p.entry.id in tree.provider_compactions]
    searches = groups_that_load([path_entry.message for path_entry in above])
    always_shown += [above[position] for search in searches for position in search.positions]
    closing = (p for position, p in enumerate(above) if is_closing_message(above, position))
    always_shown += [p for p in closing if p.entry.id != opening.turn or not p.round]
    links = {link for p in always_shown for link in _links_of(p)}
    wanted = {id(p) for p in always_shown}
    wanted |= {id(p) for p in above if links and not links.isdisjoint(_links_of(p))}
    shown: list[PathEntry] = []
    answered: set[str] = set()
    for path_entry in above:
        message = path_entry.message
        if message and message.role == "assistant":
            answered = {c.id for c in message.calls} if id(path_entry) in wanted else set()
        if id(path_entry) in wanted or _is_user_or_instruction(path_entry) or (message and message.answers in answered):
            shown.append(path_entry)
        elif path_entry.entry.id == opening.turn and path_entry.round and path_entry.round.spoken.message.text.strip():
            shown.append(_text_alone(path_entry, path_entry.round, composer))
    return shown


def _text_alone(path_entry: PathEntry, done: Round, composer: MessageComposer) -> PathEntry:
    """The entry as if its round had called nothing."""
    spoken = replace(done.spoken, message=composer.assistant_message(done.spoken.message.text))
    return replace(path_entry, round=replace(done, spoken=spoken, results=()))


def _links_of(path_entry: PathEntry) -> tuple[str, ...]:
    message = path_entry.message
    return message.links if message else ()


def _without_reasoning(
    units: Iterable[ContextItem], composer: MessageComposer, form: ContextForm
) -> Iterable[ContextItem]:
    for unit in units:
        bare = form.without_reasoning(unit.message, composer) if unit.message.role == "assistant" else unit.message
        yield unit._replace(message=bare)


def _is_user_or_instruction(path_entry: PathEntry) -> bool:
    message = None if path_entry.round else path_entry.entry.message
    return message is not None and (message.role == "user" or message.role in INSTRUCTION_ROLES)


# ------------------------------------------------------------------------------------------------------------- pairing
def _drop_unrun_calls(units: Sequence[ContextItem], composer: MessageComposer) -> Iterable[ContextItem]:
    """Drop calls that nobody ran from answers that broke off, the provider's own among them: the last call is usually
    incomplete, and some providers refuse it. Calls that the client answered are kept."""
    for at, unit in enumerate(units):
        if not unit.unrun_calls or not _client_result_positions(units, at, unit).keys().isdisjoint(unit.unrun_calls):
            yield unit
            continue
        remaining = unit._replace(message=composer.without_calls(unit.message, unit.unrun_calls), unrun_calls=())
        if remaining.message.calls or remaining.message.text.strip():
            yield remaining


def _pair_calls_and_results(units: Sequence[ContextItem], composer: MessageComposer) -> Iterable[Message]:
    """Put each result behind its call, in the client's order if possible, and add a result where one is missing."""
    taken: set[int] = set()
    for at, unit in enumerate(units):
        if at in taken:
            continue
        yield unit.message
        if unit.message.calls and not _has_result_next(units, at, unit):
            answers = _client_result_positions(units, at, unit)
            taken.update(chain.from_iterable(answers.values()))
            yield from _results_in_order(units, at, answers, composer)


def _has_result_next(units: Sequence[ContextItem], at: int, unit: ContextItem) -> bool:
    if unit.stack_results or len(unit.message.calls) != 1 or at + 1 == len(units):
        return False
    following = units[at + 1].message
    return following.is_result and following.answers == unit.message.calls[0].id


def _client_result_positions(units: Sequence[ContextItem], at: int, unit: ContextItem) -> dict[str, deque[int]]:
    """Positions of the client's results for the calls of `unit`, by call id, between the call and the next assistant
    message: of several calls under one id, each has a result of its own."""
    wanted = Counter(call.id for call in unit.message.calls)
    wanted.subtract(unit.stack_results.keys())
    found: dict[str, deque[int]] = {}
    for position in range(at + 1, len(units)):
        message = units[position].message
        if message.role == "assistant":
            break
        if message.is_result and wanted[message.answers] > 0:
            wanted[message.answers] -= 1
            found.setdefault(message.answers, deque()).append(position)
    return found


def _results_in_order(
    units: Sequence[ContextItem], at: int, answers: dict[str, deque[int]], composer: MessageComposer
) -> Iterable[Message]:
    unit = units[at]
    calls, stack_results = unit.message.calls, dict(unit.stack_results)
    if not stack_results and sum(map(len, answers.values())) == len(calls):
        yield from (units[position].message for position in sorted(chain.from_iterable(answers.values())))
        return
    for call in calls:
        waiting = answers.get(call.id)
        if call.id in stack_results and (call.is_stack_call or not waiting):
            yield stack_results.pop(call.id)
        elif waiting:
            yield units[waiting.popleft()].message
        else:
            yield composer.tool_result(call.id, _missing_result(units, at))


def _missing_result(units: Sequence[ContextItem], at: int) -> str:
    """What stands for a result that the client did not send as one."""
    behind = (units[position].message for position in range(at + 1, len(units)))
    following = next((message for message in behind if not message.is_result), None)
    return TOLD_CALL_RESULT if following is not None and tells_results(following) else UNANSWERED_CALL_RESULT


def unpaired_calls(messages: Sequence[Message]) -> tuple[str, ...]:
    """Ids of calls whose results do not all follow directly, one for each result that is missing. Used to check the
    context before it is sent."""
    unpaired: list[str] = []
    for at, message in enumerate(messages):
        if not message.calls:
            continue
        following = messages[at + 1 : at + 1 + len(message.calls)]
        if len(message.calls) == len(following) == 1 and following[0].answers == message.calls[0].id:
            continue
        wanted = Counter(call.id for call in message.calls)
        wanted.subtract(m.answers for m in following if m.is_result)
        unpaired += sorted((+wanted).elements())
    return tuple(unpaired)
