"""Collects what is known for certain about a span of the path: files, commands, decisions and errors from calls and
results, notes made through stack tools, results of frames that returned inside it, and interim summaries by the model.

A file counts as changed only if the call did not fail; a command has the outcome of its newest run. An interim summary
(`stack_frame_summarize`) is used only where the work that it describes leaves the context.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from proxy.core.compaction.trace import UNDONE_LATER, SpanFacts, merge_facts
from proxy.core.context import owner_of
from proxy.core.frames import (
    CHANGED,
    RETURN_STATUSES,
    Frame,
    PathEntry,
    PathState,
    Tree,
    announced_part,
    call_key,
    derive_compaction,
    descendants,
    direct_path,
    file_name_of,
    frame_id_of,
    is_same_file,
    one_spelling,
    subagent_frame_id,
    telling_names,
    temporary_among,
)
from proxy.core.ledger import Call
from proxy.core.observers import (
    BUILD,
    TEST,
    TYPES,
    CommandOutcome,
    CommandRun,
    FileAction,
    FileTexts,
    ItemStatus,
    ObservedError,
    ObservedFile,
    PlanReplaced,
    Step,
    StepObservations,
    ToolRoles,
    TreeMove,
    call_failed,
    changes_before,
    covers,
    decode_json_or_text,
    edit_lines,
    files_touched_by,
    is_refused_by_user,
    iter_touched_files,
    joined_lines,
    last_outcome_by_kind,
    observe,
    observe_commands,
    observe_files,
    programs_in,
    refusals_of,
    resolution_of,
    step_line,
    steps_of,
    tells_of_work,
    texts_in,
    tree_moves_of,
    was_missing,
    what_failed,
    without_earlier_changes,
)
from proxy.core.text import CountTokens, cut_for_display, on_one_line, remove_illegal_xml

RETURNED_FRAMES_TOKENS = 1_200
"""Tokens for the results of all frames returned in one span, and the limits for each of them."""
RETURNED_FRAME_MAX_TOKENS, RETURNED_FRAME_MIN_TOKENS = 350, 40
TOLD_AT_THEIR_END = "frames inside, as told when each ended:"
NOTE_TOOL_NAMES = ("stack_add_artifact", "add_artifact", "stack_add_decision", "add_decision")
"""Names of the tools that note something, also as `op` of the dispatcher tool."""
REASON_SEPARATOR = " (because: "
"""Stands between a noted decision and its reason."""
CHECK_CHARACTERS = 40
"""Characters of the check that is told behind an edit."""
BY_COMMAND, DELETED_BY_COMMAND = "by command", "deleted by command"
"""How a file was changed of which only a command line, or the client's report behind it, tells."""
BY_COMMAND_OR_EARLIER = "by command or earlier"
"""Of a file in git's report of the whole working tree."""
MAX_ENTRIES_NAMED = 1_000
"""The newest entries of a path whose files are told apart."""
UNDONE = "undone"
"""Of a file of which git undid the edits."""
INSIDE, PASSED_LATER = "in a frame inside: ", ", passed later"
"""Of a check that was made in a frame inside the span, and of one that ran again without another edit."""
ALSO_SHOWN_BY = {TYPES: (BUILD, TEST), BUILD: (TYPES, TEST)}
"""Kinds of checks that fail as well if one of this kind does: a build checks types, and a test needs a build."""
MARKED_CHANGES = frozenset({"created", "deleted", BY_COMMAND, BY_COMMAND_OR_EARLIER, DELETED_BY_COMMAND, UNDONE})
"""Changes that are mentioned; plain modification is not."""


def facts_of_span(
    path_state: PathState, path_entries: Sequence[PathEntry], names: ToolRoles, texts: FileTexts | None = None
) -> SpanFacts:
    """The facts of a span whose frames, opened and returned inside it, count for how its checks ended. Its files are
    told apart from all others of the path. `texts` are `texts_of_path`, where the caller has them."""
    inside, path = _entries_of_returned_frames(path_state, path_entries), path_state.entries[-MAX_ENTRIES_NAMED:]
    return facts_of(path_entries, names, inside, path, texts or texts_of_path(path_state, names))


def texts_of_path(path_state: PathState, names: ToolRoles) -> FileTexts:
    """What its newest steps tell of files; read when it is first asked for, up to 0.3 s for 6 MB."""
    return FileTexts(steps_of(path_state.entries[-MAX_ENTRIES_NAMED:]), names)


def _entries_of_returned_frames(path_state: PathState, path_entries: Sequence[PathEntry]) -> Sequence[PathEntry]:
    tree = path_state.tree
    returned = frames_returned_in(tree, path_entries)
    if not returned:
        return ()
    frames = {f.id for frame in returned for f in (frame, *descendants(tree, frame.id))}
    known = set(map(id, path_entries))
    return [p for p in path_state.entries_of(lambda owner: frame_id_of(owner) in frames) if id(p) not in known]


def facts_of(
    path_entries: Iterable[PathEntry],
    names: ToolRoles,
    inside: Sequence[PathEntry] = (),
    path: Sequence[PathEntry] = (),
    texts: FileTexts | None = None,
) -> SpanFacts:
    """Each fact once, in its newest state. `inside` are entries of frames that calls of the span opened and that
    returned in it: their steps count, and their facts are told of them; a check of theirs that ended otherwise is told
    here too. `path` are entries around the span, whose files may have the names of files in it; `texts` (by default
    the span's own) tell what stands around its edits."""
    own = tuple(path_entries)
    in_order = [(number, step, observe(step, names)) for number, step in _steps_in_order(own, inside)]
    reports = any(file.reported for _, _, observed in in_order for file in observed.files)
    own_paths = (file.path for _, _, observed in in_order for file in observed.files)
    shared_names = telling_names((*own_paths, *(file.path for _, file in iter_touched_files(path, names))))
    told = _ToldSteps(
        names,
        shared_names,
        texts or FileTexts([step for _, step, _ in in_order], names),
        changes_before(own, path, names) if reports else {},
    )
    changes = [
        (at, file.path) for at, (*_, seen) in enumerate(in_order) for file in seen.files if file.action != "read"
    ]
    for at, (number, step, observed) in enumerate(in_order):
        commands_run = told.add(step, observed)
        if number is None:
            told.add_inner(step, observed, commands_run)
        else:
            shown = _without_edits_made_later(step, [path for when, path in changes if when >= at], names)
            told.add_own(step, shown, observed, commands_run, is_first=not number)
    return told.facts()


class _ToldSteps:
    """What the steps so far tell, each fact in its newest state."""

    def __init__(
        self, names: ToolRoles, shared_names: Mapping[str, str], texts: FileTexts, before: Mapping[str, str]
    ) -> None:
        self._names = names
        self._shared_names = shared_names
        self._before = before
        """`changes_before` of the span."""
        self._changed: dict[str, str] = {}
        self._read_paths: dict[str, None] = {}
        self._commands: dict[str, str] = {}
        self._decisions: dict[str, None] = {}
        self._errors: dict[ObservedError, int] = {}
        """With the number of commands that had been run then."""
        self._worked: set[str] = set()
        self._said: list[str] = []
        self._told_steps: list[str] = []
        self._edits: list[str] = []
        self._lists_plan = False
        self._steps = 0
        self._tree = _WorkTree(shared_names)
        self._checks_made = _ChecksMade(names, shared_names, texts)

    def add(self, step: Step, observed: StepObservations) -> Sequence[CommandRun]:
        """Count a step, of the span or of a frame inside it; returns the commands that it ran."""
        away = self._tree.are_changes_away
        commands_run = observe_commands(step, self._names, away=True) if away else observed.commands
        self._steps += tells_of_work(step, self._names)
        now_working = _programs_that_worked(step, self._names)
        self._worked |= now_working
        self._errors = {
            error: runs_before
            for error, runs_before in self._errors.items()
            if not (error.command in now_working or _is_mended(error, observed, commands_run))
        }
        return commands_run

    def add_inner(self, step: Step, observed: StepObservations, commands_run: Sequence[CommandRun]) -> None:
        """Tell what a step of a frame inside changes of what was told."""
        self._checks_made.add_inner(step, observed, commands_run, self._told_steps, self._edits)
        self._commands |= {run.command: run.outcome for run in commands_run if run.command in self._commands}

    def add_own(
        self,
        step: Step,
        shown: Step,
        observed: StepObservations,
        commands_run: Sequence[CommandRun],
        *,
        is_first: bool,
    ) -> None:
        """Tell a step of the span; `shown` is what of it is told as done."""
        away = self._tree.are_changes_away
        self._lists_plan = self._lists_plan or any(isinstance(change, PlanReplaced) for change in observed.plan)
        ticks_off_first = is_first and _ticks_off(observed)
        self._said.append(announced_part(step.assistant_text) if ticks_off_first else step.assistant_text)
        _add_step(self._told_steps, step_line(shown, self._names, away=away, names=self._shared_names))
        self._checks_made.add_own(step, self._edits, away=away)
        self._add_files(observed.files)
        for move, result in tree_moves_of(step, self._names):
            self._tree.moves(move, result, self._changed, self._edits)
        for run in commands_run:
            command = f"{run.command} (changes stashed)" if run.kind and run.on_stash else run.command
            self._commands.pop(command, None)
            self._commands[command] = run.outcome
        self._decisions.update(dict.fromkeys((*observed.decisions, *refusals_of(step, self._names))))
        if not any(run.on_stash for run in commands_run):
            self._errors |= dict.fromkeys(observed.errors, len(self._checks_made.runs))

    def _add_files(self, files: Sequence[ObservedFile]) -> None:
        changed = self._changed
        for file in without_earlier_changes(files, self._before):
            if file.action == "read":
                self._read_paths.pop(file.path, None)
                self._read_paths[file.path] = None
            else:
                how = file.action if file.is_certain else _how_by_command(file, changed.get(file.path))
                changed[file.path] = _merge_change_kind(changed.pop(file.path, None), how)
                self._tree.uncommitted.add(file.path)

    def facts(self) -> SpanFacts:
        changed, read_paths = _each_file_once(_without_folders_made_anew(self._changed), self._read_paths)
        endings = ((error.told, self._checks_made.ending_of(error, runs)) for error, runs in self._errors.items())
        return SpanFacts(
            tuple(f"{path} ({how})" if how in MARKED_CHANGES else path for path, how in changed.items()),
            tuple(path for path in read_paths if path not in changed),
            tuple(f"{run}: {state}" if state != "unknown" else run for run, state in self._commands.items()),
            tuple(self._decisions),
            tuple(dict.fromkeys(f"{error} ({ending})" if ending else error for error, ending in endings)),
            self._steps,
            tuple(dict.fromkeys(text.strip() for text in self._said if text.strip())),
            tuple(self._told_steps),
            tuple(self._edits),
            self._lists_plan,
            self._checks_made.outcomes,
            self._shared_names,
            frozenset(self._worked),
        )


def _without_edits_made_later(step: Step, changed: Sequence[str], names: ToolRoles) -> Step:
    """The step without refused edits of files that were `changed` in it or later; a person's refusal stays."""
    failed = [e for e in step.executions if call_failed(e) and not is_refused_by_user(e.result)]
    made_later = [
        execution
        for execution in failed
        if any(
            touched.how == CHANGED and is_same_file(touched.path, path)
            for touched in files_touched_by(execution.call, names)
            for path in changed
        )
    ]
    return replace(step, executions=tuple(e for e in step.executions if e not in made_later)) if made_later else step


def _programs_that_worked(step: Step, names: ToolRoles) -> frozenset[str]:
    """What ran without a failure, as an error names it."""
    well = (execution for execution in step.executions if not call_failed(execution))
    return frozenset(program for execution in well for program in programs_in(execution, names))


def _is_mended(error: ObservedError, observed: StepObservations, runs: Iterable[CommandRun]) -> bool:
    """Whether the file of a refused edit was changed, or the check of an error ran again: either it passed, or it told
    its errors anew."""
    changed = (file.path for file in observed.files if file.action != "read")
    passed = [run.command for run in runs if run.outcome is CommandOutcome.OK and not run.on_stash]
    again = [each.command for each in observed.errors if each.kind == error.kind]
    return (
        any(covers(command, error.check) for command in (*passed, *again))
        if error.kind
        else bool(error.path) and any(is_same_file(error.path, path) for path in changed)
    )


def _steps_in_order(
    path_entries: Iterable[PathEntry], inside: Sequence[PathEntry]
) -> Iterator[tuple[int | None, Step]]:
    """The steps of a span with their numbers, and between them, without a number, those of the frames inside it."""
    if not inside:
        yield from enumerate(steps_of(path_entries))
        return
    own = tuple(path_entries)
    placed: list[tuple[tuple[int, int], int | None, Step]] = [
        (place, number, step)
        for number, (place, step) in enumerate(zip(_places_of_steps(own), steps_of(own), strict=True))
    ]
    placed += [(place, None, step) for place, step in zip(_places_of_steps(inside), steps_of(inside), strict=True)]
    yield from ((number, step) for _, number, step in sorted(placed, key=lambda each: each[0]))


def _places_of_steps(path_entries: Iterable[PathEntry]) -> Iterator[tuple[int, int]]:
    for path_entry in path_entries:
        message = path_entry.message
        if message is not None and message.role == "assistant":
            yield path_entry.entry.seq, path_entry.round.number if path_entry.round else 0


class _ChecksMade:
    """The commands that were run, also in the frames inside the span: what was said of a check in the span is put right
    by a later one there."""

    def __init__(self, names: ToolRoles, shared_names: Mapping[str, str], texts: FileTexts) -> None:
        self.runs: list[CommandRun] = []
        self._names = names
        self._texts = texts
        self._shared_names = shared_names
        self._behind_edit: CommandRun | None = None
        """The check that is told behind the newest edit."""
        self._failing: dict[int, tuple[str, Sequence[str]]] = {}
        """By the place of an edit: what is told of its check, and what failed in that and has not passed since."""
        self._failures: dict[CommandRun, Sequence[str]] = {}
        self._runs_before_change = 0
        """Runs before the newest change of files: whether what failed in them still did, nobody knows."""

    def add_own(self, step: Step, edits: list[str], *, away: bool) -> None:
        """Count a step of the span, call by call: an edit is told with the first check behind it whose outcome is
        known, of several in its step with a test."""
        checks: list[CommandRun] = []
        for execution in step.executions:
            part = Step("", (execution,))
            runs = observe_commands(part, self._names, away=away)
            moves = tuple(tree_moves_of(part, self._names))
            for move, result in moves:
                away = move.leaves_away(result, away=away)
            if edited := edit_lines(part, self._names, self._shared_names, self._texts):
                self._tell_check(checks, edits)
                checks, self._behind_edit = [], None
                edits += edited
            changes_files = any(file.action != "read" for file in observe_files(part, self._names))
            if changes_files or any(move.undone for move, _ in moves):
                self._runs_before_change = len(self.runs)
            checks += [
                run
                for run in runs
                if run.kind and not (run.on_stash or run.behind_changes) and not was_missing(run, part)
            ]
            self._failures |= {run: what_failed(part, run, self._names) for run in runs if _has_failed(run)}
            self.runs += runs
        self._tell_check(checks, edits)

    def _tell_check(self, checks: Sequence[CommandRun], edits: list[str]) -> None:
        self._tell_passed_later(checks, edits)
        before, known = self._behind_edit, list(filter(_is_known, checks))
        is_open = edits and not edits[-1].endswith(UNDONE_LATER) and not (before and _is_known(before))
        if is_open and (known if before else checks):
            check = self._behind_edit = next((run for run in known or checks if run.kind == TEST), (known or checks)[0])
            edits[-1] = edits[-1].removesuffix(_check_text(before) if before else "") + _check_text(check)
            if failing := self._failures.get(check):
                self._failing[len(edits) - 1] = _check_text(check), failing
            self._tell_passed_later(checks[checks.index(check) + 1 :], edits)

    def _tell_passed_later(self, checks: Iterable[CommandRun], edits: list[str]) -> None:
        passed = [run.command for run in checks if run.outcome is CommandOutcome.OK]
        for at, (text, failing) in list(self._failing.items()) if passed else ():
            if left := [each for each in failing if not any(covers(command, each) for command in passed)]:
                self._failing[at] = text, left
                continue
            del self._failing[at]
            if edits[at].endswith(text):
                edits[at] = f"{edits[at].removesuffix(')')}{PASSED_LATER})"

    def add_inner(
        self,
        step: Step,
        observed: StepObservations,
        commands_run: Sequence[CommandRun],
        told_steps: list[str],
        edits: list[str],
    ) -> None:
        """Count a step of a frame inside. Told is what its checks change."""
        if any(file.action != "read" for file in observed.files):
            self._runs_before_change = len(self.runs)
        checks = {run.kind: run for run in commands_run if run.kind and not run.on_stash and not was_missing(run, step)}
        known = last_outcome_by_kind(self.runs)
        passed = {kind: run.outcome is CommandOutcome.OK for kind, run in checks.items()}
        is_news = {
            kind for kind, run in checks.items() if kind in known and (known[kind] != passed[kind]) and _is_known(run)
        }
        if is_news:
            checking = _with_checks(step, self._names, is_news)
            told_steps.append(f"{INSIDE}{step_line(checking, self._names, names=self._shared_names)}")
        self._tell_passed_later(checks.values(), edits)
        self.runs += commands_run

    def ending_of(self, error: ObservedError, runs_before: int) -> str:
        """What the last runs say of an error that was told when so many commands had been run; a failure only if no
        file was changed since."""
        outcomes = self.outcomes
        is_known = outcomes.get(error.kind) or runs_before > self._runs_before_change
        return resolution_of(error, outcomes) if is_known else ""

    @property
    def outcomes(self) -> Mapping[str, bool]:
        """The last outcome of each kind of check, where it is known: a failure only where no run behind it may have
        shown that it was mended."""
        newest = {run.kind: at for at, run in enumerate(self.runs)}
        return {
            kind: passed
            for kind, passed in last_outcome_by_kind(self.runs).items()
            if passed or (newest[kind] >= self._runs_before_change and self._still_fails(newest[kind], kind))
        }

    def _still_fails(self, at: int, kind: str) -> bool:
        return _has_failed(self.runs[at]) and all(
            _has_failed(run) for run in self.runs[at + 1 :] if run.kind in ALSO_SHOWN_BY.get(kind, ())
        )


def _is_known(run: CommandRun) -> bool:
    return run.outcome is not CommandOutcome.UNKNOWN


def _with_checks(step: Step, names: ToolRoles, kinds: Container[str]) -> Step:
    """The calls of a step that ran checks of these kinds."""
    checking = (e for e in step.executions if any(r.kind in kinds for r in observe_commands(Step("", (e,)), names)))
    return Step("", tuple(checking))


class _WorkTree:
    """What git did to the changes that were made so far: an edit that was undone before it was committed is told so."""

    def __init__(self, shared_names: Mapping[str, str]) -> None:
        self._shared_names = shared_names
        self.are_changes_away = False
        self.uncommitted: set[str] = set()
        self._committed_edits = 0
        self._stashed_edits = 0
        self._stashed: set[str] = set()

    def moves(self, move: TreeMove, result: str, changed: dict[str, str], edits: list[str]) -> None:
        """Apply one command to the changed files and the edits told so far."""
        was_away, self.are_changes_away = self.are_changes_away, move.leaves_away(result, away=self.are_changes_away)
        if move.commits:
            self.uncommitted, self._committed_edits = set(), len(edits)
        elif self.are_changes_away and not was_away:
            self._stashed, self._stashed_edits = set(self.uncommitted), len(edits)
        elif move.drops and was_away:
            self._undo(self._stashed, self._stashed_edits, changed, edits)
        elif move.undone and not self.are_changes_away:
            undone = {path for path in self.uncommitted if any(_is_within(path, named) for named in move.undone)}
            self._undo(undone, len(edits), changed, edits)

    def _undo(self, paths: set[str], until: int, changed: dict[str, str], edits: list[str]) -> None:
        tracked = {path for path in paths if changed.get(path) != "created"}  # git leaves alone what it does not know
        for path in [path for path in changed if path in tracked]:
            del changed[path]
            changed[path] = UNDONE
        names = {self._shared_names.get(path) or file_name_of(path) for path in tracked}
        for at in range(self._committed_edits, until):
            if edits[at].partition(":")[0].partition(",")[0] in names and not edits[at].endswith(UNDONE_LATER):
                edits[at] += UNDONE_LATER
        self.uncommitted -= tracked


def _is_within(path: str, named: str) -> bool:
    """Whether git meant the path by `named`, which is one or a folder."""
    inside = direct_path(named).rstrip("/")
    return inside in ("", ".") or f"/{inside}/" in f"/{path.replace(chr(92), '/')}/"


def _without_folders_made_anew(changed: Mapping[str, str]) -> Mapping[str, str]:
    """Without the folders of which a file was changed later than they were deleted."""
    deleted = {path for path, how in changed.items() if how in ("deleted", DELETED_BY_COMMAND)}
    order = {path: at for at, path in enumerate(changed)}
    newest = {
        folder: order[path] for path in changed if deleted and path not in deleted for folder in _folders_of(path)
    }
    return {
        path: how
        for path, how in changed.items()
        if path not in deleted or newest.get(path.strip("/"), -1) < order[path]
    }


def _folders_of(path: str) -> Iterator[str]:
    """The folders that a file is in, each in every way to spell it: a command names it as seen from where it ran."""
    parts = path.replace("\\", "/").strip("/").split("/")
    return ("/".join(parts[start:end]) for end in range(1, len(parts)) for start in range(end))


def _each_file_once(changed: Mapping[str, str], read_paths: Iterable[str]) -> tuple[dict[str, str], dict[str, None]]:
    """Both lists with one spelling for each file."""
    read_paths = tuple(read_paths)
    spelled = one_spelling((*changed, *read_paths))
    kinds: dict[str, str] = {}
    for path, how in changed.items():
        kinds[spelled[path]] = _merge_change_kind(kinds.pop(spelled[path], None), how)
    return kinds, {spelled[path]: None for path in read_paths}


def _ticks_off(observed: StepObservations) -> bool:
    """Whether a call of the group ended an item: its text belongs to what it ended, as the first group of the item that
    it began."""
    return any(
        any(item.status is ItemStatus.COMPLETED for item in change.items)
        if isinstance(change, PlanReplaced)
        else change.status is ItemStatus.COMPLETED
        for change in observed.plan
    )


def _add_step(told: list[str], line: str) -> None:
    if told and line and (joined := joined_lines(told[-1], line)):
        told[-1] = joined
    elif line:
        told.append(line)


def _check_text(run: CommandRun) -> str:
    command = cut_for_display(run.command, CHECK_CHARACTERS)
    return f" (then {command}{f': {run.outcome}' if run.outcome is not CommandOutcome.UNKNOWN else ' was run'})"


def _has_failed(run: CommandRun) -> bool:
    return run.outcome is CommandOutcome.FAILED


def _merge_change_kind(before: str | None, now: str) -> str:
    """A created file stays "created" when it is modified later, and a command is not told beside an edit."""
    if before == "created" and now in ("modified", BY_COMMAND, BY_COMMAND_OR_EARLIER):
        return before
    if before == BY_COMMAND and now == BY_COMMAND_OR_EARLIER:
        return before
    return before if before == "modified" and now in (BY_COMMAND, BY_COMMAND_OR_EARLIER) else now


def _how_by_command(file: ObservedFile, before: str | None) -> str:
    if file.action is FileAction.DELETED:
        return DELETED_BY_COMMAND
    if before and before not in ("deleted", DELETED_BY_COMMAND, UNDONE):
        return before
    return BY_COMMAND_OR_EARLIER if file.reported else BY_COMMAND


def artifacts_in_facts(facts: SpanFacts) -> Sequence[str]:
    """Paths of created and changed files, without deleted and temporary ones, and those that only a command line
    names."""
    others = (" (deleted)", f"{BY_COMMAND})", f" ({BY_COMMAND_OR_EARLIER})", f" ({UNDONE})")
    paths = [path.removesuffix(" (created)") for path in facts.changed if not path.endswith(others)]
    temporary = temporary_among(paths)
    return tuple(path for path in paths if path not in temporary)


# ----------------------------------------------------------------------------------------------- what stands with calls
def frames_returned_in(tree: Tree, path_entries: Sequence[PathEntry]) -> tuple[Frame, ...]:
    """Frames, subagents included, that calls in the span opened and that have returned, in order. Frames opened by one
    of them are left out."""
    opened = frames_opened_in(tree, path_entries)
    if any(frame.origin == "subagent" for frame in tree.frames.values()):
        turns = {p.entry.id: len(p.round.spoken.client_calls) for p in path_entries if p.round}
        delegated = {subagent_frame_id(turn, n) for turn, calls in turns.items() for n in range(calls)}
        opened |= delegated & tree.frames.keys()
    frames = (frame for frame in tree.frames.values() if frame.id in opened and frame.parent not in opened)
    return tuple(frame for frame in frames if frame.status in RETURN_STATUSES)


def frames_opened_in(tree: Tree, path_entries: Iterable[PathEntry]) -> set[str]:
    """Frames opened by stack calls in the span."""
    pushed = [(frame.id, frame.opening) for frame in tree.frames.values() if frame.opening]
    called = stack_call_keys(path_entries) if pushed else ()
    return {frame for frame, opening in pushed if (opening.turn, opening.call) in called}


def describe_returned_frames(frames: Sequence[Frame], count: CountTokens) -> str:
    """One line for each frame with its results, behind a line that says of when they are: what was open or failed then
    may be done now. What the model popped with stays whole where it fits into an equal share of RETURNED_FRAMES_TOKENS:
    the model was told that its results stay."""
    share = max(RETURNED_FRAME_MIN_TOKENS, RETURNED_FRAMES_TOKENS // max(1, len(frames)))
    lines = (
        f"{cut_for_display(f.title)} ({f.id}, {f.status_text}): {_results_within(f, count, share)}" for f in frames
    )
    return "\n".join([TOLD_AT_THEIR_END, *lines]) if frames else ""


def _results_within(frame: Frame, count: CountTokens, share: int) -> str:
    if frame.opening and count(frame.results) <= share:
        return remove_illegal_xml(frame.results).strip()
    compacted = frame.results_compacted if frame.opening else ""
    return derive_compaction(compacted or frame.results, count, min(RETURNED_FRAME_MAX_TOKENS, share))


def stack_call_keys(path_entries: Iterable[PathEntry]) -> set[tuple[str, str]]:
    """Turn and call key of each stack call in the span."""
    return {
        (p.entry.id, call_key(p.round.number, c.id))
        for p in path_entries
        if p.round
        for c in p.round.spoken.proxy_calls
    }


def with_noted_facts(facts: SpanFacts, tree: Tree, path_entries: Sequence[PathEntry]) -> SpanFacts:
    """`facts` plus what stack calls in the span noted on frames, as far as those still have it, plus the notes of
    frames that returned in it."""
    messages = filter(None, (path_entry.message for path_entry in path_entries))
    texts = [_texts_in_call(call) for m in messages for call in m.calls if call.is_stack_call]
    words = {text for op, found in texts if op in NOTE_TOOL_NAMES for text in found}
    said = {text for _, found in texts for text in found}
    frames = frames_returned_in(tree, path_entries)
    inside = [f for frame in frames for f in (frame, *descendants(tree, frame.id))]
    with_results = [f for f in inside if f in frames or f.leaves_only_by_fold]
    artifacts = [a for f in tree.frames.values() for a in f.artifacts if a in words]
    decisions = [d for f in tree.frames.values() for d in f.decisions if _is_noted(d, words)]
    decisions += [str(note) for f in tree.frames.values() for note in f.kept_notes if note.text in said]
    artifacts += [a for f in inside for a in f.artifacts]
    decisions += [d for f in with_results for d in f.noted]
    noted = SpanFacts(
        tuple(dict.fromkeys(map(on_one_line, artifacts))), decisions=tuple(dict.fromkeys(map(on_one_line, decisions)))
    )
    return merge_facts(noted, facts)


def _texts_in_call(call: Call) -> tuple[str, frozenset[str]]:
    """The operation that a stack call asks for, and the texts that it gives."""
    arguments = decode_json_or_text(call.arguments)
    op = arguments.get("op", call.name) if isinstance(arguments, dict) else ""
    return str(op), frozenset(text.strip() for text in texts_in(arguments))


def _is_noted(decision: str, words: Container[str]) -> bool:
    bare, _, reason = decision.partition(REASON_SEPARATOR)
    return decision in words or (bare in words and reason.removesuffix(")") in words)


def summarized_positions(path_state: PathState, path_entries: Sequence[PathEntry]) -> frozenset[int]:
    """Positions in `path_entries` that the newest interim summary of their frame covers."""
    interims = path_state.tree.interim_summaries
    if not interims:
        return frozenset()
    order = {entry: n for n, p in enumerate(path_state.entries) for entry in (p.entry.id, p.path_id)}
    until = {frame: order.get(interim.at, -1) for frame, interim in interims.items()}
    owners = ((position, p, frame_id_of(owner_of(path_state, p))) for position, p in enumerate(path_entries))
    return frozenset(position for position, p, owner in owners if owner in until and order[p.path_id] <= until[owner])


def interim_summary_text(path_state: PathState, path_entries: Sequence[PathEntry]) -> str:
    """Interim summaries that cover some of `path_entries`; empty if none does."""
    positions = summarized_positions(path_state, path_entries)
    frames = dict.fromkeys(frame_id_of(owner_of(path_state, path_entries[position])) for position in sorted(positions))
    return "\n".join(filter(None, (path_state.tree.interim_summaries[frame].model_text for frame in frames)))
