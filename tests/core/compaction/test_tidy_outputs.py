"""What is left out of an output, and which outputs are left alone."""

from __future__ import annotations

import json
import time

import pytest

from proxy.core.compaction.tidy_outputs import tidy_terminal_text, tidy_text, without_json_blanks
from proxy.core.ledger import Call
from proxy.core.observers import DEFAULT_TOOL_ROLES

pytestmark = pytest.mark.rows("X-75")
ESC = "\x1b"
NOISY = f"{ESC}[32mok{ESC}[0m   \n" + "same line here\n" * 40 + "end"
CLEAN = "ok\nsame line here\n[line repeated 40 times]\nend"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (NOISY, CLEAN),
        ("10 %\r50 %\r100 %\nnext", "100 %\nnext"),
        ("downloading a\rdone\nnext", "doneloading a\nnext"),
        (f"downloading a\r{ESC}[Kdone", "done"),
        ("a\r\nb \t\r\n", "a\nb\n"),
        (f"{ESC}]0;title\x07{ESC}(Bx{ESC}[1;31my{ESC}[m{ESC}[2Jz", "xyz"),
        ("x\nx\nx", "x\nx\nx"),  # a note would be longer
        ("a\n\n\nb", "a\n\n\nb"),
        ("same\nother\nsame", "same\nother\nsame"),
        ("  indented\n\ttab", "  indented\n\ttab"),
        ("may be  \na file\t\n", "may be  \na file\t\n"),
        ("", ""),
    ],
)
def test_what_a_terminal_would_show(text: str, left: str) -> None:
    assert tidy_terminal_text(text) == left
    assert tidy_terminal_text(left) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{\n  "a" : [ 1.50, -2e5 ],\n  "b": "x  \\" , y"\n}\n', '{"a":[1.50,-2e5],"b":"x  \\" , y"}'),
        ("[ ]", "[]"),
        ('"text  with blanks"', None),
        ("{not json}", None),
        ('{"a": 1} {"b": 2}', None),
        ("12", None),
    ],
)
def test_json_keeps_the_spelling_of_its_tokens(text: str, left: str | None) -> None:
    assert without_json_blanks(text) == left


JSON = '{ "a":  1 }'


@pytest.mark.parametrize(
    ("tool", "arguments", "text", "is_tidied"),
    [
        ("bash", {"command": "npm test"}, NOISY, True),
        ("shell", {"command": ["bash", "-lc", "make all 2>&1 | tail -50"]}, NOISY, True),
        ("bash", {"command": "bash -lc 'npm test | grep -v ok'"}, NOISY, True),
        ("bash", {"command": "curl -s http://x/y"}, JSON, True),
        ("BashOutput", {"bash_id": "1"}, NOISY, True),
        ("search_orders", {"customer": "7"}, JSON, True),
        ("search_orders", {"customer": "7"}, NOISY, False),
        ("read", {"file_path": "a.json"}, JSON, False),
        ("get_thing", {"path": "a.json"}, JSON, False),
        ("bash", {"command": "cat a.json"}, JSON, False),
        ("bash", {"command": "cd x && sudo cat a.py | head -5"}, NOISY, False),
        ("shell", {"command": ["bash", "-lc", "sed -n 1,80p a.py"]}, NOISY, False),
        ("bash", {"command": "ssh host 'cat a.py'"}, NOISY, False),
        ("bash", {"command": "git diff"}, NOISY, False),
        ("bash", {"command": "git -C x status"}, NOISY, True),
        ("edit", {"file_path": "a.py"}, NOISY, False),
    ],
)
def test_contents_of_files_stay_exact(tool: str, arguments: dict[str, object], text: str, is_tidied: bool) -> None:
    call = Call("c", tool, json.dumps(arguments))

    assert (tidy_text(text, call, DEFAULT_TOOL_ROLES) != text) is is_tidied


def test_a_long_output_takes_no_longer_than_its_length() -> None:
    began = time.process_time()

    tidy_terminal_text("x" * 500_000 + "y\r" * 200_000 + f"{ESC}[" * 100_000 + f"{ESC}]" * 100_000)
    without_json_blanks("[" * 500 + " " * 500_000 + "]" * 500)
    without_json_blanks('{"' + "\\" * 500_000)

    assert time.process_time() - began < 2
