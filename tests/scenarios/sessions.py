"""Sessions as scripts that can be read aloud, played over HTTP on both sides, and the frames that came of them.

A script is a line a step:

    user: Fix the failing test.          the user speaks
    run pytest -q -> 2 failed            the model runs a command; behind the arrow is what it gives
    edit src/cart.py                     the model changes a file
    todo: [x] Lexer | [>] Parser         the model states its whole plan: done, under way, or [ ] still to come
    says: It was a typo.                 the model ends its turn

Two steps joined by ` & ` are calls of one message. Each output is `padding` words longer than it says, so that folding
is worth something; each has a number that is found nowhere else.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from callstack_proxy.cli.store_access import opened_store
from callstack_proxy.management import find_by_id
from llm_test_provider import ScriptedAnswer, ScriptedCall, ScriptedProvider, Usage, call, says
from proxy.core.context.message_list import owner_of
from proxy.core.frames import frame_id_of
from proxy.core.frames.path_state import PathState, replay
from proxy.core.frames.tree import Frame, children
from proxy.core.ledger import messages as transcript
from proxy.core.ledger.messages import Message
from tests.harness import Conversation, Json, RunningProxy

MARKS = {"x": "completed", ">": "in_progress", " ": "pending"}
TOOLS = ("bash", "edit", "read", "TodoWrite", "update_plan", "TaskCreate", "TaskUpdate", "task_tracker")
SHOWN = 40
"""Characters of a title or a text in a portrait."""
_ITEM = re.compile(r"\[(.)\]\s*([^|]+?)\s*(?:\||$)")


def todo(items: str) -> ScriptedCall:
    """`[x] Lexer | [>] Parser` as the call of a tool that states the whole list."""
    stated = [{"content": title, "status": MARKS[mark], "activeForm": title} for mark, title in _ITEM.findall(items)]
    return call("TodoWrite", todos=stated)


def made_by(step: str) -> tuple[ScriptedCall, str]:
    """The call of a step, and what it gives back."""
    said, _, result = step.partition(" -> ")
    verb, _, rest = said.strip().partition(" ")
    if verb == "todo:":
        return todo(rest), "Todos have been modified successfully."
    if verb == "edit":
        return call("edit", filePath=rest, oldString="a", newString="b"), result or f"The file {rest} has been updated."
    if verb == "read":
        return call("read", filePath=rest), result or f"the content of {rest}"
    assert verb == "run", step
    return call("bash", command=rest), result or "done"


@dataclass
class Session:
    """One client and its model. `numbered` counts the outputs, `padding` is their length in words; with `thinks` every
    call has a thought before it."""

    chat: Conversation
    provider: ScriptedProvider
    padding: int = 600
    thinks: str = ""
    numbered: int = 0
    usages: list[Usage] = field(default_factory=list)
    """What the provider reports, answer by answer; its own count where there is none."""

    def plays(self, script: str) -> None:
        """Turn after turn; a script may begin where the one before it ended."""
        for asked, steps, closing in turns(script):
            self.turn(asked, *steps, closing=closing)

    def turn(self, asked: str, *steps: str, closing: str) -> None:
        """One request of the user with all that is done for it."""
        groups = [[made_by(part) for part in step.split(" & ")] for step in steps]
        made = [ScriptedAnswer(calls=tuple(one for one, _ in group), reasoning=self.thinks) for group in groups]
        answers = [*made, says(closing)]
        self.provider.will(*(each.but(usage=self.usages.pop(0)) if self.usages else each for each in answers))
        self.chat.says(asked)
        for group in groups:
            self.chat.returns(*(self.output(result) for _, result in group))

    def output(self, result: str) -> str:
        """A result with its number and its padding."""
        self.numbered += 1
        filler = " ".join(f"line{self.numbered}x{n % 7}" for n in range(self.padding // 6))
        return f"{result}\noutput-{self.numbered}-here\n{filler}"

    def outputs_sent(self) -> list[int]:
        """Numbers of the outputs that stood on the newest line."""
        return outputs_in(self.provider.received[-1].messages)


def outputs_in(messages: Sequence[Json]) -> list[int]:
    """Numbers of the outputs in tool results."""
    results = [str(m["content"]) for m in messages if m["role"] == "tool"]
    return [int(n) for result in results for n in re.findall(r"output-(\d+)-here", result)]


def turns(script: str) -> Iterator[tuple[str, list[str], str]]:
    asked, steps = "", list[str]()
    for line in filter(None, map(str.strip, script.splitlines())):
        if line.startswith("user: "):
            asked, steps = line.removeprefix("user: "), []
        elif line.startswith("says: "):
            yield asked, steps, line.removeprefix("says: ")
        else:
            steps.append(line)


# ------------------------------------------------------------------------------------------------------------ portraits
def story_of(proxy: RunningProxy, conversation: str = "", thread: str = "") -> PathState:
    """The newest path of a conversation (the only one), or of one of its threads, as the store has it."""
    at = conversation or proxy.conversations[0]["id"]

    async def read() -> PathState:
        async with opened_store(proxy.config) as store:
            ledger = await find_by_id.ledger_of(store, None, at)
        if not thread:
            return find_by_id.newest_path_state(ledger)
        return replay(ledger, ledger.path(find_by_id.thread_tips(ledger)[thread].id), {})

    return asyncio.run(read())


def portrait(proxy: RunningProxy, conversation: str = "", thread: str = "", *, steps: bool = True) -> str:
    """The tree as text: a line a frame, `origin status: title`, under it what it owns now (results stand with their
    calls and are not told) and then the frames below it."""
    return drawn(story_of(proxy, conversation, thread), steps=steps)


def drawn(path_state: PathState, *, steps: bool = True) -> str:
    """The portrait of a story."""
    lines: list[str] = []

    def draw(frame: Frame, depth: int) -> None:
        pad = "  " * depth
        lines.append(f"{pad}{frame.origin} {frame.status}: {_cut(frame.title)}")
        if steps:
            lines.extend(f"{pad}    {told}" for told in owned(path_state, frame.id))
        for below in children(path_state.tree, frame.id):
            draw(below, depth + 1)

    draw(path_state.tree.root, 0)
    return "\n".join(lines)


def owned(path_state: PathState, frame: str) -> list[str]:
    """What a frame owns, each in a few words, without results."""
    own = (p for p in path_state.entries if frame_id_of(owner_of(path_state, p)) == frame)
    return [told for p in own if (m := p.message) and (told := _told(m))]


def _told(message: Message) -> str:
    if message.answers:
        return ""
    if message.calls:
        return " & ".join(map(_called, message.calls))
    return f"{'user' if message.role == 'user' else 'says'}: {_cut(message.text)}"


def _cut(text: str) -> str:
    return text[:SHOWN].rstrip(" …")


def _called(made: transcript.Call) -> str:
    arguments = json.loads(made.arguments)
    if made.name == "bash":
        return f"run {arguments['command']}"
    if made.name in ("edit", "read"):
        return f"{made.name} {arguments['filePath']}"
    return made.name


def shaped(text: str) -> str:
    """A portrait as it is written in a test: indented like its surroundings."""
    lines = [line for line in text.splitlines() if line.strip()]
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join(line[margin:].rstrip() for line in lines)
