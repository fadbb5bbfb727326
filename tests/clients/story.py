"""The small job every client is given, and what must be true of it afterwards.

The model works in a frame: it opens one before the client's tool runs and closes it after, and both calls are the
proxy's to answer. The client must see its own tool, the closing words, and nothing else.
"""

from pathlib import Path

from llm_test_provider import ReceivedRequest, ScriptedAnswer, ScriptedProvider, answers, call, calls, says

CLOSING = "All done: the greeting is in its place."
RESULTS = "The tool ran once and the greeting exists."
THOUGHT = "Two sums are wanted, and they can be made at once."
GREETING = "hello from the other side of the stack\n"


def tell(provider: ScriptedProvider, work: ScriptedAnswer) -> None:
    """Scripts the job: open a frame, let the client do `work`, close the frame, say so. A model that thinks about the
    work thinks about its frame too.

    Requests without tools, such as those for a title, get a title.
    """
    thinks = {"reasoning": work.reasoning}
    provider.when(lambda received: not received.tool_names, says("Greeting"), loop=True)
    provider.will(
        calls("stack_frame_push", title="Write the greeting", successCriteria="The greeting exists.").but(**thinks),
        work,
        calls("stack_frame_pop", status="completed", results=RESULTS).but(**thinks),
        says(CLOSING),
    )


def two_and_a_plan() -> ScriptedAnswer:
    """Work with all that a framework must hold together: a thought, words, parallel calls of its tool `add`, and a
    call of ours between them."""
    planned = call("stack_frame_plan", children=[{"title": "Check", "successCriteria": "It is right."}])
    return answers("Both at once.", [call("add", a=2), planned, call("add", a=3)], THOUGHT)


def main_requests(provider: ScriptedProvider) -> list[ReceivedRequest]:
    """What reached the provider with tools, oldest first."""
    return [received for received in provider.asked if received.tool_names]


def assert_the_stack_stayed_hidden(provider: ScriptedProvider, *places: Path | str) -> None:
    """The model had its frame; what the client printed or stored knows nothing of it."""
    asked = main_requests(provider)
    assert len(asked) == 4
    assert all("stack_frame_push" in received.tool_names for received in asked)
    in_frame, after = asked[2], asked[3]
    assert b"Write the greeting" in in_frame.raw
    assert RESULTS.encode() in after.raw
    assert [place for place in places if isinstance(place, str) and "stack_frame" in place] == []
    folders = [place for place in places if isinstance(place, Path)]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    assert [file for file in files if b"stack_frame" in file.read_bytes()] == []
