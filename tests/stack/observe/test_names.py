"""X-17: a client's tools are known by a table that configuration can extend."""

import pytest

from proxy.core.observers.files import FileSeen, How, files_seen
from proxy.core.observers.tool_roles import NAMES, Role
from tests.stack.observe.steps import done, step


@pytest.mark.parametrize(
    "name", ["read_file", "ReadFile", "read-file", "mcp__disk__read_file", "disk.read_file", "fs/read_file"]
)
def test_a_tool_is_known_whatever_its_spelling_and_its_server(name: str) -> None:
    assert NAMES.role(name) is Role.READ


def test_a_tool_of_another_trade_is_unknown() -> None:
    assert NAMES.known("book_reservation") is None


def test_configuration_adds_a_tool_with_its_own_argument() -> None:
    names = NAMES.extended({"Store_It": {"role": "write", "arguments": ["target"]}})

    assert files_seen(step(done("store_it", target="a.md")), names) == (FileSeen("a.md", How.CREATED),)
    assert NAMES.known("store_it") is None


def test_configuration_gives_a_role_alone_and_takes_a_tool_away() -> None:
    names = NAMES.extended({"apply_change": "edit", "view": "none"})

    assert files_seen(step(done("apply_change", path="a.py", old_text="x")), names) == (FileSeen("a.py", How.MODIFIED),)
    assert files_seen(step(done("view", path="a.py")), names) == ()


@pytest.mark.parametrize(
    ("entries", "key"),
    [
        ({"x": "wrte"}, "x.role"),
        ({"x": {"role": "write", "argument": []}}, "x.argument"),
        ({"x": {"role": "write", "arguments": [7]}}, "x.arguments"),
        ({"x": {"arguments": ["a"]}}, "x.role"),
        ({"x": 7}, "x:"),
        ({"_": "read"}, "'_'"),
    ],
)
def test_a_wrong_entry_is_refused_by_its_key(entries: dict[str, object], key: str) -> None:
    with pytest.raises(ValueError, match=rf"^{key}"):
        NAMES.extended(entries)
