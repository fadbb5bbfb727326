"""The longer job of a coding agent, whatever API it speaks, and what must be true of it afterwards.

The model plans with the client's own tool, opens a frame, writes a file and plans a child beside it (a mixed turn),
looks twice at once (parallel calls), closes the frame, hands a part to a subagent, asks for what the frame held, and
ends. Every call of ours is answered out of the client's sight. Thoughts are bound to what they were made behind, so a
line that is not what the model wrote is refused.

The client brings the calls of its own tools; what it calls them, and how it names a subagent, stands in its test.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_test_provider import ReceivedRequest, ScriptedAnswer, ScriptedCall, ScriptedProvider, answers, call, says
from tests.clients.serving import Served
from tests.clients.story import CLOSING, GREETING, RESULTS

TITLE = "Write the greeting"
PLANNED = "Check the greeting"
ERRAND = "Look around in this repository and say what it holds."
REPORT = "The repository holds a README."
THOUGHT = "First I think about what there is to do, and in which order. "
FILE = "greeting.txt"


@dataclass(frozen=True)
class ClientJob:
    """How a client's model does the job with the client's tools. `delegates` is a call whose prompt is `ERRAND`; what
    follows it, as `waits`, may depend on what came back."""

    plans: ScriptedCall
    writes: ScriptedCall
    looks: tuple[ScriptedCall, ScriptedCall]
    delegates: ScriptedCall | None = None
    waits: Callable[[ReceivedRequest], ScriptedCall] | None = None
    writes_for_sure: bool = True
    """False where a command line writes the file: what one says of files is no artifact."""


def tell(provider: ScriptedProvider, means: ClientJob, is_subagent: Callable[[ReceivedRequest], bool]) -> None:
    """Scripts the job. Requests without tools, such as those for a title, get one."""
    provider.when(lambda received: not received.tool_names, says('{"title": "Greeting"}'), loop=True)
    if means.delegates:
        provider.when(is_subagent, says(REPORT))
    waits = means.waits
    provider.will(
        thinks(means.plans, text="First the plan."),
        thinks(call("stack_frame_push", title=TITLE, successCriteria="The greeting exists.")),
        thinks(means.writes, planned(), text="Now the file."),
        answers("I look at both.", means.looks),
        thinks(call("stack_frame_pop", status="completed", results=RESULTS)),
        *([thinks(means.delegates)] if means.delegates else []),
        *([lambda received: thinks(waits(received))] if waits else []),
        thinks(call("stack_recall", ref=TITLE)),
        says(CLOSING),
    )


def thinks(*made: ScriptedCall, text: str = "") -> ScriptedAnswer:
    return answers(text, made, reasoning=THOUGHT)


def planned() -> ScriptedCall:
    return call("stack_frame_plan", children=[{"title": PLANNED, "successCriteria": "It can be read."}])


def assert_it_was_done(
    provider: ScriptedProvider, proxy: Served, means: ClientJob, said: str, repository: Path, home: Path
) -> None:
    """The file is there, the model had its frames, nobody was refused, and nothing of it shows in what the client
    said or keeps in its home."""
    assert (repository / FILE).read_text() == GREETING
    assert CLOSING in said
    assert [(each.number, each.status) for each in provider.asked if each.status != 200] == []
    assert provider.script.left == 0
    assert_the_tree_holds(proxy, means)
    assert RESULTS in recalled(provider)
    assert "stack_" not in said
    assert [file for folder in (repository, home) for file in files(folder) if b"stack_" in file.read_bytes()] == []


def assert_the_tree_holds(proxy: Served, means: ClientJob) -> None:
    """The frame of the model with its planned child, and the subagent under the conversation that delegated it."""
    rows = proxy.page("/stack/conversations")["conversations"]
    [main] = [row for row in rows if row["parent"] is None]
    assert [row["parent"] for row in rows if row["parent"]] == [main["id"]] * bool(means.delegates)
    frames = proxy.page(f"/stack/conversations/{main['id']}/state")["frames"].values()
    titled = {frame["title"]: frame for frame in frames}
    assert (titled[TITLE]["status"], titled[TITLE]["results"]) == ("completed", RESULTS)
    assert titled[PLANNED]["parentSessionID"] == titled[TITLE]["sessionID"]
    assert [Path(path).name for path in titled[TITLE]["artifacts"]] == [FILE] * means.writes_for_sure


def recalled(provider: ScriptedProvider) -> str:
    """What the model was given for its recall, which is the newest call of ours."""
    newest = provider.asked[-1]
    [asked] = [made.id for made in newest.calls if made.name == "stack_recall"]
    return dict(newest.results)[asked]


def files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def lines(said: str) -> list[dict[str, Any]]:
    """The JSON lines among what a client printed."""
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]
