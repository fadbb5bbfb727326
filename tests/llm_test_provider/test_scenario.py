"""Scenario files: what they can say, how their mistakes are told, and the two that the documentation shows."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ScriptedAnswer, ScriptedCall, ScriptedProvider, says
from llm_test_provider.answer import Cut, Ending, FixedReply
from llm_test_provider.cli import serve
from llm_test_provider.error_texts import OVERFLOWS, THROTTLES, overflow_wording
from llm_test_provider.scenario import ScenarioError, load, read
from llm_test_provider.script import ReceivedRequest
from llm_test_provider.templates import TemplateError, fill

Ask = Callable[..., tuple[int, dict[str, str], bytes]]
HOUSE = Path(__file__).resolve().parent.parent.parent
EXAMPLES = HOUSE / "docs" / "examples"


def first_answer(text: str) -> ScriptedAnswer:
    answer = read(f"answers:\n  - {text}").script.queue.answers[0]
    assert isinstance(answer, ScriptedAnswer)
    return answer


# ----------------------------------------------------------------------------------------------------------------- keys
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("text: hi", ScriptedAnswer(text="hi")),
        ("{text: hi, reasoning: hm, finish: length}", ScriptedAnswer(text="hi", reasoning="hm", finish="length")),
        ("call: {name: f, arguments: {a: 1}}", ScriptedAnswer(calls=(ScriptedCall("f", {"a": 1}),))),
        ("calls: [{name: f, arguments: '{', id: c}]", ScriptedAnswer(calls=(ScriptedCall("f", "{", "c"),))),
        ("cut: every_byte", ScriptedAnswer(cut=Cut(1))),
        ("cut: {bytes: 7, seed: 3}", ScriptedAnswer(cut=Cut(7, 3))),
        ("ending: {how: reset, after_bytes: 9}", ScriptedAnswer(ending=Ending("reset", after_bytes=9))),
        ("raw: nonsense", ScriptedAnswer(instead=b"nonsense")),
        ("{status: 404, body: gone}", ScriptedAnswer(instead=FixedReply(404, b"gone"))),
        ("overflow: bedrock", ScriptedAnswer(instead=FixedReply(400, overflow_wording("bedrock").body(0, 0)))),
        (
            "{events: [crlf], call_forms: [whole_call], encoding: [gzip]}",
            ScriptedAnswer(events=("crlf",), call_forms=("whole_call",), encoding=("gzip",)),
        ),
    ],
)
def test_a_key_of_a_file_means_the_same_as_in_python(written: str, meant: ScriptedAnswer) -> None:
    assert first_answer(written) == meant


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("answers:\n  - txt: hi", "s.yaml:2: answers[0].txt: unknown key 'txt'; did you mean 'text'?"),
        ("lop: true", "s.yaml:1: lop: unknown key 'lop'; did you mean 'loop'?"),
        (
            "answers:\n- call:\n    nme: x\n    name: y",
            "s.yaml:3: answers[0].call.nme: unknown key 'nme'; did you mean",
        ),
        ("answers:\n- call: {}", "s.yaml:2: answers[0].call: 'name' is required"),
        ("answers:\n- events: [clrf]", "unknown event form 'clrf'; did you mean 'crlf'?"),
        ("answers:\n- overflow: opnai", "unknown overflow wording 'opnai'; did you mean 'openai'?"),
        (
            "models:\n  m:\n    cache: antropic",
            "s.yaml:3: models.m.cache: unknown cache 'antropic'; did you mean 'anthropic'?",
        ),
        ("answers:\n- {status: 400, raw: x}", "s.yaml:2: answers[0]: status and raw exclude each other"),
        ("answers:\n- body: x", "body needs a status"),
        ("rules:\n- when: {user: x}", "a rule needs answer or answers"),
        ("answers: [", "s.yaml: not YAML: "),
        ("- 1", "s.yaml:1: file: "),
    ],
)
def test_a_mistake_is_told_with_its_place_and_the_nearest_word(text: str, told: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(told)):
        read(text, "s.yaml")


def test_a_file_that_is_not_there_is_a_scenario_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        load(tmp_path / "none.yaml")


def test_rules_and_loops_of_a_file_are_followed(ask: Ask) -> None:
    scenario = read(
        """
        loop: true
        answers: [{text: A}, {text: B}]
        rules:
          - when: {tool_result: "exit [1-9]"}
            answer: {text: it failed}
          - when: {tool: stack_recall, request: 4}
            answer: {text: with tools}
        """
    )
    result = {"role": "tool", "tool_call_id": "1", "content": "exit 2"}
    offered = [{"type": "function", "function": {"name": "stack_recall"}}]
    asked: list[dict[str, Any]] = [{}, {"messages": [result]}, {"messages": [result]}, {"tools": offered}, {}]
    with ScriptedProvider(models=scenario.models, script=scenario.script) as provider:
        heard = [json.loads(ask(provider, **body)[2])["choices"][0]["message"]["content"] for body in asked]

    assert heard == ["A", "it failed", "B", "with tools", "A"]


# ------------------------------------------------------------------------------------------------------------ templates
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "root is fabc234"},
    {"role": "user", "content": [{"type": "text", "text": "work on "}, {"type": "text", "text": "calc.py"}]},
    {"role": "tool", "content": 'frame "fxyz567" opened'},
]


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{{last_tool_result:f[a-z2-7]{6}}}", "fxyz567"),
        ('{{last_tool_result:frame "(.+?)"}}', "fxyz567"),
        ("{{last_user:\\w+\\.py}}", "calc.py"),
        ("{{system:f\\w+}} and {{messages:f[a-z0-9]+7}}", "fabc234 and fxyz567"),
        ("{{ no template }} {x}", "{{ no template }} {x}"),
    ],
)
def test_a_template_takes_words_from_earlier_messages(template: str, filled: str) -> None:
    answer = says(
        template,
        reasoning=template,
        calls=(ScriptedCall("f", {"deep": [{"x": template}], "n": 1}), ScriptedCall("g", template)),
    )

    done = fill(answer, MESSAGES)

    assert (done.text, done.reasoning) == (filled, filled)
    assert done.calls == (ScriptedCall("f", {"deep": [{"x": filled}], "n": 1}), ScriptedCall("g", filled))


@pytest.mark.parametrize("template", ["{{last_user:nowhere}}", "{{tools:x}}", "{{system:(}}"])
def test_a_template_that_finds_nothing_is_an_error(template: str, provider: ScriptedProvider, ask: Ask) -> None:
    with pytest.raises(TemplateError):
        fill(says(template), MESSAGES)

    provider.will(says(template))
    status, _, body = ask(provider)
    assert (status, json.loads(body)["error"]["code"]) == (500, "script_template")


# ------------------------------------------------------------------------------------------------------------- wordings
def test_there_are_enough_wordings_and_each_has_a_name_of_its_own() -> None:
    """S9"""
    names = [wording.name for wording in (*OVERFLOWS, *THROTTLES)]

    assert len(OVERFLOWS) >= 25
    assert len(THROTTLES) >= 5
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("wording", [*OVERFLOWS, *THROTTLES], ids=lambda wording: wording.name)
def test_every_wording_has_a_body_with_its_figures_filled_in(wording: Any) -> None:
    """S9"""
    body = wording.body(210_000, 200_000)

    assert b"{used}" not in body
    assert b"{window}" not in body
    if wording.shape != "text":
        json.loads(body)


# ------------------------------------------------------------------------------------------------------------- examples
def test_the_example_with_frames_runs_to_its_end(ask: Ask, chunks: Callable[[bytes], list[dict[str, Any]]]) -> None:
    scenario = load(EXAMPLES / "frames.yaml")
    history: list[dict[str, Any]] = [{"role": "user", "content": "fix the test"}]
    with ScriptedProvider(models=scenario.models, script=scenario.script) as provider:
        title = json.loads(ask(provider, "Generate a short title for this")[2])["choices"][0]["message"]["content"]
        while scenario.script.left:
            status, _, body = ask(provider, messages=history)
            assert status == 200, body
            message = json.loads(body)["choices"][0]["message"]
            results = [
                {"role": "tool", "tool_call_id": call["id"], "content": "Frame fmyid234 is completed."}
                for call in message.get("tool_calls", [])
            ]
            history += [message, *results]

    called = [call["function"] for message in history for call in message.get("tool_calls", [])]
    assert title == "Fix the failing test"
    assert [call["name"] for call in called] == [
        "stack_frame_push",
        "read_file",
        "read_file",
        "run_command",
        "stack_frame_pop",
        "stack_recall",
    ]
    assert json.loads(called[-1]["arguments"]) == {"ref": "fmyid234"}
    assert history[-1]["content"].startswith("Done")


def test_the_example_with_faults_runs_to_its_end(
    exchange: Callable[..., tuple[bytes, str]], chat_request: Callable[..., bytes]
) -> None:
    scenario = load(EXAMPLES / "bad-day.yaml")
    count = scenario.script.left
    with ScriptedProvider(models=scenario.models, script=scenario.script) as provider:
        heard = [exchange(provider, chat_request(headers="Connection: close\r\n")) for _ in range(count)]

    statuses = [int(data.split(b" ", 2)[1]) for data, _ in heard]
    assert statuses == [429, 503, 429, 400, 200, 200, 200, 200, 200]
    assert [end for _, end in heard] == ["fin"] * 4 + ["reset"] + ["fin"] * 4
    assert b"retry-after: 2" in heard[0][0]
    assert b"[DONE]" not in heard[6][0]
    assert scenario.script.left == 0


# ------------------------------------------------------------------------------------------------------------ the shell
async def test_serving_says_where_it_listens_and_one_line_for_each_request(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("answers: [{text: hi}]")
    lines: asyncio.Queue[str] = asyncio.Queue()
    serving = asyncio.ensure_future(serve(path, "127.0.0.1", 0, lines.put_nowait))

    where = await asyncio.wait_for(lines.get(), 5)
    port = int(re.findall(r":(\d+)/v1", where)[0])
    there = ScriptedProvider(port=port)  # not started: only an address for `ask`
    await asyncio.to_thread(ask, there)
    line = await asyncio.wait_for(lines.get(), 5)

    serving.cancel()
    assert "1 answers in one.yaml" in where
    assert "POST  /v1/chat/completions  200  m  1 messages  whole" in line


def test_the_module_runs_as_a_program_and_ends_cleanly_on_interrupt() -> None:
    command = [sys.executable, "-m", "llm_test_provider", str(EXAMPLES / "bad-day.yaml"), "--port", "0"]
    with subprocess.Popen(command, cwd=HOUSE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        running.send_signal(signal.SIGINT)
        try:
            _, complaint = running.communicate(timeout=10)
        finally:
            running.kill()  # else the block waits for it

    assert first.startswith("scripted provider on http://127.0.0.1:")
    assert (running.returncode, complaint) == (0, "")


def test_a_bad_file_ends_the_program_with_its_mistake(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("anwsers: []")
    command = [sys.executable, "-m", "llm_test_provider", str(path)]

    ended = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=False, timeout=20)

    assert ended.returncode == 2
    assert "did you mean 'answers'?" in ended.stderr


def test_a_received_request_without_a_body_has_no_messages_or_tools() -> None:
    received = ReceivedRequest(1, "GET", "/", "", (), b"", None, 0.0)

    assert (received.messages, received.tool_names) == ([], [])
