"""`tree`, `log` and `diff` on a stored conversation: what they print, and what they never print."""

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from callstack_proxy.management.reports import format_balance
from callstack_proxy.management.views.conversations import MARK_MEANINGS
from proxy.core.frames.tree import INFERRED_ORIGINS
from tests.cli.conftest import Shell, Stocked
from tests.management.api.small_ledger import HALF_PAIR

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
"""What a terminal obeys, or what turns text around."""


@pytest.mark.rows("S2-41")
def test_the_newest_tree_stands_below_a_list_of_the_others(stocked: Stocked) -> None:
    shown = stocked.shell.on_data("tree")

    assert shown.code == 0
    assert f"✓ Fix rounding [{stocked.newer.child}]" in shown.out
    assert stocked.older.child not in shown.out
    assert stocked.older.conversation[:12] in shown.out


def test_a_tree_is_named_by_the_beginning_of_an_id(stocked: Stocked) -> None:
    shown = stocked.shell.on_data("tree", stocked.older.conversation[:6], "--details")

    assert f"○ Write the changelog [{stocked.older.planned}]" in shown.out
    assert "results: Decimal until the last step" in shown.out
    assert stocked.newer.conversation not in shown.out


@pytest.mark.rows("X-41")
def test_a_tree_says_what_was_saved_so_far_and_a_loss_with_a_minus(stocked: Stocked) -> None:
    shown = stocked.shell.on_data("tree", stocked.older.conversation)
    row = json.loads(stocked.shell.on_data("tree", stocked.older.conversation, "--json").out)["conversation"]
    total = json.loads(stocked.shell.on_data("report", "--conversation", stocked.older.conversation, "--json").out)

    assert row["saved"] == pytest.approx(total["total"]["saved"])
    assert row["saved"] == pytest.approx(row["cost_untouched"] - row["cost"])
    assert (
        row["saved_percent"] == total["total"]["saved_percent"] == round(100 * row["saved"] / row["cost_untouched"], 2)
    )
    assert format_balance(row["saved"], row["cost_untouched"]) in shown.out
    assert format_balance(-0.0012, 0.1) == "saved so far: -$0.0012 of $0.1000 (-1.2 %)"
    assert format_balance(0.0, 0.0) == "saved so far: $0.0000 of $0.0000"


def test_a_tree_as_json_is_the_state(stocked: Stocked) -> None:
    told = json.loads(stocked.shell.on_data("tree", stocked.older.conversation, "--json").out)

    assert told["conversation"]["id"] == stocked.older.conversation
    assert told["state"]["activeFrameID"] == stocked.older.root


@pytest.mark.rows("S2-41")
def test_every_kind_of_frame_has_a_mark_but_those_whose_titles_say_it() -> None:
    assert INFERRED_ORIGINS - set(MARK_MEANINGS) == {"part"}


@pytest.mark.parametrize("words", [["tree"], ["tree", "--details"], ["log", "fbchild"]])
def test_nothing_that_a_terminal_obeys_is_printed(stocked: Stocked, words: list[str]) -> None:
    """A11: titles and texts with escapes, a C1 control, and an override of direction."""
    shown = stocked.shell.on_data(*words)

    assert shown.code == 0
    assert OBEYED.findall(shown.out) == []


def test_a_log_shows_escapes_as_text(stocked: Stocked) -> None:
    shown = stocked.shell.on_data("log", stocked.newer.child)

    assert r"\x1b[31mred\x1b[0m \x9b2J \u202egnp.exe" in shown.out


def test_a_log_is_found_by_title_and_holds_calls_and_hidden_results(stocked: Stocked) -> None:
    shown = stocked.shell.on_data("log", "fix rounding")

    assert '-> read({"path":"billing.py"})' in shown.out
    assert "<- call_pop: Frame is completed." in shown.out


def test_a_letter_names_no_frame_though_only_one_title_has_it(stocked: Stocked) -> None:
    assert "There is no frame 'x'" in stocked.shell.on_data("log", "x").errors
    assert stocked.shell.on_data("log", "fix").code == 0


@pytest.mark.rows("S0-08")
def test_a_raw_log_is_the_stored_bytes(stocked: Stocked) -> None:
    """S0-08, D14."""
    shown = stocked.shell.on_data("log", stocked.older.child, "--raw")

    assert [line for line in shown.raw.splitlines() if b"call_pop" not in line] == stocked.older.wires[:2]
    assert stocked.older.wires[2] in shown.raw


def test_a_log_as_json_keeps_half_a_surrogate_pair(stocked: Stocked) -> None:
    told = json.loads(stocked.shell.on_data("log", stocked.older.child, "--json").out)

    assert told["entries"][0]["text"] == HALF_PAIR


def test_a_difference_marks_what_was_left_out_and_inserted(stocked: Stocked) -> None:
    shown = stocked.shell.on_data("diff", stocked.older.request)

    assert shown.code == 0
    assert re.search(r"^ - assistant .* I read billing.py$", shown.out, re.MULTILINE)
    assert re.search(r"^ \+ user .* <stack-context>left</stack-context>$", shown.out, re.MULTILINE)
    assert re.search(r"^ ~ user .* go on$", shown.out, re.MULTILINE)
    assert "tools: added stack_frame_push" in shown.out
    assert "9,100 tokens from the agent, 2,100 sent" in shown.out


def test_a_difference_says_what_the_request_cost_and_how_that_comes_about(stocked: Stocked) -> None:
    shown = " ".join(stocked.shell.on_data("diff", stocked.older.request).out.split())

    assert "without us $0.0119, with us $0.0031: saved $0.0088 (73.7 %)" in shown
    counted = "the provider counted 2,100 tokens and none from its cache yet"
    assert f"{counted}; we estimate 2,100 at full price, and 50 of the answer" in shown
    assert "prices of gpt-5: $1.25 a million, 0.1 times that from the cache, $10 for the answer" in shown


def test_a_difference_as_json_is_what_the_api_tells(stocked: Stocked) -> None:
    told = json.loads(stocked.shell.on_data("diff", stocked.older.request[:6], "--json").out)

    assert told["rounds"][0]["counts"] == {"kept": 1, "first bytes": 1, "left out": 1, "inserted": 1}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tree", "nothing"], "no conversation 'nothing'"),
        (["tree", "abc"], "write 4 characters or more"),
        (["log", "nothing"], "no frame 'nothing'"),
        (["diff", "nothing"], "no request 'nothing'"),
        (["diff"], "Missing argument"),
    ],
)
def test_what_is_not_there_is_one_message_and_exit_code_2(stocked: Stocked, words: list[str], says: str) -> None:
    shown = stocked.shell.on_data(*words)

    assert (shown.code, shown.out) == (2, "")
    assert says in shown.errors
    assert "Traceback" not in shown.errors


def test_before_anything_was_stored_it_says_what_to_do(shell: Shell) -> None:
    shown = shell.on_data("tree")

    assert shown.code == 2
    assert "callstack serve" in shown.errors
    assert not shell.data.exists()


def no_database(raw: bytes) -> bytes:
    return b"no database, only words " * 400


def damaged_behind_its_schema(raw: bytes) -> bytes:
    """It opens well; what is wrong is found by whoever reads."""
    return raw[:4096] + b"\xa5" * (len(raw) - 4096)


@pytest.mark.parametrize("damage", [no_database, damaged_behind_its_schema])
@pytest.mark.parametrize("words", [["tree"], ["report", "--by", "conversation"], ["log", "Title"]], ids=lambda w: w[0])
def test_a_damaged_store_is_told_and_stays_where_it_is(
    own_stock: Stocked, words: list[str], damage: Callable[[bytes], bytes]
) -> None:
    """To move it away is for `serve`, which has to go on; who looks twice is told twice."""
    shell = own_stock.shell
    file = shell.data / "callstack.db"
    damaged = damage(file.read_bytes())
    file.write_bytes(damaged)

    ended = [shell.on_data(*words) for _ in range(2)]

    assert file.read_bytes() == damaged
    assert not list(shell.data.glob("*.corrupt-*"))
    for told in ended:
        assert (told.code, told.out, len(told.errors.splitlines())) == (1, "", 1), told.errors
        assert told.errors.startswith("error: the store's file is damaged (")
        assert f"; {file} was left as it is. Keep a copy: `callstack serve` sets it aside" in told.errors


@pytest.fixture
def half_broken(own_stock: Stocked) -> Stocked:
    """The conversation worked in last is of a newer version."""
    with closing(sqlite3.connect(own_stock.shell.data / "callstack.db")) as store, store:
        novel = "UPDATE events SET kind = 'novel', data = '{\"type\":\"novel\"}' WHERE conversation = ?"
        store.execute(novel, (own_stock.newer.conversation,))
    return own_stock


def test_a_conversation_that_cannot_be_read_is_told_below_the_list_of_all(half_broken: Stocked) -> None:
    broken = half_broken.newer.conversation
    shown = half_broken.shell.on_data("tree")
    other = half_broken.shell.on_data("tree", half_broken.older.conversation)

    _, first, second, _ = shown.out.splitlines()
    assert first.startswith(broken[:12])
    assert first.endswith("(cannot be read)")
    assert second.endswith("Make the suite green")
    assert shown.code == 1
    assert shown.errors.startswith(f"error: The conversation '{broken}' cannot be read: it is damaged, or ")
    assert len(shown.errors.splitlines()) == 1
    assert other.code == 0


def test_beside_one_that_cannot_be_read_all_others_are_found_and_added_up(half_broken: Stocked) -> None:
    report = half_broken.shell.on_data("report", "--by", "conversation", "--json")
    log = half_broken.shell.on_data("log", "Fix rounding")

    rows = json.loads(report.out)["rows"]
    assert {row["title"] for row in rows} == {"Make the suite green", "(cannot be read)"}
    assert (log.code, log.out.splitlines()[0].split()[0]) == (0, half_broken.older.child)


def test_one_that_cannot_be_read_can_be_forgotten(half_broken: Stocked) -> None:
    gone = half_broken.shell.on_data("forget", half_broken.newer.conversation, typed="y\n")

    assert "(it cannot be read, 1 request)" in gone.out
    assert half_broken.shell.on_data("tree").code == 0


def test_a_store_of_a_newer_version_is_one_message(own_stock: Stocked) -> None:
    """Nothing was to be written, so nobody is told that a write failed."""
    with closing(sqlite3.connect(own_stock.shell.data / "callstack.db")) as store, store:
        store.execute("UPDATE alembic_version SET version_num = '9999'")

    shown = own_stock.shell.on_data("tree")

    assert (shown.code, len(shown.errors.splitlines())) == (1, 1), shown.errors
    assert "written by a newer callstack" in shown.errors


def test_the_key_of_a_provider_is_needed_by_whoever_asks_it_alone(own_stock: Stocked) -> None:
    """Its variable is set where the proxy runs, and in no other shell."""
    shell = own_stock.shell
    (shell.home / "proxy.yaml").write_text("upstreams: {default: {url: 'http://127.0.0.1:9', key: 'env:GONE'}}")

    assert [shell.on_data(name).code for name in ("tree", "report")] == [0, 0]
    assert shell.run("tariffs", "gpt-5.4").code == 0
    refused = shell.on_data("serve")
    assert (refused.code, "GONE is not set" in refused.errors) == (2, True)
