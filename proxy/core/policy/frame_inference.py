"""Infers frames from the client's plan, the user's requests and the results of subagents, without the model's help.

Plan items become frames: planned, entered when the client marks them in progress, ended when it marks them completed. A
user request that starts something else ends the work before it and opens a frame; a "yes", a correction or a follow-up
question continues it. An inferred frame removes nothing from the context (only a fold does), and a frame that the model
pushed is never ended here: inside one, only the plan is followed.

Events are decided at the last client message before the next assistant turn, when every call group has its results.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from proxy.core.compaction import artifacts_in_facts, facts_of, user_messages
from proxy.core.context import entries_owned_by, owner_of
from proxy.core.frames import (
    FINAL_STATUSES,
    MAX_CRITERION_CHARACTERS,
    PLAN_ORIGIN,
    BlockStale,
    DeferredPop,
    Frame,
    FrameEntered,
    FrameEvent,
    FrameInvalidated,
    FrameMoved,
    FramePlanned,
    FramePopped,
    FrameReplanned,
    PathEntry,
    PathState,
    PopDeferred,
    Status,
    Tree,
    ancestors,
    call_key,
    children,
    frame_id,
    frame_id_of,
    invalidation_text,
    is_below_returned_frame,
    is_ended_root,
    names_a_problem,
    outermost_called_frame,
    past_speech_text,
    path_to,
    plan_parent,
    reduce,
    reopen_root,
    results_from_texts,
    results_of_item,
    return_path,
    title_of,
)
from proxy.core.ledger import Entry, Message
from proxy.core.observers import (
    FileAction,
    ItemStatus,
    MirroredItem,
    PlanDiff,
    Step,
    ToolRoles,
    asked_in,
    bare_task,
    continues_by_topic,
    continues_by_wording,
    ends_with_user_message,
    first_user_text,
    observe_files,
    observe_plan,
    queued_words,
    reconcile_plan,
    step_of,
    task_text_of,
    without_task_itself,
)
from proxy.core.text import cut_middle

MAX_RESULTS_LENGTH = 1_200  # characters of closing text kept as results; the frame's log has all of it
MAX_SHORT_RESULTS_LENGTH = 350


class InferenceRules(msgspec.Struct, frozen=True):
    """Whether the client's plan and the user's requests are followed, and the roles of tools."""

    tool_roles: ToolRoles
    follows_plans: bool = True
    follows_requests: bool = True


@dataclass
class _Inference:
    """The tree while events are decided, each applied before the next is decided."""

    tree: Tree
    placed: Sequence[PathEntry]
    path_state: PathState
    entry_id: str
    now: int
    rules: InferenceRules
    events: list[FrameEvent] = field(default_factory=list)
    frames_created: int = 0
    calls_behind: frozenset[str] = frozenset()
    """Calls of the newest group behind the one that changes the plan: what they did is no work of an item that ends."""

    def add_event(self, event: FrameEvent) -> None:
        self.events.append(event)
        self.tree = reduce(self.tree, event, self.now)

    def new_frame_id(self) -> str:
        self.frames_created += 1
        return frame_id(self.entry_id, self.frames_created - 1)


def has_frames_to_infer(
    tree: Tree, called: Message | None, new_entries: Sequence[Entry], rules: InferenceRules
) -> bool:
    """Whether `infer_frames` may decide anything. Told from the tree and the newest assistant message (`called`) alone,
    because a long history comes whole, and most of its call groups mean nothing to any frame."""
    messages = [entry.message for entry in new_entries if entry.message]
    if any(f.origin == "subagent" and f.status is Status.IN_PROGRESS for f in tree.frames.values()):
        return True
    if any(_waiting_items(tree)):
        return True
    if (rules.follows_requests or tree.deferred_pops) and any(asked_in(m).strip() for m in messages):
        return True
    results = [(m, "") for m in messages if m.answers]
    return bool(rules.follows_plans and called and results and observe_plan(step_of(called, results), rules.tool_roles))


def infer_frames(
    path_state: PathState, new_entries: Sequence[Entry], now: int, rules: InferenceRules
) -> tuple[FrameEvent, ...]:
    """Events decided at the last entry of `new_entries`, the client's messages between two assistant turns.
    `path_state` is the path up to the entry before it, `new_entries[:-1]` included."""
    messages = [entry.message for entry in new_entries if entry.message]
    user_texts = [text for m in messages if (text := asked_in(m)).strip()]
    tree = reopen_root(path_state.tree, now) if ends_with_user_message(messages) else path_state.tree
    if not tree.active:
        return ()  # the conversation begins here: all of this is the root's
    inference = _Inference(tree, path_state.entries, path_state, new_entries[-1].id, now, rules)
    _follow_subagents(inference, messages)
    _follow_waiting_items(inference)
    if rules.follows_plans and any(m.answers for m in messages):
        _follow_plan(inference, new_entries)
    if rules.follows_requests and user_texts:
        _follow_request(inference, new_entries, user_texts)
    return tuple(inference.events)


def _follow_plan(inference: _Inference, new_entries: Sequence[Entry]) -> None:
    """Apply to the frames what the calls before `new_entries` did to the client's plan."""
    called = next((p for p in reversed(inference.placed) if (m := p.message) and m.role == "assistant"), None)
    message = called.message if called else None
    if called is None or message is None or not message.calls:
        return
    results = [(m, entry.id) for entry in new_entries if (m := entry.message) and m.answers]
    step = step_of(message, results)
    plan_changes = observe_plan(step, inference.rules.tool_roles)
    if not plan_changes:
        return  # nearly every group: nothing of the path has to be looked at
    group = () if _belongs_to_several_frames(inference, called) else (called.entry.id, *(entry for _, entry in results))
    answered = {entry: m.answers for m, entry in results}
    calls = [call.id for call in message.calls]
    opened, behind = _frame_begun_with(inference.tree, called)
    home = inference.tree.frames[plan_parent(inference.tree)]
    task = {bare_task(home.title), bare_task(home.criteria)}
    for change in plan_changes:
        diff = reconcile_plan(_mirrored_items(inference.tree), without_task_itself(change, task))
        changing = answered.get(change.entry, "")
        is_behind = not opened or changing in behind
        inference.calls_behind = frozenset(calls[calls.index(changing) + 1 :] if changing in calls else ())
        around = _frame_inside(inference.tree, opened, diff) if is_behind else opened
        said = "" if _tells_what_it_mends(step, inference) else message.text
        _apply_plan_diff(inference, diff, group, said, around)
        if around and any(item.frame for item in _items_changed(diff)):
            inference.add_event(BlockStale((opened,)))  # it was written when the call was made
    inference.calls_behind = frozenset()


def _tells_what_it_mends(step: Step, inference: _Inference) -> bool:
    """Whether the text of a group is about a problem, and a call in front of the one that changes the plan edits: the
    text was said before that."""
    before = tuple(e for e in step.executions if e.call.id not in inference.calls_behind)
    edited = observe_files(Step("", before), inference.rules.tool_roles)
    return names_a_problem(step.assistant_text) and any(file.action is not FileAction.READ for file in edited)


def _frame_begun_with(tree: Tree, called: PathEntry) -> tuple[str, frozenset[str]]:
    """The frame on the active path that a call of this message opened, empty without one, and the calls behind that
    call."""
    if called.round is None:
        return "", frozenset()
    calls = [call.id for call in called.round.spoken.message.calls]
    positions = {(called.entry.id, call_key(called.round.number, call)): at for at, call in enumerate(calls)}
    for frame in path_to(tree, tree.active):
        if frame.opening and (at := positions.get((frame.opening.turn, frame.opening.call))) is not None:
            return frame.id, frozenset(calls[at + 1 :])
    return "", frozenset()


def _frame_inside(tree: Tree, opened: str, diff: PlanDiff) -> str:
    """`opened`, if known items above it or beside it are changed: it goes on while they begin and end around it. Empty
    where all that is changed is the frame's own."""
    above = (ancestors(tree, item.frame) for item in _items_changed(diff) if item.frame)
    return opened if opened and any(all(a.id != opened for a in each) for each in above) else ""


def _items_changed(diff: PlanDiff) -> tuple[MirroredItem, ...]:
    """Items with another status than before. A list leaves out what it is not about."""
    return (*diff.entered, *diff.paused, *diff.completed)


def _belongs_to_several_frames(inference: _Inference, called: PathEntry) -> bool:
    """Whether an item must not own this call group: its turn belongs to several frames, or holds the call that opened
    the frame above and would leave the context together with that frame's results."""
    if called.round is None:
        return False
    opened = any(f.opening and f.opening.turn == called.entry.id for f in inference.tree.frames.values())
    return opened or called.entry.id in _split_turns(inference.placed)


def _split_turns(path_entries: Iterable[PathEntry]) -> frozenset[str]:
    """Turns in which the model pushed or popped: their rounds belong to several frames, so no frame can own the whole
    turn."""
    owners: dict[str, str] = {}
    return frozenset(p.entry.id for p in path_entries if p.round and owners.setdefault(p.entry.id, p.owner) != p.owner)


# Status of a frame as the client's plan shows it.
_ITEM_STATUS: Mapping[Status, ItemStatus] = {
    Status.PLANNED: ItemStatus.PLANNED,
    Status.BLOCKED: ItemStatus.PLANNED,
    Status.IN_PROGRESS: ItemStatus.IN_PROGRESS,
    Status.COMPLETED: ItemStatus.COMPLETED,
    Status.FAILED: ItemStatus.COMPLETED,
    Status.INVALIDATED: ItemStatus.REMOVED,
}


def _mirrored_items(tree: Tree) -> list[MirroredItem]:
    """The known plan items, in plan order. Open items of an ended tree are left out: if the client names one again, it
    is planned anew."""
    plan = sorted((f for f in tree.frames.values() if f.origin == "plan"), key=lambda f: f.order)
    dropped_ids = {f.id for f in plan if f.status not in FINAL_STATUSES and is_ended_root(tree, path_to(tree, f.id)[0])}
    return [
        MirroredItem(
            f.id,
            f.client_key or f.title,
            f.title,
            ItemStatus.REMOVED if f.id in dropped_ids else _ITEM_STATUS[_status_of_item(tree, f)],
        )
        for f in plan
    ]


def _status_of_item(tree: Tree, frame: Frame) -> Status:
    """An item that waits for a pop has ended or begun for the client: named again so, it does no second time."""
    waiting = tree.deferred_pops.get(frame.id)
    return waiting.status if waiting and frame.status not in FINAL_STATUSES else frame.status


def _apply_plan_diff(inference: _Inference, changes: PlanDiff, group: tuple[str, ...], said: str, around: str) -> None:
    """Apply a change that the call group `group` made, whose text is `said`. `around`: the frame that it opened, above
    which items begin and end, see `FrameEntered`; empty where they do so in the active one."""
    new_frame_ids: dict[MirroredItem, str] = {}
    opened_in = inference.tree.frames[around].parent if around else ""
    home = plan_parent(inference.tree, opened_in)
    for item in changes.planned:
        new_frame_ids[item] = inference.new_frame_id()
        inference.add_event(
            FramePlanned(new_frame_ids[item], home, item.title, item.title, origin="plan", key=item.key)
        )
    _move_out_of_returned_frames(inference, changes, home)
    for item, title in changes.renamed:
        inference.add_event(FrameReplanned(item.frame, title, title))
    if around:
        _enter_items_around(inference, [new_frame_ids.get(item, item.frame) for item in changes.entered], around)
        _move_out_of_ended_items(inference, (*changes.completed, *changes.paused, *changes.removed), around)
    for item in changes.removed:
        if inference.tree.frames[item.frame].parent != home:
            continue  # it belongs to an earlier request, and stays as it was left there
        if inference.tree.frames[item.frame].status in (Status.PLANNED, Status.BLOCKED):
            inference.add_event(FrameInvalidated(item.frame, "The client took it off its plan."))
        else:
            _end_item(inference, item.frame, Status.INVALIDATED, group)
    completed = [new_frame_ids.get(item, item.frame) for item in changes.completed]
    entered = [new_frame_ids.get(item, item.frame) for item in changes.entered]
    for done in completed:
        if around:
            _complete_item_beside(inference, done, around, said)
        else:
            _complete_item(inference, done, group, said, handed_on=not entered)
    for item in changes.paused:
        _end_item(inference, item.frame, Status.BLOCKED, group)
    if around:
        _move_planned_along(inference, opened_in, around)
    else:
        _move_out_of_returned_frames(inference, changes, home)
        _enter_items(inference, entered, group)


def _enter_items(inference: _Inference, items: Sequence[str], group: tuple[str, ...]) -> None:
    """Begin items with the call group that names them; without any, work goes on in an older one."""
    for item in items:
        frame = inference.tree.frames[item]
        if _may_enter(inference.tree, frame):
            _end_auto_frame(inference)
            inference.add_event(_enter_event(frame, group))
        else:
            _let_wait(inference, item, Status.IN_PROGRESS)
    if not items:
        _resume_open_item(inference)


def _move_out_of_returned_frames(inference: _Inference, changes: PlanDiff, home: str) -> None:
    """Items that the client names again go on where the plan stands now, if the frame around them has returned. Of an
    earlier request's items those do that are begun again; one that is only ticked off was done there."""
    named = (*(item for item, _ in changes.renamed), *changes.entered, *changes.paused, *changes.completed)
    begun = {item.frame for item in changes.entered}
    for known in dict.fromkeys(item.frame for item in named if item.frame):
        frame = inference.tree.frames[known]
        is_left = is_below_returned_frame(inference.tree, frame)
        is_taken_up = known in begun and _is_of_earlier_request(inference.tree, frame)
        if frame.status not in FINAL_STATUSES and (is_left or is_taken_up):
            inference.add_event(FrameMoved(frame.id, home))


def _enter_items_around(inference: _Inference, items: Iterable[str], around: str) -> None:
    """Begin items above a frame that a later call of the same message opened."""
    for item in items:
        frame = inference.tree.frames[item]
        if _may_enter(inference.tree, frame, inference.tree.frames[around].parent):
            inference.add_event(replace(_enter_event(frame), around=around))


def _move_out_of_ended_items(inference: _Inference, ended: Iterable[MirroredItem], around: str) -> None:
    """A frame of the model goes on beside the item that ends around it."""
    ended_ids = {item.frame for item in ended}
    place = inference.tree.frames[around].parent
    while place in ended_ids:
        place = inference.tree.frames[place].parent
    if place != inference.tree.frames[around].parent:
        inference.add_event(FrameMoved(around, place))


def _move_planned_along(inference: _Inference, left: str, around: str) -> None:
    """What the model planned behind a frame that it opened in the same message stays beside that frame, and nothing
    that it planned stays in an item that has ended."""
    opened, place = inference.tree.frames[around], inference.tree.frames[left]
    if opened.parent == left:
        return
    for frame in children(inference.tree, left):
        is_planned = frame.status is Status.PLANNED and not frame.is_inferred
        if is_planned and (frame.order > opened.order or place.status is not Status.IN_PROGRESS):
            inference.add_event(FrameMoved(frame.id, opened.parent))


def _complete_item_beside(inference: _Inference, item_frame: str, around: str, said: str) -> None:
    """End an item beside a frame in which the work goes on."""
    frame, inner = inference.tree.frames[item_frame], inference.tree.active_frame
    if frame.status is Status.IN_PROGRESS:
        _end_item(inference, item_frame, Status.COMPLETED, (), said)
    elif _may_enter(inference.tree, frame, inference.tree.frames[around].parent):
        inference.add_event(_enter_event(frame))
        _end_frame(inference, item_frame, Status.COMPLETED)
        inference.add_event(_enter_event(inner))


def _end_auto_frame(inference: _Inference) -> None:
    """End the automatic frame: the client's plan takes precedence."""
    if inference.tree.active_frame.origin == "auto":
        _end_frame(inference, inference.tree.active, Status.COMPLETED)


def _resume_open_item(inference: _Inference) -> None:
    """Reactivate the next older open item. Of several items in progress, the newest one owns the work until it ends."""
    siblings = (f for f in children(inference.tree, inference.tree.active) if f.origin == "plan")
    in_progress = [f for f in siblings if f.status is Status.IN_PROGRESS]
    if in_progress:
        inference.add_event(_enter_event(max(in_progress, key=lambda f: (f.updated_at, f.order))))


def _enter_event(frame: Frame, taken_entries: tuple[str, ...] = ()) -> FrameEntered:
    return FrameEntered(frame.id, frame.parent, frame.title, frame.criteria, frame.origin, taken_entries)


def _may_enter(tree: Tree, frame: Frame, place: str = "") -> bool:
    """Whether work may pass from `place` (default: the active frame) to `frame`: only the model leaves a frame that it
    pushed."""
    if frame.status not in (Status.PLANNED, Status.BLOCKED) or is_below_returned_frame(tree, frame):
        return False
    ancestor_ids = {a.id for a in ancestors(tree, frame.id)}
    frames_left = (f for f in path_to(tree, place or tree.active) if f.id not in ancestor_ids)
    return all(f.is_inferred for f in frames_left)


def _complete_item(
    inference: _Inference, item_frame: str, group: tuple[str, ...], said: str, *, handed_on: bool
) -> None:
    """End an item; one that never started begins with the group that completes it. `handed_on`: the group only ends the
    item, so it belongs to the frame above. What was `said` with the tick tells of the item that was worked on."""
    frame = inference.tree.frames[item_frame]
    if _is_of_earlier_request(inference.tree, frame):
        _complete_item_beside(inference, item_frame, inference.tree.active, said)
        return
    if frame.status is not Status.IN_PROGRESS:
        if not _may_enter(inference.tree, frame):
            _let_wait(
                inference, item_frame, Status.COMPLETED, said if item_frame in inference.tree.deferred_pops else ""
            )
            return
        said = ""
        _end_auto_frame(inference)
        inference.add_event(_enter_event(frame))
    _end_item(inference, item_frame, Status.COMPLETED, group if handed_on else (), said)


def _end_item(inference: _Inference, frame: str, status: Status, carried: tuple[str, ...], said: str = "") -> None:
    """End an item. While a frame that the model pushed below it is in progress, it only keeps in mind that it has
    ended: the client may not tell it again."""
    if inference.tree.frames[frame].status is not Status.IN_PROGRESS:
        if frame in inference.tree.deferred_pops:
            _let_wait(inference, frame, Status.PLANNED)
        return
    if not _holds_pushed_work(inference.tree, frame):
        _end_frame(inference, frame, status, carried=carried, said=said)
    elif status in FINAL_STATUSES:
        _let_wait(inference, frame, status, said)


def _let_wait(inference: _Inference, item: str, status: Status, said: str = "") -> None:
    """Keep in mind what the client says of an item inside a frame that only the model leaves."""
    if inference.tree.frames[item].status not in FINAL_STATUSES:
        inference.add_event(PopDeferred(item, inference.entry_id, status, said, ""))


def _follow_waiting_items(inference: _Inference) -> None:
    """End and begin the items that the client ended and began inside a frame of the model."""
    for item, change in tuple(_waiting_items(inference.tree)):
        frame = inference.tree.frames[item]
        if frame.status is not Status.IN_PROGRESS:
            inference.add_event(_enter_event(frame))
        if change.status in FINAL_STATUSES:
            _end_frame(inference, item, change.status, said=change.results)


def _waiting_items(tree: Tree) -> Iterator[tuple[str, DeferredPop]]:
    """Items that were changed inside a frame of the model, in which nothing goes on any more; ended ones first."""
    for item, change in sorted(tree.deferred_pops.items(), key=lambda each: each[1].status is Status.IN_PROGRESS):
        frame = tree.frames.get(item)
        if frame is None or frame.origin != PLAN_ORIGIN or change.status is Status.PLANNED:
            continue
        if frame.status is Status.IN_PROGRESS:
            may_change = change.status in FINAL_STATUSES and not _holds_pushed_work(tree, item)
        else:
            may_change = _may_enter(tree, frame)
        if may_change:
            yield item, change


def _holds_pushed_work(tree: Tree, frame: str) -> bool:
    """Whether a frame that the model pushed below this one is in progress."""
    return any(not f.is_inferred and f.status is Status.IN_PROGRESS for f in _descendants_of(tree, frame))


def _descendants_of(tree: Tree, frame: str) -> Iterable[Frame]:
    return (f for f in tree.frames.values() if any(a.id == frame for a in ancestors(tree, f.id)))


def _end_frame(
    inference: _Inference, frame: str, status: Status, *, carried: tuple[str, ...] = (), said: str = ""
) -> None:
    path_state = replace(inference.path_state, tree=inference.tree)
    inference.add_event(
        build_pop_event(
            path_state, frame, status, inference.rules.tool_roles, carried, said, behind=inference.calls_behind
        )
    )


def build_pop_event(  # noqa: PLR0913  a frame's end is these facts
    path_state: PathState,
    frame: str,
    status: Status,
    tool_roles: ToolRoles,
    carried: tuple[str, ...] = (),
    said: str = "",
    *,
    behind: Container[str] = (),
) -> FramePopped:
    """The end of an inferred frame, with the results, artifacts and decisions found in its entries. `said` is the text
    that ended it: said with the tick of an item, or the message that closed a request, also where an item that was left
    open owns that. Calls `behind` that tick tell nothing of it. Frames of the model on the return path that were
    invalidated meanwhile are carried along, because their calls' results must say so."""
    returned_frames = return_path(path_state.tree, frame)
    note = ""
    if (called := outermost_called_frame(returned_frames)) is not None:
        past, unfinished = user_messages(path_state, called)
        note = "\n\n".join(
            filter(None, (*map(invalidation_text, reversed(returned_frames[1:])), past_speech_text(past)))
        )
        carried += unfinished
    path_entries = entries_owned_by(path_state, {frame}, path_state.entries)
    facts = facts_of([p for p in path_entries if not ((m := p.message) and m.answers in behind)], tool_roles)
    origin = path_state.tree.frames[frame].origin
    if origin == PLAN_ORIGIN:
        results = results_of_item(facts.said, said, changed_files=bool(facts.changed))
    elif origin == "auto":  # it ends behind any step, so its last text is often the announcement of the next one
        results = results_of_item(
            facts.said[:-1], facts.said[-1] if facts.said else "", changed_files=bool(facts.changed)
        )
    else:
        texts = [m.text for p in path_entries if (m := p.message) and m.role == "assistant"]
        results = results_from_texts([*texts, said])
    return FramePopped(
        frame,
        status,
        cut_middle(results, lambda text: len(text) <= MAX_RESULTS_LENGTH),
        cut_middle(" ".join(results.split()), lambda text: len(text) <= MAX_SHORT_RESULTS_LENGTH),
        carried=carried,
        tokens=sum(m.tokens for p in path_entries if (m := p.message)),
        artifacts=tuple(artifacts_in_facts(facts)),
        decisions=facts.decisions,
        call_result=note,
    )


def _follow_subagents(inference: _Inference, messages: Sequence[Message]) -> None:
    """End a subagent's frame with the result of its call; if the client went on without that result, the frame is
    blocked."""
    waiting = [f for f in inference.tree.frames.values() if f.origin == "subagent" and f.status is Status.IN_PROGRESS]
    if not waiting:
        return
    results = {m.answers: m for m in messages if m.answers}
    called = next((m for p in reversed(inference.placed) if (m := p.message) and m.role == "assistant"), None)
    called_ids = {call.id for call in called.calls} if called else set()
    for frame in waiting:
        if (result := results.get(frame.client_key)) is not None:
            results_text = results_from_texts([result.text])
            texts = (
                cut_middle(results_text, lambda text: len(text) <= MAX_RESULTS_LENGTH),
                cut_middle(" ".join(results_text.split()), lambda text: len(text) <= MAX_SHORT_RESULTS_LENGTH),
            )
            inference.add_event(FramePopped(frame.id, Status.COMPLETED, *texts, tokens=result.tokens))
        elif frame.client_key in called_ids:
            inference.add_event(FramePopped(frame.id, Status.BLOCKED, "", ""))


def _follow_request(inference: _Inference, new_entries: Sequence[Entry], user_texts: Sequence[str]) -> None:
    """Decide whether a user message continues the work before it or starts a new request."""
    ended_at = _closing_message_index(inference)
    closing = inference.placed[ended_at].message if ended_at is not None else None
    if ended_at is None or closing is None:
        _follow_queued_request(inference, new_entries)
        return
    user_text = "\n".join(user_texts)
    home = _request_parent(inference.tree)
    popped = _popped_request(inference.tree, home)
    continues = continues_by_wording(closing.text, user_text)
    if continues and popped is None:
        return  # mostly it does, and then the work before it need not be looked through
    asked = first_user_text(user_texts, MAX_CRITERION_CHARACTERS) if home.has_no_task else ""
    if task := task_text_of(asked):
        inference.add_event(FrameReplanned(home.id, title_of(task), asked))
    path_state = replace(inference.path_state, tree=inference.tree)
    frames = _frames_of_last_request(inference.tree, home)
    previous_work = entries_owned_by(path_state, frames, inference.placed[: ended_at + 1])
    if not has_tool_calls(path_entry.message for path_entry in previous_work):
        return
    if continues is None:
        opening = "\n".join(m.text for p in previous_work if (m := p.message) and m.role == "user")
        continues = continues_by_topic(opening, closing.text, user_text)
    if popped is not None:
        _begin_request(inference, home, new_entries, popped.criteria if continues else user_text)
    elif not continues:
        _close_request(inference, home, previous_work, closing.text)
        _begin_request(inference, home, new_entries, user_text)


def _follow_queued_request(inference: _Inference, new_entries: Sequence[Entry]) -> None:
    """Begin what the user ordered while the agent worked, beside the request at work: the model is asked to do both,
    and both end when the next one begins."""
    home = _request_parent(inference.tree)
    queued = [words for entry in new_entries if entry.message and (words := queued_words(entry.message))]
    order = "\n".join(queued)
    if home.parent or not queued:
        return
    path_state = replace(inference.path_state, tree=inference.tree)
    frames = _frames_of_last_request(inference.tree, home)
    previous_work = entries_owned_by(path_state, frames, inference.placed)
    continues = continues_by_wording("", order)
    if continues is None:
        opening = "\n".join(asked_in(m) for p in previous_work if (m := p.message))
        continues = continues_by_topic(opening, "", order)
    if continues or not has_tool_calls(path_entry.message for path_entry in previous_work):
        return
    if _open_request(inference.tree) is None:
        _make_first_request(inference, home, previous_work, goes_on=True)
    _begin_request(inference, home, new_entries, order)


def _begin_request(inference: _Inference, home: Frame, new_entries: Sequence[Entry], user_text: str) -> None:
    """Enter the frame of a new request; `new_entries` hold its words."""
    taken_entries = tuple(e.id for e in new_entries[:-1] if e.message and not e.message.answers and asked_in(e.message))
    request_text = first_user_text([user_text], MAX_CRITERION_CHARACTERS)
    inference.add_event(
        FrameEntered(
            inference.new_frame_id(),
            home.id,
            title_of(task_text_of(request_text)),
            request_text,
            "request",
            taken_entries,
        )
    )


def _closing_message_index(inference: _Inference) -> int | None:
    """Index of the assistant text that ended the work for the last request. None inside a frame that the model pushed,
    and where the last turn did not end in text."""
    tree, path_entries = inference.tree, inference.placed
    home = _request_parent(tree)
    if home.parent:
        return None
    roles = ("assistant", "tool")
    index = next(
        (n for n in range(len(path_entries) - 1, -1, -1) if (m := path_entries[n].message) and m.role in roles),
        None,
    )
    message = path_entries[index].message if index is not None else None
    if index is None or message is None or message.role != "assistant" or message.calls or not message.text.strip():
        return None
    owner = frame_id_of(owner_of(replace(inference.path_state, tree=tree), path_entries[index]))
    return index if owner in _frames_of_last_request(tree, home) else None


def _request_parent(tree: Tree) -> Frame:
    """The frame under which requests get their frames."""
    return next(f for f in reversed(path_to(tree, tree.active)) if not f.is_inferred)


def _frames_of_last_request(tree: Tree, home: Frame) -> frozenset[str]:
    """The frames in which the last request was worked on. Before the first request has its frame, the model may have
    answered it in a frame that it pushed, which has ended since."""
    if request := _open_request(tree):
        requests = (request, *_requests_beside(tree, request))
        return frozenset(f.id for each in requests for f in (each, *_descendants_of(tree, each.id)))
    if popped := _popped_request(tree, home):
        return frozenset({home.id, popped.id, *(f.id for f in _descendants_of(tree, popped.id))})
    made = (f.id for f in children(tree, home.id) if f.origin in ("plan", "auto"))
    pushed = (f.id for f in _descendants_of(tree, home.id) if f.opening and f.status in FINAL_STATUSES)
    return frozenset({home.id, *made, *pushed})


def _open_request(tree: Tree) -> Frame | None:
    """The frame of the user's current request, if it has one."""
    return next((f for f in reversed(path_to(tree, tree.active)) if f.origin == "request"), None)


def _popped_request(tree: Tree, home: Frame) -> Frame | None:
    """The user's last request, where the model or a person has ended it already."""
    requests = [f for f in children(tree, home.id) if f.origin == "request"]
    return requests[-1] if requests and _open_request(tree) is None else None


def _requests_beside(tree: Tree, request: Frame) -> tuple[Frame, ...]:
    """Requests that go on beside this one, which the user ordered while they were worked on."""
    beside = (f for f in children(tree, request.parent) if f.origin == "request" and f.id != request.id)
    return tuple(f for f in beside if f.status is Status.IN_PROGRESS)


def has_tool_calls(messages: Iterable[Message | None]) -> bool:
    """Whether there are tool calls that could be folded; talk alone never becomes a frame."""
    return any(m.calls for m in messages if m)


def _is_of_earlier_request(tree: Tree, frame: Frame) -> bool:
    """Whether a frame stands outside of the requests at work."""
    request = _open_request(tree)
    at_work = {each.id for each in (request, *_requests_beside(tree, request))} if request else set()
    return bool(at_work) and all(above.id not in at_work for above in ancestors(tree, frame.id))


def _close_request(inference: _Inference, home: Frame, previous_work: Sequence[PathEntry], closing: str) -> None:
    """End the work for the previous request with its `closing` message. Open items are blocked, so that the client may
    resume them. The first request of a conversation gets its frame only now."""
    request = _open_request(inference.tree)
    path = path_to(inference.tree, inference.tree.active)
    holders = (request, *_requests_beside(inference.tree, request)) if request else (home,)
    below = (f for holder in holders for f in _descendants_of(inference.tree, holder.id))
    beside = [f for f in below if f.origin == "plan" and f not in path]
    for frame in (*reversed(path), *beside):
        if frame.is_inferred and frame.origin != "request" and frame.status is Status.IN_PROGRESS:
            _end_frame(inference, frame.id, Status.COMPLETED if frame.origin == "auto" else Status.BLOCKED)
    if request is None:
        _end_frame(inference, _make_first_request(inference, home, previous_work), Status.COMPLETED, said=closing)
        return
    for each in holders:
        _end_frame(inference, each.id, Status.COMPLETED, said=closing)


def _make_first_request(
    inference: _Inference, home: Frame, previous_work: Sequence[PathEntry], *, goes_on: bool = False
) -> str:
    """Make and enter the frame of the first request, which takes over the work that was the conversation's until now.
    Where it `goes_on`, its open items go along."""
    path_state = replace(inference.path_state, tree=inference.tree)
    split_turns = _split_turns(inference.placed)
    calls = {c.id for p in previous_work if p.entry.id in split_turns and (m := p.message) for c in m.calls}
    own_entries = (p for p in previous_work if owner_of(path_state, p) == home.owner and p.entry.id not in split_turns)
    taken_entries = tuple(
        dict.fromkeys(p.entry.id for p in own_entries if not ((m := p.message) and m.answers in calls))
    )
    texts = [m.text for p in previous_work if (m := p.message) and m.role == "user"]
    request_text = first_user_text(texts or [home.title], MAX_CRITERION_CHARACTERS)
    request_id = inference.new_frame_id()
    event = FrameEntered(
        request_id, home.id, title_of(task_text_of(request_text)), request_text, "request", taken_entries
    )
    if not goes_on:
        inference.add_event(event)
        return request_id
    items = [f for f in children(inference.tree, home.id) if f.origin == "plan" and f.status not in FINAL_STATUSES]
    at_work = next((f.id for f in path_to(inference.tree, inference.tree.active) if f in items), "")
    inference.add_event(replace(event, around=at_work))
    for item in items:
        if item.id != at_work:
            inference.add_event(FrameMoved(item.id, request_id))
    return request_id
