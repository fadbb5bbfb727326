"""The demo's own checks can fail: a wrong answer, a leak, a recall that is not what was read, tools that misbehave."""

import json
import re
from pathlib import Path

import pytest

from callstack_proxy.cli.demo.agent import AgentAnswer, ToolCall, Workbench, number_lines
from callstack_proxy.cli.demo.model import DemoModel
from callstack_proxy.cli.demo.project import read_project_file, write_project
from callstack_proxy.cli.demo.run import DemoFailed, check_answer, demo_script
from callstack_proxy.cli.demo.session import DemoTask, push, read, recall, says, says_and_calls
from llm_test_provider import ReceivedRequest

OFFERED = [{"type": "function", "function": {"name": name}} for name in ("read_file", "stack_recall")]


def request(*messages: dict[str, object], tools: list[dict[str, object]] | None = None) -> ReceivedRequest:
    body = {"model": "m", "messages": list(messages), "tools": OFFERED if tools is None else tools}
    return ReceivedRequest(1, "POST", "/v1/chat/completions", "", (), b"", body, 0.0)


def told(text: str = "", *calls: ToolCall, raw: bytes = b"{}") -> AgentAnswer:
    return AgentAnswer(text, calls, "stop", {}, raw, 0.0)


def model(*moves: object) -> DemoModel:
    made = DemoModel([DemoTask("do it", tuple(moves))])  # type: ignore[arg-type]  # moves, whatever built them
    made.begin_request()
    return made


def result(content: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": "c1", "content": content}


def test_the_answer_the_model_gave_passes() -> None:
    player = model(says_and_calls("Reading.", read("a.py")))
    player.answer(request())

    check_answer(1, told("Reading.", ToolCall("c", "read_file", {"path": "a.py"})), player)


def test_another_text_fails() -> None:
    player = model(says("Done."))
    player.answer(request())

    with pytest.raises(DemoFailed, match="the agent was told"):
        check_answer(1, told("Done!"), player)


def test_a_call_too_many_fails() -> None:
    player = model(says("Done."))
    player.answer(request())

    with pytest.raises(DemoFailed, match="the agent was given"):
        check_answer(1, told("Done.", ToolCall("c", "read_file", {"path": "a.py"})), player)


def test_a_trace_of_the_proxy_in_the_bytes_fails() -> None:
    player = model(says("Done."))
    player.answer(request())

    with pytest.raises(DemoFailed, match="leaked"):
        check_answer(1, told("Done.", raw=b'{"name": "stack_frame_push"}'), player)


def test_texts_of_several_rounds_are_one_answer_with_the_clients_calls_only() -> None:
    player = model(
        says_and_calls("First.", push("A", "done")), says_and_calls("Second.", push("B", "done"), read("a.py"))
    )
    player.answer(request())
    player.answer(request(result('<stack-context session="x" frame="fabcdefgh" nonce="n">')))

    assert player.expected_answer == ("First.\n\nSecond.", (("read_file", {"path": "a.py"}),))
    assert player.frames == {"A": "fabcdefgh"}


def test_without_stack_tools_the_model_goes_on_without_them() -> None:
    player = model(says_and_calls("", push("A", "done")), says_and_calls("Both.", push("B", "done"), read("a.py")))
    answer = player.answer(request(tools=[]))

    assert [call.name for call in answer.calls] == ["read_file"]
    assert player.hidden_calls == {}


@pytest.mark.parametrize(("brought", "faults"), [("1: the line", 0), ("1: the lime", 1)])
def test_what_a_recall_brings_is_compared_with_what_was_read(brought: str, faults: int) -> None:
    """S0, X-18: the text is given back unchanged."""
    player = model(says_and_calls("", push("A", "done")), recall("A", "1: the line"), says("Done."))
    player.answer(request())
    player.answer(request(result('<stack-context session="x" frame="fabcdefgh" nonce="n">')))
    player.answer(request(result(f"<<recall>>\n{brought}\n<<end>>")))

    assert (player.recalled, len(player.faults)) == (1 - faults, faults)


def test_a_frame_nobody_told_of_is_not_made_up() -> None:
    player = model(recall("A", "anything"))

    with pytest.raises(LookupError, match="'A'"):
        player.answer(request())


# --------------------------------------------------------------------------------------------------------------- tools
@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    write_project(tmp_path)
    return Workbench(tmp_path)


def run(bench: Workbench, name: str, **arguments: object) -> str:
    return bench.run(ToolCall("c", name, arguments))


def test_a_file_is_read_with_its_line_numbers_and_written_without(bench: Workbench) -> None:
    run(bench, "write_file", path="new/a.txt", content="one\ntwo\n")

    assert run(bench, "read_file", path="new/a.txt") == "    1\tone\n    2\ttwo"
    assert run(bench, "edit_file", path="new/a.txt", old="two", new="three").startswith("Edited")
    assert run(bench, "read_file", path="new/a.txt").endswith("three")


def test_an_edit_that_is_not_unique_is_refused_in_words(bench: Workbench) -> None:
    run(bench, "write_file", path="a.txt", content="x x")

    assert "2 times" in run(bench, "edit_file", path="a.txt", old="x", new="y")


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/hostname"])
def test_nothing_outside_of_the_folder_is_touched(bench: Workbench, path: str) -> None:
    assert run(bench, "read_file", path=path).startswith("Error: ")
    assert run(bench, "write_file", path=path, content="x").startswith("Error: ")


def test_the_shell_knows_python_and_nothing_else(bench: Workbench) -> None:
    assert run(bench, "shell", command="rm -rf .") == "rm: command not found\n[exit code 127]"
    assert run(bench, "shell", command="python -c 'print(6 * 7)'") == "42\n[exit code 0]"


def test_what_the_tests_print_is_the_same_wherever_they_run(bench: Workbench, tmp_path: Path) -> None:
    printed = run(bench, "shell", command="python -m unittest -v tests.test_totals")

    assert str(tmp_path) not in printed
    assert "Ran 6 tests in 0.01s" in printed
    assert "FAILED (failures=3)" in printed


# ------------------------------------------------------------------------------------------------------------- records
def test_the_log_complains_where_the_gross_that_was_posted_is_not_the_ledgers() -> None:
    log = read_project_file("logs/nightly-2026-11-19.log")
    warned = re.findall(r"WARNING ledger: (\S+) expected gross=(\S+), posted (\S+), off by", log)
    billed = dict(re.findall(r"INFO totals: (\S+) .* gross=(\S+)", log))

    assert len(warned) == 18
    assert len(billed) == 46
    assert all(billed[number] == posted != expected for number, expected, posted in warned)


def test_the_session_is_the_same_every_time() -> None:
    assert demo_script() == demo_script()
    assert "INV-19003" in json.dumps([call.arguments for call in demo_script()[-2].answers[1].calls], default=str)
    assert number_lines("a\nb") == "    1\ta\n    2\tb"
