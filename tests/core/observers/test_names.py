"""X-17: a client's tools are known by a table that configuration can extend."""

import pytest

from proxy.core.observers.files import FileAction, ObservedFile, observe_files
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES, ToolRole
from tests.core.observers.steps import done, step


@pytest.mark.parametrize(
    "name", ["read_file", "ReadFile", "read-file", "mcp__disk__read_file", "disk.read_file", "fs/read_file"]
)
def test_a_tool_is_known_whatever_its_spelling_and_its_server(name: str) -> None:
    assert DEFAULT_TOOL_ROLES.role_of(name) is ToolRole.READ


def test_a_tool_of_another_trade_is_unknown() -> None:
    assert DEFAULT_TOOL_ROLES.spec_of("book_reservation") is None


def test_configuration_adds_a_tool_with_its_own_argument() -> None:
    names = DEFAULT_TOOL_ROLES.with_entries({"Store_It": {"role": "write", "arguments": ["target"]}})

    assert observe_files(step(done("store_it", target="a.md")), names) == (ObservedFile("a.md", FileAction.CREATED),)
    assert DEFAULT_TOOL_ROLES.spec_of("store_it") is None


def test_configuration_gives_a_role_alone_and_takes_a_tool_away() -> None:
    names = DEFAULT_TOOL_ROLES.with_entries({"apply_change": "edit", "view": "none"})

    assert observe_files(step(done("apply_change", path="a.py", old_text="x")), names) == (
        ObservedFile("a.py", FileAction.MODIFIED),
    )
    assert observe_files(step(done("view", path="a.py")), names) == ()


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
        DEFAULT_TOOL_ROLES.with_entries(entries)
