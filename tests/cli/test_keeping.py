"""What changes the store, the keys, or nothing at all, without a proxy running."""

import asyncio
import json
import re
import stat

import pytest

from proxy.store import UsageRecord
from proxy.store.sql import open_store
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


def test_a_command_loads_what_it_needs_and_the_overview_no_command(shell: Shell) -> None:
    """Counted in modules: seconds are of the machine. A command that asks a running proxy, or shows its help, needs
    neither the database library nor a server."""
    program = """
import sys
from callstack_proxy import entry_points
heavy = {"aiohttp", "fastapi", "prometheus_client", "proxy.exchange", "proxy.store.rows", "pydantic",
         "sqlalchemy", "starlette", "uvicorn"}
from callstack_proxy.cli.main import COMMANDS
print("main", *sorted(heavy & set(sys.modules)))
for name, command in entry_points.entry_points("callstack.commands").items():
    if name in COMMANDS and name not in ("doctor", "replay", "savings"):
        command.load()
print("commands", *sorted(heavy & set(sys.modules)))
"""
    shown = shell.run("--help")

    assert [name for name in ("serve", "demo", "tree", "doctor", "console") if name not in shown.out] == []
    assert shell.python(program).splitlines() == ["main", "commands pydantic"]
    assert shell.run("--version").out.startswith("callstack ")


@pytest.mark.parametrize(
    "words",
    [
        ("tree",),
        ("search", "login"),
        ("config",),
        ("log", "totals"),
        ("report", "--by", "request"),
        ("report", "--week"),
        ("inspect", "resume"),
        ("inspect", "regrets"),
    ],
    ids=" ".join,
)
def test_a_command_that_only_shows_what_is_stored_loads_no_server(stocked: Stocked, words: tuple[str, ...]) -> None:
    """Where no proxy runs; the API alone takes a second of CPU to import."""
    program = f"""
import sys
from callstack_proxy.cli.main import run_program
sys.argv = ["callstack", *{words!r}, "--data", {str(stocked.shell.data)!r}]
try:
    run_program()
except SystemExit:
    pass
heavy = {{"aiohttp", "fastapi", "prometheus_client", "proxy.exchange", "proxy.server", "starlette", "uvicorn"}}
print("loaded", "sqlalchemy" in sys.modules, *sorted(heavy & set(sys.modules)))
"""
    assert stocked.shell.python(program).splitlines()[-1] == "loaded True"


def test_what_was_never_folded_is_not_unfolded_and_the_answer_says_what_to_do(own_stock: Stocked) -> None:
    unknown = own_stock.shell.on_data("unfold", "fnothere")
    pushed = own_stock.shell.on_data("unfold", own_stock.older.child, "--now")
    whole = own_stock.shell.on_data("unfold", own_stock.older.root)

    assert (unknown.code, pushed.code, whole.code) == (2, 1, 1)
    assert "`callstack tree` shows the frames" in unknown.errors
    assert f"`callstack log {own_stock.older.child}`" in pushed.errors
    assert "was not put away" in whole.errors


# ------------------------------------------------------------------------------------------------- what a key may use
def test_a_key_has_the_limits_that_were_set_last(shell: Shell) -> None:
    shell.on_data("key", "add", "anna", "--usd", "50", "--model", "gpt-5*", "--mode", "shadow")
    shell.on_data("key", "add", "bob", "--admin")
    assert shell.on_data("key", "limit", "bob", "--tokens", "2000000", "--per", "day").out == (
        "bob may use: 2,000,000 tokens a day\n"
    )

    rows = [line.split("  ") for line in shell.on_data("key", "list").out.splitlines()]

    assert [[cell.strip() for cell in row if cell][2:] for row in rows[1:]] == [
        ["-", "$50.00 a month; gpt-5*", "mode shadow"],
        ["-", "2,000,000 tokens a day", "admin"],
    ]
    assert shell.on_data("key", "limit", "anna", "--usd", "60").out == "anna may use: $60.00 a month; gpt-5*\n"
    assert shell.on_data("key", "limit", "anna").out == "anna may use: $60.00 a month; gpt-5*\n"
    assert shell.on_data("key", "limit", "bob", "--clear").out == "bob may use: everything\n"


def test_a_user_has_their_own_limits_or_those_of_every_other_user(shell: Shell) -> None:
    assert shell.on_data("user", "limit", "ana@example.org").out == "ana@example.org may use: everything\n"
    everybody = shell.on_data("user", "limit", "--usd", "20", "--model", "gpt-5*")
    ana = shell.on_data("user", "limit", "ana@example.org", "--usd", "50")
    shell.on_data("user", "limit", "bob", "--clear")
    rows = [re.split("  +", line) for line in shell.on_data("user", "list").out.splitlines()]

    assert everybody.out == "every other user may use: $20.00 a month; gpt-5*\n"
    assert "--set tenancy=header" in everybody.errors
    assert ana.out == "ana@example.org may use: $50.00 a month; gpt-5*\n"
    assert rows[1:] == [
        ["ana@example.org", "-", "$50.00 a month; gpt-5*"],
        ["bob", "-", "everything"],
        ["every other user", "-", "$20.00 a month; gpt-5*"],
    ]
    assert shell.on_data("user", "reset", "bob").out == "bob may use: $20.00 a month; gpt-5*\n"
    assert "no limits of their own" in shell.on_data("user", "reset", "bob").errors
    assert "one word of printable ASCII" in shell.on_data("user", "limit", "two words", "--usd", "1").errors


def test_a_new_key_alone_is_on_stdout_and_the_rest_is_told_beside_it(shell: Shell) -> None:
    issued = shell.on_data("key", "add", "anna")

    assert issued.out.startswith("csk_")
    assert len(issued.out.split()) == 1
    assert "shown this once" in issued.errors
    assert "--set tenancy=key" in issued.errors


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["limit", "nobody", "--usd", "1"], "nobody is called 'nobody'"),
        (["add", "x", "--usd", "0"], "greater than 0"),
        (["add", "x", "--per", "week"], "'day' or 'month'"),
        (["add", "x", "--tokens", "many"], "a valid integer"),
        (["usage", "--by", "week"], "allowed: day, month"),
        (["usage", "--since", "soon"], "Write it as 2026-11-01"),
    ],
)
def test_limits_that_are_none_are_refused_and_nothing_is_issued(stocked: Stocked, words: list[str], told: str) -> None:
    refused = stocked.shell.on_data("key", *words)

    assert refused.code == 2
    assert told in refused.errors
    assert not (stocked.shell.data / "keys.json").exists()


def test_usage_is_told_as_a_table_as_csv_and_as_json(own_stock: Stocked) -> None:
    nothing = own_stock.shell.on_data("key", "usage").out
    used(
        own_stock.shell,
        ("key-anna", UsageRecord(20_000, 2, 1_500, 1.25, 2.5)),
        ("user-=1+1", UsageRecord(20_001, 1, 7)),
    )

    table = own_stock.shell.on_data("key", "usage").out.splitlines()
    comma = own_stock.shell.on_data("key", "usage", "--by", "day", "--since", "2024-10-05", "--csv").out.splitlines()
    plain = json.loads(own_stock.shell.on_data("key", "usage", "--json").out)

    assert nothing.startswith("No use by a client key or a user was counted yet.")
    assert [line.split() for line in table] == [
        ["month", "who", "requests", "tokens", "cost", "saved"],
        ["2024-10", "anna", "2", "1,500", "$1.25", "$1.25", "50", "%"],
        ["2024-10", "=1+1", "1", "7", "$0.00", "$0.00"],
    ]
    assert comma[1:] == ["2024-10-05,user-=1+1,'=1+1,1,7,0.0,0.0,0.0,"]
    assert [row["name"] for row in plain["rows"]] == ["anna", "=1+1"]


def used(shell: Shell, *records: tuple[str, UsageRecord]) -> None:
    async def write() -> None:
        store = open_store("sqlite", shell.data)
        await store.start()
        for tenant, record in records:
            store.write(tenant, [record])
        await store.close()

    asyncio.run(write())
