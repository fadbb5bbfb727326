"""What the doctor finds, on stores and ports that are really like that."""

import json
import socket
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from callstack_proxy.cli.doctor import check_requests, check_tools
from callstack_proxy.management.views.totals import decode_receipt
from proxy.accounting import Receipt, Tariff
from proxy.accounting.model_prices import tariff_for
from proxy.store.interface import RequestRecord
from tests.cli.conftest import Shell, Stocked
from tests.management.api.small_ledger import records_of


def checks(shell: Shell, *words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code, and state and text of each check."""
    ended = shell.on_data("doctor", "--port", "0", "--json", *words)
    return ended.code, {check["about"]: (check["state"], check["text"]) for check in json.loads(ended.out)}


def test_a_healthy_store_has_no_finding_and_what_cannot_bejudged_is_said(stocked: Stocked) -> None:
    code, found = checks(stocked.shell)

    assert code == 0
    assert found["upstream"][0] == "unsure"
    assert {name for name, (state, _) in found.items() if state == "ok"} == {
        "configuration", "port", "tokenizer", "data", "store", "conversations", "errors", "history",
        "price", "passed on",
    }  # fmt: skip


def test_an_upstream_nobody_listens_at_is_a_finding(stocked: Stocked) -> None:
    code, found = checks(stocked.shell, "--upstream", "http://127.0.0.1:9/v1")

    assert (code, found["upstream default"][0]) == (1, "finding")


def test_a_port_that_something_else_has_is_a_finding(stocked: Stocked) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ended = stocked.shell.on_data("doctor", "--port", str(other.getsockname()[1]))

    assert ended.code == 1
    assert "is in use" in ended.out


def test_a_damaged_store_is_told_and_left_where_it_is(own_stock: Stocked) -> None:
    file = own_stock.shell.data / "callstack.db"
    for side in own_stock.shell.data.glob("callstack.db-*"):
        side.unlink()
    damaged = b"not a database" * 1000
    file.write_bytes(damaged)
    code, found = checks(own_stock.shell)

    assert (code, found["store"][0]) == (1, "finding")
    assert "set it aside" in found["store"][1]
    assert file.read_bytes() == damaged


def test_a_conversation_that_cannot_be_read_is_named(own_stock: Stocked) -> None:
    """It is of a newer version; the other is not."""
    with closing(sqlite3.connect(own_stock.shell.data / "callstack.db")) as store, store:
        novel = "UPDATE events SET kind = 'novel', data = '{\"type\":\"novel\"}' WHERE conversation = ?"
        store.execute(novel, (own_stock.newer.conversation,))

    code, found = checks(own_stock.shell)

    state, told = found["conversations"]
    assert (code, state) == (1, "finding")
    assert f"1 of the newest 2 conversations cannot be read ({own_stock.newer.conversation})" in told
    assert "callstack forget" in told


def test_a_store_that_is_locked_is_not_said_to_be_set_aside(own_stock: Stocked) -> None:
    file = own_stock.shell.data / "callstack.db"
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA locking_mode = exclusive")
        other.execute("BEGIN EXCLUSIVE")
        code, found = checks(own_stock.shell)

    assert (code, found["store"][0]) == (1, "finding")
    assert "lock" in found["store"][1]
    assert "set it aside" not in found["store"][1]


def test_a_store_set_aside_and_a_file_others_may_read_are_findings(own_stock: Stocked) -> None:
    """T10."""
    aside = own_stock.shell.data / "callstack.db.corrupt-20260101T000000000000Z"
    aside.write_bytes(b"")
    aside.chmod(0o644)
    code, found = checks(own_stock.shell)

    assert (code, found["data"][0], found["quarantine"][0]) == (1, "finding", "finding")
    assert aside.name in found["quarantine"][1]


def test_a_wrong_configuration_ends_the_visit_at_once(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "proxy.yaml").write_text("prot: 8787\n")
    ended = shell.on_data("doctor")

    assert ended.code == 2
    assert "did you mean port?" in ended.errors


def test_a_history_beyond_the_window_and_a_share_of_bypasses_are_findings() -> None:
    """DESIGN 8: the raw history may outgrow the window, and the doctor knows by how much."""
    record, receipt = stored_request()
    known = msgspec.structs.replace(receipt, model="gpt-5.4")
    long = with_receipt(record, known, tokens_in=10_000_000, status="bypass; reason=store_locked")
    found = {check.about: check for check in check_requests([long, record], tariff_for)}

    assert found["passed on"].state == found["history"].state == "finding"
    assert "store_locked" in found["passed on"].text
    assert "tokens longer than the window of gpt-5.4" in found["history"].text
    assert {check.state for check in check_requests([record], tariff_for) if check.about != "price"} == {"ok"}


def test_a_history_beyond_a_window_that_is_only_assumed_is_no_finding() -> None:
    """Nobody knows whether it would fit: nothing is trimmed because of it either."""
    record, receipt = stored_request()
    long = with_receipt(record, msgspec.structs.replace(receipt, model="house-7"), tokens_in=200_000, status="full")

    (told,) = [check for check in check_requests([long], tariff_for) if check.about == "history"]

    assert told.state == "unsure"
    assert "72,000 tokens longer than the 128,000 assumed for house-7; set its window under `tariffs`" in told.text


def test_a_share_of_failed_requests_is_a_finding_and_one_that_its_client_ended_did_not_fail() -> None:
    record, receipt = stored_request()
    dead = with_receipt(record, receipt, tokens_in=1, status="error", reason="upstream_unreachable")
    left = with_receipt(record, receipt, tokens_in=1, status="error", reason="client_left")

    def errors(*records: RequestRecord) -> tuple[str, str]:
        return next(
            (check.state, check.text) for check in check_requests(records, tariff_for) if check.about == "errors"
        )

    told = "1 of the newest 20 requests failed (upstream_unreachable: no connection to the provider was made)"
    assert errors(dead, *[record] * 19) == ("ok", told)
    assert errors(dead, dead, *[record] * 18) == ("finding", told.replace("1", "2", 1))
    assert errors(left, left) == ("ok", "0 of the newest 2 requests failed")


@pytest.mark.rows("X-62")
def test_the_doctor_warns_of_prices_that_are_older_than_sixty_days() -> None:
    record, receipt = stored_request()
    of_model = replace(record, receipt=msgspec.json.encode(msgspec.structs.replace(receipt, model="gpt-5.4")))
    row = msgspec.structs.replace(tariff_for("gpt-5.4"), as_of="2026-01-05")

    (told,) = [check for check in check_requests([of_model], lambda _: row) if check.about == "price"]

    assert told.state == "unsure"
    assert "days ago (2026-01-05)" in told.text
    assert "callstack inspect tariffs --update" in told.text


def test_the_doctor_says_which_row_of_prices_each_model_got() -> None:
    """The models of the newest requests: a model in no table is told with the key to set."""
    record, receipt = stored_request()
    of_model = (
        replace(record, receipt=msgspec.json.encode(msgspec.structs.replace(receipt, model=model)))
        for model in ("house-7", "gpt-6.9-sol", "gpt-5.4")
    )

    def fresh(model: str) -> Tariff:
        return msgspec.structs.replace(tariff_for(model), as_of=f"{datetime.now(UTC):%Y-%m-%d}")

    unknown, like, known = [check for check in check_requests(of_model, fresh) if check.about == "price"]

    assert (unknown.state, like.state, known.state) == ("unsure", "unsure", "ok")
    assert "house-7: in no price table, 1 USD per million stands in" in unknown.text
    assert "`tariffs`" in unknown.text
    assert "gpt-6.9-sol: in no price table, 2 USD per million (family of gpt-6.2-sol) stands in" in like.text
    assert "gpt-5.4: 2.5 USD" in known.text
    assert "built-in" in known.text


def stored_request() -> tuple[RequestRecord, Receipt]:
    (record,) = [r for r in records_of("t", "a")[0] if isinstance(r, RequestRecord)]
    receipt = decode_receipt(record)
    assert receipt is not None
    return record, receipt


def with_receipt(
    record: RequestRecord, receipt: Receipt, *, tokens_in: int, status: str, reason: str = ""
) -> RequestRecord:
    raw = msgspec.json.encode(msgspec.structs.replace(receipt, tokens_in=tokens_in, status=status, reason=reason))
    return replace(record, receipt=raw, status=status)


@pytest.mark.rows("X-42")
@pytest.mark.parametrize(
    ("count", "extra", "states"),
    [(41, {}, ["finding"]), (40, {}, []), (41, {"defer_loading": True}, [])],
    ids=["many", "not too many", "deferred"],
)
def test_a_client_that_sends_every_tool_with_every_request_is_a_finding(
    count: int, extra: dict[str, bool], states: list[str]
) -> None:
    tools: list[dict[str, object]] = [{"name": f"t{at}", "input_schema": {"type": "object"}} for at in range(count)]
    tools[0] |= extra
    tools.append({"type": "web_search_20250305", "name": "web_search"})
    body = json.dumps({"model": "claude-x", "messages": [], "tools": tools}).encode()
    chat = json.dumps({"model": "gpt-x", "messages": [], "tools": [{"type": "function"}] * 50}).encode()

    found = list(check_tools([body, chat, b"", body]))

    assert [check.state for check in found] == states
    assert all("ENABLE_TOOL_SEARCH=true" in check.text for check in found)
