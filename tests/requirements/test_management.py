"""Rows of the requirements that are seen in the management API alone."""

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Stage, bash, does, op, pop, push


@pytest.mark.rows("S0-16", "D10")
def test_s0_16_files_that_calls_change_are_artifacts_once_and_at_once(stage: Stage, provider: ScriptedProvider) -> None:
    """S0-16: the union of tool argument paths and explicit notes, with how each was touched and when last; what ended
    tells it to the model and to its siblings too."""
    chat = stage.chat(stage.proxy(child_view="isolate"), tools=("bash", "read", "write"))
    provider.will(
        does(push("Auth")),
        does(call("read", filePath="src/old.py"), call("write", filePath="src/auth.py", content="x")),
        does(call("edit", filePath="src/auth.py", oldString="x", newString="y")),
    )
    chat.says("hello")
    chat.returns("old", "written")

    open_frame = chat.proxy.frames()["Auth"]
    assert open_frame["artifacts"] == ["src/auth.py"]
    files = chat.proxy.get(f"/stack/frames/{open_frame['sessionID']}")["files"]
    assert [(f["path"], f["how"]) for f in files] == [("src/old.py", "read"), ("src/auth.py", "changed")]

    provider.will(does(pop("Tokens.\nDecision: rotate daily")), does(push("Docs")), says("ok"))
    chat.returns("edited")

    ended = chat.proxy.frames()["Auth"]
    files = chat.proxy.get(f"/stack/frames/{ended['sessionID']}")["files"]
    assert files[0]["entry"] != files[1]["entry"]
    assert ended["artifacts"] == ["src/auth.py"]
    assert "src/auth.py" in str(stage.lines()[-1][-1]["content"])


@pytest.mark.rows("X-17", "S0-16", "S1-104")
def test_s0_16_files_of_a_configured_tool_are_artifacts_too(stage: Stage, provider: ScriptedProvider) -> None:
    """X-17: of a frame that is open, and of one that the model popped."""
    proxy = stage.proxy(
        observe__put_file__role="edit", observe__put_file__arguments="target", observe__look_up__role="read"
    )
    chat = stage.chat(proxy, tools=("put_file", "look_up"))
    provider.will(
        does(push("Auth")),
        does(call("put_file", target="src/auth.py"), call("look_up", path="docs/a.md")),
    )
    provider.will(does(bash("ls")), does(pop("Tokens.")), says("ok"))
    chat.says("hello")
    chat.returns("put", "# A")

    auth = proxy.frames()["Auth"]["sessionID"]
    assert proxy.frames()["Auth"]["artifacts"] == ["src/auth.py"]
    files = proxy.get(f"/stack/frames/{auth}")["files"]
    assert [(f["path"], f["how"]) for f in files] == [("src/auth.py", "changed"), ("docs/a.md", "read")]
    rows = proxy.get(f"/stack/conversations/{proxy.conversations[0]['id']}/artifacts")["artifacts"]
    assert [row["artifact"] for row in rows] == ["src/auth.py"]
    exported = proxy.file(f"/stack/conversations/{proxy.conversations[0]['id']}/export?format=handover").decode()
    assert "src/auth.py" in exported

    chat.returns("src")

    assert proxy.frames()["Auth"]["artifacts"] == ["src/auth.py"]
    assert "<files>changed: src/auth.py; read: docs/a.md</files>" in str(stage.lines()[-1][-1]["content"])


@pytest.mark.rows("S0-16", "S1-108", "S1-109", "S1-117", "S1-131")
def test_s1_109_the_model_is_told_what_an_open_frame_made_so_far(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(tools=("write",))
    provider.will(does(push("Auth")), does(call("write", filePath="src/auth.py", content="x")))
    asks = (op("details", frameID="Auth"), op("get_summary"), op("tree", showDetails=True), op("get_state"))
    provider.will(does(*asks), says("ok"))
    chat.says("hello")
    chat.returns("written")

    details, summary, tree, state = (message["content"] for message in stage.lines()[-1][-4:])
    assert "artifacts:\n- src/auth.py\n" in details
    assert "artifacts:\n- src/auth.py\n" in summary
    assert "artifacts: src/auth.py" in tree
    assert '"artifacts": ["src/auth.py"]' in state


@pytest.mark.rows("S0-17")
def test_s0_17_decision_lines_of_results_are_decisions(stage: Stage, provider: ScriptedProvider) -> None:
    """S0-17: noted ones, and lines of the results that say they are one."""
    chat = stage.chat()
    provider.will(
        does(push("Auth")),
        does(call("stack", op="add_decision", args={"decision": "use JWT"})),
        does(pop("Works.\nDecision: rotate daily")),
        says("ok"),
    )
    chat.says("hello")

    assert chat.proxy.frames()["Auth"]["decisions"] == ["use JWT", "rotate daily"]


@pytest.mark.rows("S1-36")
def test_s1_36_a_frame_that_nobody_named_says_so(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-36: `auto` marks what was not made by the model."""
    chat = stage.chat()
    provider.will(does(push("Auth")), says("ok"))
    chat.says("Make the login work")

    frames = chat.proxy.frames()
    assert frames["Make the login work"]["auto"] is True
    assert "auto" not in frames["Auth"]


@pytest.mark.rows("X-01", "X-04", "X-19")
def test_x_04_turns_and_retries_are_counted(stage: Stage, provider: ScriptedProvider) -> None:
    """X-01, X-04, X-19: an identical body is a retry of the same turn; a failed call is no turn."""
    chat = stage.chat()
    provider.will(says("one"), says("two"), says("two again"))
    chat.says("hello")
    chat.says("go on")
    chat.history.pop()
    chat.asks()

    row = chat.proxy.conversations[0]
    assert (row["turns"], row["retries"], row["requests"]) == (2, 1, 3)


@pytest.mark.rows("S4-12", "S4-13", "S4-14", "S4-15", "S4-16", "S3-32")
def test_s4_14_calls_tell_their_state_and_results_whether_they_failed(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-12 to S4-16: running while the client is at it, completed or error with the result of its next request."""
    chat = stage.chat()
    provider.will(does(push("Auth")), does(bash("make"), bash("lint"), bash("exit 3")), says("ok"))
    chat.says("hello")
    frame = chat.proxy.frames()["Auth"]["sessionID"]

    def states() -> list[str]:
        return [c["state"] for entry in chat.proxy.log(frame) for c in entry["calls"] if c["name"] == "bash"]

    assert states() == ["running"] * 3
    chat.returns("all built", "Error: no such rule", "no output\nexit code: 3")

    assert states() == ["completed", "error", "error"]
    log = chat.proxy.log(frame)
    assert [entry["error"] for entry in log if entry["role"] == "tool"] == [False, True, True]
    assert [entry["finish"] for entry in log if entry["role"] == "assistant"] == ["tool_calls", "stop"]


@pytest.mark.rows("S4-15", "S1-132")
def test_s4_15_a_mistake_in_a_stack_call_is_an_error_in_the_log(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-15, S1-132: hidden calls have states as well."""
    chat = stage.chat()
    provider.will(does(push("")), does(push("Auth")), says("ok"))
    chat.says("hello")
    root = chat.proxy.conversations[0]["active_frame"]
    above = chat.proxy.get(f"/stack/frames/{root}")["ancestors"][0]

    made = [(c["state"], entry["results"][0]["error"]) for entry in chat.proxy.log(above) for c in entry["calls"]]
    assert made == [("error", True), ("completed", False)]
