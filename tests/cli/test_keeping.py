"""What changes the store, the keys, or nothing at all, without a proxy running."""

import json
import stat

import pytest

from tests.cli.conftest import Shell, Stocked


def test_forget_asks_first_and_a_no_changes_nothing(own_stock: Stocked) -> None:
    asked = own_stock.shell.on_data("forget", own_stock.older.conversation, typed="n\n")

    assert asked.code == 1
    assert "'Make the suite green', 1 request)" in asked.out
    assert own_stock.shell.on_data("tree", own_stock.older.conversation).code == 0


def test_forgetting_one_leaves_the_other_and_no_copy(own_stock: Stocked) -> None:
    """T10: not even in the bytes of the file and its log."""
    done = own_stock.shell.on_data("forget", own_stock.older.conversation[:6], "--yes")

    assert done.out.startswith("deleted 1 conversation,")
    assert own_stock.shell.on_data("tree", own_stock.older.conversation).code == 2
    assert own_stock.shell.on_data("tree", own_stock.newer.conversation).code == 0
    held = b"".join(path.read_bytes() for path in own_stock.shell.data.iterdir())
    assert own_stock.older.conversation.encode() not in held


@pytest.mark.parametrize(
    ("words", "gone"), [(["--all"], 2), (["--before", "2030-01-01"], 2), (["--before", "2020-01-01"], 0)]
)
def test_forgetting_by_age(own_stock: Stocked, words: list[str], gone: int) -> None:
    assert own_stock.shell.on_data("forget", *words, "--yes").out.startswith(f"deleted {gone} conversations,")


@pytest.mark.parametrize("words", [[], ["x", "--all"], ["--before", "soon"], [""]])
def test_an_unclear_wish_deletes_nothing(stocked: Stocked, words: list[str]) -> None:
    assert stocked.shell.on_data("forget", *words, "--yes").code == 2
    assert stocked.shell.on_data("tree", stocked.older.conversation).code == 0


def test_a_mode_is_kept_in_the_store_and_taken_back(own_stock: Stocked) -> None:
    def mode() -> str | None:
        told = own_stock.shell.on_data("tree", own_stock.older.conversation, "--json").out
        found: str | None = json.loads(told)["conversation"]["mode"]
        return found

    assert own_stock.shell.on_data("mode", own_stock.older.conversation[:6], "shadow").code == 0
    assert mode() == "shadow"
    assert own_stock.shell.on_data("mode", own_stock.older.conversation, "default").code == 0
    assert mode() is None
    assert own_stock.shell.on_data("mode", own_stock.older.conversation, "loud").code == 2


def test_without_a_key_the_list_says_how_to_get_one(shell: Shell) -> None:
    assert shell.on_data("key", "list").out == "There is no key yet. Issue one with: callstack key add NAME\n"


def test_a_key_is_shown_once_and_kept_as_a_hash(shell: Shell) -> None:
    """A8."""
    secret = shell.on_data("key", "add", "anna").out.strip()
    listed = shell.on_data("key", "list")
    file = shell.data / "keys.json"

    assert secret.startswith("csk_")
    assert "anna" in listed.out
    assert secret not in listed.out + file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert shell.on_data("key", "add", "anna").code == 2
    assert shell.on_data("key", "revoke", "anna").code == 0
    assert shell.on_data("key", "revoke", "anna").code == 2
    assert json.loads(shell.on_data("key", "list", "--json").out) == []


def test_the_overview_names_every_command_and_loads_none(shell: Shell) -> None:
    program = "import sys, proxy.__main__; print([m for m in ('fastapi', 'sqlalchemy', 'aiohttp') if m in sys.modules])"
    shown = shell.run("--help")

    assert [name for name in ("serve", "demo", "tree", "doctor", "console") if name not in shown.out] == []
    assert shell.python(program) == "[]"
    assert shell.run("--version").out.startswith("callstack ")


def test_what_was_never_folded_is_not_unfolded_and_the_answer_says_what_to_do(own_stock: Stocked) -> None:
    unknown = own_stock.shell.on_data("unfold", "fnothere")
    pushed = own_stock.shell.on_data("unfold", own_stock.older.child, "--now")
    whole = own_stock.shell.on_data("unfold", own_stock.older.root)

    assert (unknown.code, pushed.code, whole.code) == (2, 1, 1)
    assert "`callstack tree` shows the frames" in unknown.errors
    assert f"`callstack log {own_stock.older.child}`" in pushed.errors
    assert "was never folded" in whole.errors
