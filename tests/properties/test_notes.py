"""What a note tells of finished work is what happened in it.

A program at random reads, edits, runs checks and follows a plan; the test keeps its own record of all of it, and
compares each note with the record at the moment it was written. The same claims are checked over recorded sessions.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callstack_proxy.config_sources import load_config
from callstack_proxy.replay import player
from callstack_proxy.replay.recording_formats import read_recordings
from callstack_proxy.replay.services import TENANT
from proxy.core.compaction.trace import TRACE_START, parse_traces
from proxy.core.frames.events import FrameFolded, decode_event
from proxy.core.frames.path_state import PathEntry, path_state_at
from proxy.core.ledger.ledger import Ledger
from proxy.core.observers.commands import command_lines_of
from proxy.core.observers.files import FileAction, observe_files
from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES
from proxy.core.observers.step import Step, steps_of
from proxy.core.observers.turns import bare_task
from tests.core.working import GrowingConversation, bash, todo
from tests.properties.depth import searched

RECORDINGS = sorted((Path(__file__).resolve().parents[3] / "shared" / "trajectories").glob("*.jsonl.gz"))
FILES = tuple(f"src/module_{n}.py" for n in range(9))
PADDING = "a line of output that fills the context\n" * 60
ORDER = re.compile(r"<next>(?!open in the plan then:)|\btaken up since\b|Nothing is planned", re.MULTILINE)
FALSE_PRESENT = ("still failing", "up to here")


def section(trace: str, name: str) -> str:
    found = re.search(rf"<{name}>(.*?)</{name}>", trace, re.DOTALL)
    return found[1] if found else ""


def paths_in(trace: str) -> set[str]:
    """The files named in it, without how they were changed."""
    facts = parse_traces(trace).facts
    return {re.sub(r" \([a-z ]+\)\Z", "", path) for path in (*facts.changed, *facts.read)}


# ---------------------------------------------------------------------------------------------------- random programs
CHECKS = {
    "pytest -q": ("4 passed in 1s", "2 failed, 2 passed in 1s"),
    "ruff check .": ("All checks passed!", "a.py:1:2: F401 unused\nFound 1 error."),
    "python -m flake8 .": ("", "python: No module named flake8"),
}
RUNS = st.lists(st.tuples(st.sampled_from(sorted(CHECKS)), st.booleans()), min_size=1, max_size=3)
STEP = st.one_of(
    st.tuples(st.just("read"), st.integers(0, 8)),
    st.tuples(st.just("edit"), st.integers(0, 8)),
    st.tuples(st.just("run"), RUNS),
    st.tuples(st.just("broken"), st.just(0)),
    st.tuples(st.just("next item"), st.just(0)),
)
SAYINGS = st.sampled_from(["", "announces", "tells a problem", "tells an outcome"])


@dataclass
class Played:
    """The conversation, and what each item of its plan did."""

    talk: GrowingConversation = field(default_factory=GrowingConversation)
    item: int = 0
    number: int = 0
    touched: list[list[str]] = field(default_factory=lambda: [[]])
    outcomes: list[dict[str, set[str]]] = field(default_factory=lambda: [{}])

    def todo(self) -> tuple[str, dict[str, Any]]:
        done = [f"[x] Item {n}" for n in range(self.item)]
        return todo(" | ".join([*done, f"[>] Item {self.item}", f"[ ] Item {self.item + 1}"]))

    def words(self, kind: str, item: int) -> str:
        self.number += 1
        name = f"item_{item}_word_{self.number}"
        return {
            "announces": f"Now let me update {name}.",
            "tells a problem": f"The bug is in {name}.",
            "tells an outcome": f"{name} is done and its tests pass.",
        }.get(kind, "")

    def step(self, kind: str, chosen: Any, saying: str) -> None:
        if kind == "next item":
            # What is said with a tick tells of the item that it ends; what it announces is the next one's.
            text = self.words(saying, self.item + (saying == "announces"))
            self.item += 1
            self.touched.append([])
            self.outcomes.append({})
            self.talk.does(self.todo(), results=["ok"], text=text)
            return
        text = self.words(saying, self.item)
        if kind == "run":
            line = "; ".join(command for command, _ in chosen)
            output = "\n".join(CHECKS[command][not passed] for command, passed in chosen)
            for command, passed in chosen:
                self.outcomes[self.item].setdefault(command, set()).add("ok" if passed else "failed")
            self.talk.does(bash(line), results=[f"{output}\n{PADDING}"], text=text)
        elif kind == "broken":
            self.talk.does(("grep", {"pattern": "x"}), results=["ripgrep execution failed"], text=text)
        else:
            path = FILES[chosen]
            self.touched[self.item].append(path)
            arguments = {"filePath": path} | ({"oldString": "a", "newString": "b"} if kind == "edit" else {})
            self.talk.does((kind, arguments), results=[f"done\n{PADDING}"], text=text)


def check_item(trace: str, played: Played, item: int) -> None:
    assert not ORDER.search(trace)
    assert not any(words in trace for words in FALSE_PRESENT)
    named = set(re.findall(r"item_(\d+)_word", section(trace, "results") + section(trace, "said")))
    assert named <= {str(item)}  # results and words of an item are from inside it, or from its tick
    assert "Now let me" not in section(trace, "results")
    for command, told in re.findall(r"(?:^- |; )([a-z][^;:\n]*): (ok|failed)\b", section(trace, "steps"), re.MULTILINE):
        if command in CHECKS:
            assert told in played.outcomes[item].get(command, ())
    newest = list(dict.fromkeys(reversed(played.touched[item])))[:5]
    assert set(newest) <= paths_in(trace)
    assert paths_in(trace) <= set(played.touched[item])


@pytest.mark.rows("S0-54", "S0-55")
@searched(60)
@given(st.lists(st.tuples(STEP, SAYINGS), min_size=8, max_size=24))
def test_what_a_note_tells_of_an_item_is_what_happened_in_it(program: list[tuple[tuple[str, Any], str]]) -> None:
    played = Played()
    played.talk.user("Build the shop.")
    played.talk.does(played.todo(), results=["ok"])
    for (kind, chosen), saying in program:
        played.step(kind, chosen, saying)
    played.talk.says("It is built.").user("Unrelated: translate the letter.").arrives()

    for fold in played.talk.story.tree.removals:
        frame = played.talk.story.tree.frames[fold.frame]
        if match := re.fullmatch(r"Item (\d+)", frame.title):
            check_item(fold.trace, played, int(match[1]))
        assert fold.trace.startswith(TRACE_START)


# ------------------------------------------------------------------------------------------------------------- requests
TASKS = ("Add retries to the client", "Explain the parser", "Mend the cart", "Write a benchmark of the lexer")
OPENINGS = ("Next: {}", "One more thing: {}.", "And now {}", "Also, please {}", "{}.", "Unrelated: {}")
TURN = st.tuples(st.sampled_from(("order", "goes on", "plans")), st.integers(0, len(OPENINGS) - 1), st.booleans())


@pytest.mark.rows("S0-52", "S0-55")
@searched(15)
@given(st.lists(TURN, min_size=3, max_size=7))
def test_each_order_is_one_request_and_its_note_tells_of_its_own_work(program: list[tuple[str, int, bool]]) -> None:
    """The client plans items in the words of the request, and the model may pop the request that it answered."""
    talk = (
        GrowingConversation().user(f"Please {TASKS[0].lower()}.").does(bash("make 0"), results=[PADDING]).says("Yes.")
    )
    begun, is_popped = [TASKS[0]], False
    for kind, opening, pops in program:
        task = TASKS[len(begun) % len(TASKS)] if kind == "order" else begun[-1]
        begun += [task] if kind == "order" or is_popped else []
        said = OPENINGS[opening].format(f"{task[0].lower() if opening else task[0]}{task[1:]}")
        talk.user(said if kind == "order" else "continue")
        if kind == "plans":
            talk.does(todo(f"[>] {task} | [ ] Item"), results=["ok"])
        talk.does(bash(f"make {len(begun) - 1}"), results=[PADDING]).says("Yes.")
        request = talk.story.tree.active_frame
        if is_popped := pops and request.origin == "request":
            talk.pops(request.id, "It works.")
    talk.user("Next task: draw a logo").arrives()
    tree = talk.story.tree

    titles = [bare_task(f.title) for f in tree.frames.values() if f.origin == "request"]
    assert titles == [*map(bare_task, begun), "draw a logo"]
    assert all(f.title == "Item" for f in tree.frames.values() if f.origin == "plan")
    for fold in tree.removals:
        of = [f.id for f in tree.frames.values() if f.origin == "request"].index(fold.frame)
        assert set(re.findall(r"make (\d+)", fold.trace)) <= {str(of)}
        assert f'"{tree.frames[fold.frame].title}"' in fold.trace


# ---------------------------------------------------------------------------------------------------------- recordings
PROVEN = re.compile(r"exit(?:ed)?\s(?:with\s)?(?:code|status)|return_?code|exit_?code", re.IGNORECASE)
ERROR_LINE = re.compile(
    r"^(?:\w*Error: |.*No module named |.*: command not found$|FAILED |error: )|\b[1-9]\d* failed\b", re.MULTILINE
)


async def folds_of(path: Path) -> list[tuple[Ledger, str, FrameFolded]]:
    """All folds of a recording as it is replayed, each with the entry at which it was decided."""
    found = []
    for recording in read_recordings(path, model="", clock="recorded", dialect=""):
        played = player._Player(recording, load_config({}), str(path))
        for number, step in enumerate(recording.steps, 1):
            await played.play_step(number, step)
        store = played._replay.store
        for known in await store.conversations(TENANT, limit=1_000):
            ledger = await store.load(TENANT, known.id)
            assert ledger
            found += [
                (ledger, entry, event)
                for entry, events in ledger.events.items()
                for stored in events
                if stored.kind == "folded" and isinstance(event := decode_event(stored), FrameFolded)
            ]
    return found


def span_of(ledger: Ledger, entry: str, fold: FrameFolded) -> list[PathEntry]:
    inside = set(fold.entries)
    return [p for p in path_state_at(ledger, entry, {}).entries if p.entry.id in inside]


def unproven_failures(span: list[PathEntry]) -> Iterator[str]:
    """Lines of one command whose output shows an error, without an exit code that says otherwise."""
    for step in steps_of(span):
        for execution in step.executions:
            for line in command_lines_of(execution, DEFAULT_TOOL_ROLES):
                simple = not re.search(r"[;&|\n<>]|\b(?:cat|grep|rg|sed|head|tail|git|ls|find)\b", line)
                if simple and ERROR_LINE.search(execution.result) and not PROVEN.search(execution.result):
                    yield " ".join(line.split())


def newest_files(span: list[PathEntry], *, changed: bool) -> list[str]:
    touched: dict[str, None] = {}
    for step in steps_of(span):
        for file in observe_files(Step("", step.executions), DEFAULT_TOOL_ROLES):
            if file.is_certain and (file.action is not FileAction.READ) is changed:
                touched.pop(file.path, None)
                touched[file.path] = None
    return list(touched)[-5:]


@pytest.mark.long
@pytest.mark.rows("S0-54", "S0-55")
@pytest.mark.skipif(not RECORDINGS, reason="the recorded sessions are not beside this checkout")
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.partition(".")[0])
def test_what_the_notes_of_a_recorded_session_tell_is_true(path: Path) -> None:
    for ledger, entry, fold in asyncio.run(folds_of(path)):
        span = span_of(ledger, entry, fold)
        trace = fold.trace
        assert not ORDER.search(trace)
        assert not any(words in trace for words in FALSE_PRESENT)
        told = paths_in(trace)
        changed = newest_files(span, changed=True)
        assert set(changed) <= told
        assert set(newest_files(span, changed=False)[-3:]) <= told
        for command in unproven_failures(span):
            assert f"{command[:70]}: ok" not in section(trace, "steps")
        texts = " ".join(" ".join(m.text.split()) for p in span if (m := p.round.spoken.message if p.round else None))
        for said in section(trace, "said").split("\n\n"):
            for piece in said.split("[...]"):
                words = " ".join(piece.replace("&lt;", "<").replace("ref =", "ref=").split())
                assert words in texts or not words or len(fold.entries) > len(span)
