"""X-65: where an agent works, in the words of its client."""

import time

import pytest

from proxy.exchange.thread.working_folder import working_folder


@pytest.mark.rows("X-65")
@pytest.mark.parametrize(
    ("text", "folder"),
    [
        (
            "You are an agent.\n# Environment\n - Primary working directory: /repos/shop\n - Platform: linux",
            "/repos/shop",
        ),
        ("<env>\n  Working directory: /repos/shop\n  Workspace root folder: /repos\n</env>", "/repos/shop"),
        ("4. Working Directory: C:\\work\\my shop\\", "C:\\work\\my shop"),
        ("<environment_context>\n  <cwd>/repos/shop</cwd>\n</environment_context>", "/repos/shop"),
        ("I'm currently working in the directory: /repos/shop\nHere is the folder structure", "/repos/shop"),
        ("Consider the current working directory. For example, change it.", ""),
        ("The working directory is wrong: see /etc/passwd for that", ""),
        ("cwd: relative/path", ""),
        ("", ""),
    ],
)
def test_the_folder_is_read_where_a_client_tells_it(text: str, folder: str) -> None:
    assert working_folder(["Read all parts.", text]) == folder


def test_a_long_text_is_read_in_a_moment() -> None:
    began = time.process_time()
    assert working_folder(["working directory " * 11_000 + "\n", "a b c " * 33_000 + "\n - - - 1 2 3"]) == ""
    assert time.process_time() - began < 1
