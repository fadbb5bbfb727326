"""What the text of a tool result tells of how the tool did (S4-14, S4-15)."""

import pytest

from callstack_proxy.management.views.logs import is_error
from proxy.core.ledger.messages import Message


def result(text: str, *, failed: bool = False) -> Message:
    return Message("tool", b"", "", text, answers="c", failed=failed)


@pytest.mark.parametrize(
    "text",
    [
        "Error: no such file",
        "<error>no such file</error>",
        "[ERROR] no",
        "Traceback (most recent call last):\n  File",
        "<tool_error>denied</tool_error>",
        "fatal: not a git repository",
        "Permission denied",
        "2 failed\n\n[exit code: 1]",
        "Command exited with code 127",
        '{"output": "", "exit_code": 2}',
        "a\n" * 50 + "Exit status: 3",
        "<tool_use_error>File has not been read yet. Read it first before writing to it.</tool_use_error>",
        "The user doesn't want to proceed with this tool use. The tool use was rejected.",
        "bash: ponyc: command not found",
        '{"success": false, "output": ""}',
    ],
)
def test_a_failure_is_known_by_its_first_words_or_its_exit_code(text: str) -> None:
    assert is_error(result(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ok",
        "errors: none",
        "no error",
        "exit code: 0",
        "sys.exit(1)",
        "a line\n" * 50 + "Exit status: 3\n" + "a line\n" * 50,
    ],
)
def test_words_of_failure_inside_a_text_are_its_content(text: str) -> None:
    assert not is_error(result(text))


def test_a_failure_that_the_client_tells_beside_the_text_is_one() -> None:
    assert is_error(result("nothing came of it", failed=True))
