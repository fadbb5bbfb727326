"""`report` and `tariffs` as processes of their own: what they print, on which width, and what they never print."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from callstack_proxy.cli.context import project_folders
from callstack_proxy.management.reports import is_in_project
from callstack_proxy.management.views import compare_sessions
from proxy.accounting import GateDecision, PlanCost, PlanWindowUse, Receipt, tariff_for
from proxy.accounting.model_facts import MODELS_FILE
from proxy.core.ledger import Conversation
from proxy.core.observers import DEFAULT_TOOL_ROLES
from proxy.store.interface import RequestRecord
from proxy.store.sql import open_store
from tests.cli.conftest import Shell, Stocked
from tests.cli.test_looking import OBEYED
from tests.management.api.small_ledger import records_of

MIDNIGHT = 1_700_006_400_000
"""2023-11-15 00:00 in UTC, ms."""


def stored(folder: Path, *receipts: dict[str, object], title: str = "Make the suite green") -> Shell:
    """A store with one conversation and these requests: what each has different from the usual one."""

    async def fill() -> None:
        store = open_store("sqlite", folder / "data")
        await store.start()
        records, _ = records_of("local", "a", title)
        (usual,) = [record for record in records if isinstance(record, RequestRecord)]
        kept = msgspec.json.decode(usual.receipt, type=Receipt)
        made = [
            replace(
                usual,
                id=f"request{number}",
                created=int(str(told.get("created", usual.created))),
                receipt=msgspec.json.encode(msgspec.structs.replace(kept, id=f"request{number}", **told)),
            )
            for number, told in enumerate(receipts)
        ]
        others = [record for record in records if not isinstance(record, RequestRecord)]
        await store.wait_until_durable(store.write("local", [*others, *made]))
        await store.close()

    asyncio.run(fill())
    return Shell(folder, folder / "data")


# ------------------------------------------------------------------------------------------------------------ a report
@pytest.mark.rows("X-16")
def test_a_report_adds_up_and_says_what_is_estimated(stocked: Stocked) -> None:
    """X-16."""
    shown = stocked.shell.on_data("report", "--by", "conversation")

    assert shown.code == 0
    assert stocked.older.conversation[:12] in shown.out
    assert "Make the suite" in shown.out
    assert "total: 2 requests; 18,200 tokens from the agents, 4,200 sent" in shown.out
    assert "saved so far: $" in shown.out
    assert "cost estimated for 2 of 2" in shown.out


@pytest.mark.rows("X-63")
def test_a_report_of_what_a_plan_paid_speaks_of_its_week_and_of_dollars_where_asked(tmp_path: Path) -> None:
    windows = PlanWindowUse("5h", scale=0.5), PlanWindowUse("7d", scale=0.05)
    plan = PlanCost(0.41, 0.6, 0.007, 0.0, 1.0, 1.0, 40, windows)
    shell = stored(tmp_path, {"plan": plan}, {"plan": plan}, {"status": "keep_alive"})

    told, asked = shell.on_data("report").out, shell.on_data("report", "--dollars").out

    assert "taken so far: 4.1 % of your week, without us 6.0 %" in told
    assert "$" not in told
    assert "USD" not in told
    assert "saved so far: $" in asked
    by_both = stored(
        tmp_path / "both", {"plan": plan, "cost_untouched": 90.0}, {"cost": 1.0, "cost_untouched": 4.0, "saved": 3.0}
    )
    part = by_both.on_data("report").out
    assert "taken so far: 2.1 % of your week, without us 3.0 %" in part
    assert "by 1 of 2 requests, for which a plan paid; dollars are those of the others" in part
    assert "saved so far: $3.0000 of $4.0000" in part
    assert "of $94" in by_both.on_data("report", "--dollars").out
    tree = by_both.on_data("tree").out
    assert "a plan paid for 1 of 2 requests (2.1 % of your week, without us 3.0 %)" in tree
    assert "saved so far: $3.0000 of $4.0000" in tree
    rest = shell.on_data("report", "--without-fixed").out
    assert "without us 6.0 % (with the client's tools and system text)" in rest


@pytest.mark.rows("X-62")
def test_a_report_says_for_how_many_requests_prices_are_assumed(tmp_path: Path) -> None:
    shell = stored(tmp_path, {"priced": False}, {"priced": True})

    assert "1 of 2: model in no price table, its prices are assumed" in shell.on_data("report").out


def test_a_report_says_first_that_the_provider_did_not_answer(tmp_path: Path) -> None:
    failed: dict[str, object] = {
        "status": "error",
        "reason": "upstream_unreachable",
        "cost": 0.0,
        "cost_untouched": 0.0,
    }
    own: dict[str, object] = {"status": "keep_alive"}
    told: dict[str, tuple[dict[str, object], ...]] = {
        "2 of 4 requests": (failed, failed, {"status": "awake"}, {"status": "error", "reason": "client_left"}, own),
        "All 2 requests": (failed, failed, own),
        "The only request": (failed,),
    }

    for count, receipts in told.items():
        (tmp_path / count).mkdir()
        first = stored(tmp_path / count, *receipts).on_data("report").out.splitlines()[0]
        assert first == f"{count} failed: no connection to the provider was made."


@pytest.mark.parametrize(("by", "columns"), [("frame", 80), ("request", 80), ("conversation", 100)])
def test_a_report_fits_the_terminal(stocked: Stocked, by: str, columns: int) -> None:
    words = ("report", "--by", by, "--data", str(stocked.shell.data))
    shown = stocked.shell.run(*words, env={"COLUMNS": str(columns)})

    assert shown.code == 0
    assert max(len(line) for line in shown.out.splitlines()) <= columns
    for heading in ("tokens in", "sent", "with us $", "saved $"):
        assert heading in shown.out.splitlines()[3]


@pytest.mark.rows("X-65")
def test_a_report_of_a_period_says_first_what_was_saved_in_it_and_what_was_dearer(tmp_path: Path) -> None:
    """Requests of 40 days ago, of ten days ago and of now, the newest of them a loss."""
    now, day = int(time.time() * 1000), 86_400_000
    money = {now - 40 * day: (3.0, 4.0), now - 10 * day: (1.0, 2.0), now: (0.5, 0.25)}
    rows: list[dict[str, object]] = [
        {"created": created, "cost": cost, "cost_untouched": untouched, "saved": untouched - cost}
        for created, (cost, untouched) in money.items()
    ]
    shell = stored(tmp_path, *rows)
    lines = {word: shell.on_data("report", *word.split()).out.splitlines() for word in ("", "--week", "--month")}

    assert lines[""][:2] == ["saved so far: $1.7500 of $6.2500 (28.0 %)", "Dearer with us: none."]
    assert lines["--month"][0] == "saved in the last 30 days: $0.7500 of $2.2500 (33.3 %)"
    assert lines["--week"][:2] == [
        "saved in the last 7 days: -$0.2500 of $0.2500 (-100.0 %)",
        "Dearer with us: 1 conversation, $0.2500 in all, at most 100.0 %.",
    ]
    assert lines["--week"][2].split() == ["aconversatio", "$0.2500", "(100.0", "%)"]
    told = json.loads(shell.on_data("report", "--today", "--json").out)
    assert (told["total"]["requests"], told["dearer"], told["capped"]) == (1, ["aconversation"], False)
    oldest = time.strftime("%Y-%m-%d", time.localtime(now / 1000 - 40 * 86_400))
    on_that_day = shell.on_data("report", "--since", oldest, "--until", oldest).out
    assert on_that_day.startswith(f"saved on {oldest}: $1.0000 of $4.0000 (25.0 %)")
    assert shell.on_data("report", "--until", "2001-01-01").out.startswith("No requests until 2001-01-01.")


@pytest.mark.rows("X-65")
def test_what_only_we_asked_in_a_period_is_dearer_by_no_share(tmp_path: Path) -> None:
    """A ping of the cache has no untouched cost; what stands in no conversation is none."""
    ping: dict[str, object] = {"cost": 0.25, "cost_untouched": 0.0, "saved": -0.25}
    lines = stored(tmp_path, ping, {**ping, "conversation": ""}).on_data("report").out.splitlines()

    assert lines[1] == "Dearer with us: 1 conversation, $0.2500 in all."
    assert lines[2].split() == ["aconversatio", "$0.2500"]


@pytest.mark.rows("X-65")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--today", "--week"), "--today and --week: choose one"),
        (("--week", "--since", "2026-01-01"), "leave out the dates, or the period"),
        (("--since", "2026-13-01"), "since '2026-13-01': no date; write it as YYYY-MM-DD"),
        (("--until", "9999-12-31"), "until '9999-12-31': the year is none of 1970 to 2999"),
        (("--since", "0001-01-01"), "since '0001-01-01': the year is none of 1970 to 2999"),
        (("--since", "2026-02-02", "--until", "2026-02-01"), "until 2026-02-01 is before since 2026-02-02"),
    ],
)
def test_a_period_that_is_none_is_said(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    shown = stored(tmp_path, {}).on_data("report", *words)

    assert shown.code != 0
    assert told in shown.errors.replace("\n", " ")


@pytest.mark.parametrize("by", ["conversation", "frame"])
def test_nothing_that_a_terminal_obeys_is_in_a_report(stocked: Stocked, by: str) -> None:
    """A11: titles with escapes, a C1 control, and an override of direction, on paper and in a file."""
    for words in (("report", "--by", by), ("report", "--by", by, "--csv"), ("report", "--by", by, "--json")):
        shown = stocked.shell.on_data(*words)
        assert shown.code == 0
        assert OBEYED.findall(shown.out.replace("\r\n", "\n")) == []


def test_a_report_of_one_conversation_is_json_where_that_is_wanted(stocked: Stocked) -> None:
    told = json.loads(stocked.shell.on_data("report", "--conversation", stocked.older.conversation, "--json").out)

    assert (told["total"]["requests"], told["total"]["tokens_in"]) == (1, 9_100)
    assert (told["by"], told["fixed"], told["capped"], told["unsettled"]) == ("day", True, False, 0)


def test_a_report_as_csv_has_every_figure_and_no_formula(tmp_path: Path) -> None:
    """A title is a model's words; a spreadsheet must not run it."""
    shell = stored(tmp_path, {}, title='=HYPERLINK("http://evil.example")')
    table = shell.on_data("report", "--by", "conversation", "--csv").out
    (row,) = csv.DictReader(io.StringIO(table))

    told = json.loads(shell.on_data("report", "--by", "conversation", "--json").out)["rows"][0]
    assert set(row) == set(told)
    assert row["title"].startswith("'=HYPERLINK")
    assert (int(row["tokens_in"]), float(row["saved"])) == (told["tokens_in"], told["saved"])


@pytest.mark.rows("S2-15")
@pytest.mark.parametrize(("by", "told", "cell"), [("conversation", 0, "0"), ("frame", 0, "0"), ("day", None, "")])
def test_what_was_read_again_is_told_by_frame_and_by_conversation(
    stocked: Stocked, by: str, told: int | None, cell: str
) -> None:
    """S2-15: elsewhere nobody looked, and nothing is not none."""
    sums = json.loads(stocked.shell.on_data("report", "--by", by, "--json").out)
    table = csv.DictReader(io.StringIO(stocked.shell.on_data("report", "--by", by, "--csv").out))

    assert {(row["rereads"], row["rereads_gone"]) for row in (*sums["rows"], sums["total"])} == {(told, told)}
    assert {(row["rereads"], row["rereads_gone"]) for row in table} == {(cell, cell)}
    shown = stocked.shell.run("report", "--by", by, "--data", str(stocked.shell.data), env={"COLUMNS": "160"})
    assert ("re-reads  gone" in shown.out) == (told is not None)


def test_without_the_fixed_part_its_tokens_and_its_money_are_gone_and_the_saving_stays(stocked: Stocked) -> None:
    whole = json.loads(stocked.shell.on_data("report", "--json").out)["total"]
    rest = json.loads(stocked.shell.on_data("report", "--without-fixed", "--json").out)["total"]
    shown = stocked.shell.on_data("report", "--without-fixed")

    assert rest["tokens_in"] == whole["tokens_in"] - whole["fixed_in"] == 18_000
    assert rest["saved"] == whole["saved"]
    assert rest["cost"] < whole["cost"]
    assert "from the agents, less the fixed part" in shown.out


def test_days_are_local_and_the_zone_is_said(tmp_path: Path) -> None:
    """`tree` tells local times: the days agree with it."""
    shell = stored(tmp_path, {"created": MIDNIGHT - 1}, {"created": MIDNIGHT})
    words = ("report", "--data", str(shell.data))

    for zone, days in (("UTC", ["2023-11-14", "2023-11-15"]), ("Asia/Tokyo", ["2023-11-15"])):
        shown = shell.run(*words, env={"TZ": zone})
        told = json.loads(shell.run(*words, "--json", env={"TZ": zone}).out)
        assert [row["key"] for row in told["rows"]] == days
        assert f"day, {told['zone']}" in shown.out
    assert told["zone"] == "JST (UTC+09:00)"


def test_a_loss_is_shown_as_a_loss(tmp_path: Path) -> None:
    shell = stored(tmp_path, {"tokens_saved": -900, "saved": -0.25, "cost": 1.0, "cost_untouched": 0.75})
    shown = shell.on_data("report").out

    assert "-0.2500" in shown
    assert re.search(r"saved +-900", shown)
    assert "33 % of the money lost" in shown


def test_a_report_of_an_empty_store_says_so(tmp_path: Path) -> None:
    shell = stored(tmp_path)
    empty, as_csv, as_json = (shell.on_data("report", *words) for words in ((), ("--csv",), ("--json",)))

    assert (empty.code, as_csv.code, as_json.code) == (0, 0, 0)
    assert "No requests yet" in empty.out
    assert as_csv.out.startswith("key,")
    assert len(as_csv.out.splitlines()) == 1
    told = json.loads(as_json.out)
    assert (told["rows"], told["total"]["requests"]) == ([], 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--by", "mood"], "allowed: request, frame, conversation, model, day, client"),
        (["--json", "--csv"], "choose one"),
        (["--conversation", "nothing"], "no conversation 'nothing'"),
    ],
)
def test_what_cannot_be_reported_is_one_message_and_exit_code_2(stocked: Stocked, words: list[str], says: str) -> None:
    shown = stocked.shell.on_data("report", *words)

    assert (shown.code, shown.out) == (2, "")
    assert says in shown.errors
    assert "Traceback" not in shown.errors


@pytest.mark.rows("S4-36")
def test_the_difference_of_a_request_shows_what_the_gate_decided(tmp_path: Path) -> None:
    """S4-36: also what it put off, with its figures."""
    put_off = GateDecision("fold", "f12", False, "not_yet", 9_000, 700, 40_000, 35, 0.1, 1.25, 46_875, 29_050)
    nothing_yet = GateDecision("wake", "", False, "not_yet", 0, 0, 0, 50, 0.1, 1.25, 0, 0)
    shell = stored(tmp_path, {"decisions": (put_off, nothing_yet), "lost_reasoning": 120})
    printed = shell.on_data("diff", "request0").out
    shown = " ".join(printed.split())

    assert "wake: nothing that could leave is worth it yet\n" in printed
    assert "fold f12: not now, because it would cost more than it saves; 9,000 tokens would leave" in shown
    assert "700 would stand for them, 40,000 behind them" in shown
    assert "worth 29,050 tokens of input over 35 requests to come, which are assumed, at a price of 46,875 now" in shown
    assert "120 tokens of reasoning had to be left out" in shown


# ------------------------------------------------------------------------------------------------------------- tariffs
def test_tariffs_say_which_row_a_model_gets(shell: Shell) -> None:
    (shell.home / "proxy.yaml").write_text("tariffs: {house: {names: [gpt-5.4], input: 9, as_of: 2026-10-31}}")
    told = json.loads(shell.run("tariffs", "openai/gpt-5.4-2026-03-05", "gpt-5.5", "nobody", "--json").out)

    assert [(row["source"], row["input"], row["as_of"]) for row in told] == [
        ("tariffs.house", 9.0, "2026-10-31"),
        ("built-in", 5.0, tariff_for("gpt-5.5").as_of),
        ("default_tariff", 1.0, ""),
    ]
    assert told[0]["window"] == 1_050_000


@pytest.mark.parametrize("columns", [80, 200])
def test_the_list_of_tariffs_fits_the_terminal(shell: Shell, columns: int) -> None:
    shown = shell.run("tariffs", env={"COLUMNS": str(columns)})
    head, *rows = shown.out.splitlines()

    assert max(map(len, [head, *rows])) <= columns
    assert ("traits" in head) is (columns == 200)
    for heading in ("model", "in $", "out $", "read", "write", "window", "row", "as of"):
        assert heading in head
    assert rows[-1].startswith("any other")


@pytest.mark.rows("X-62")
def test_the_age_of_each_row_is_told_and_old_ones_are_a_warning(shell: Shell) -> None:
    newest = f"{datetime.now(UTC):%Y-%m-%d}"
    (shell.home / "proxy.yaml").write_text(
        f"tariffs: {{old: {{input: 1, as_of: 2026-01-05}}, new: {{input: 1, as_of: {newest}}}, some: {{input: 1}}}}"
    )
    old, new = (shell.run("tariffs", "--check", *models) for models in (("old", "new", "some"), ("new",)))

    assert (old.code, new.code) == (1, 0)
    assert "1 of 3 rows checked more than 60 days ago" in old.out
    assert "--update" in old.out
    assert "1 row without a day" in old.out
    assert re.search(rf"^new +0 +{newest}", old.out, re.MULTILINE)
    assert "no row was checked more than 60 days ago" in new.out


LITELLM_TABLE = {
    "sample_spec": {"mode": "one of"},
    "gpt-5.4": {
        "mode": "chat", "litellm_provider": "openai", "input_cost_per_token": 3e-06, "output_cost_per_token": 1.8e-05,
        "cache_read_input_token_cost": 3e-07, "max_input_tokens": 922_000, "max_output_tokens": 128_000,
        "input_cost_per_token_above_272k_tokens": 6e-06, "output_cost_per_token_above_272k_tokens": 2.7e-05,
    },
    "house/house-7": {
        "mode": "chat", "litellm_provider": "house", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06,
        "cache_creation_input_token_cost": 1.25e-06, "cache_creation_input_token_cost_above_1hr": 2e-06,
        "max_input_tokens": 64_000, "max_output_tokens": 8_000,
    },
    "house/pictures": {"mode": "image_generation", "input_cost_per_token": 1e-06},
}  # fmt: skip


@pytest.mark.rows("X-62")
def test_an_update_takes_prices_from_a_table_of_litellm_and_the_configuration_wins(shell: Shell) -> None:
    (shell.home / "prices.json").write_text(json.dumps(LITELLM_TABLE))
    data = ("--data", str(shell.data))
    before = json.loads(shell.run("tariffs", "gpt-5.4", *data, "--json").out)[0]

    done = shell.run("tariffs", "--update", "prices.json", *data)
    listed, house, other = json.loads(shell.run("tariffs", "gpt-5.4", "house-7", "pictures", *data, "--json").out)
    (shell.home / "proxy.yaml").write_text("tariffs: {house-*: {input: 9}, gpt-5.4: {output: 1}}")
    ours, theirs = json.loads(shell.run("tariffs", "house-7", "gpt-5.4", *data, "--json").out)

    assert (done.code, done.out.startswith("2 models written to")) == (0, True)
    prices = ("input", "output", "read", "write", "long_context", "long_input", "source")
    assert [listed[name] for name in prices] == [3.0, 18.0, 0.1, 1.0, 272_000, 2.0, "updated"]
    assert [listed[name] for name in ("window", "ttl_s", "step")] == [
        before[name] for name in ("window", "ttl_s", "step")
    ]
    assert [house[name] for name in prices] == [1.0, 2.0, 1.0, 1.25, 0, 2.0, "updated"]
    assert (house["window"], house["known"], house["long_write"]) == (64_000, True, 2.0)
    assert other["source"] == "default_tariff"
    assert (ours["input"], ours["output"], ours["source"]) == (9.0, 2.0, "tariffs.house-*")
    assert (theirs["input"], theirs["output"], theirs["source"]) == (3.0, 1.0, "tariffs.gpt-5.4")


@pytest.mark.rows("X-62")
def test_an_update_takes_a_list_in_the_form_of_the_shipped_one(shell: Shell) -> None:
    shutil.copy(MODELS_FILE, shell.home / "mine.toml")
    text = (shell.home / "mine.toml").read_text()
    (shell.home / "mine.toml").write_text(text.replace("input = 8.0", "input = 7.5"))

    done = shell.run("tariffs", "--update", "mine.toml", "--data", str(shell.data))
    (row,) = json.loads(shell.run("tariffs", "claude-fable-5-2", "--data", str(shell.data), "--json").out)

    assert done.code == 0
    assert (row["input"], row["source"], row["binding"]) == (7.5, "updated", "error")


@pytest.mark.rows("X-62")
@pytest.mark.parametrize("source", ["none.json", "broken.json", "empty.json"])
def test_an_update_that_cannot_be_read_changes_nothing_and_says_so(shell: Shell, source: str) -> None:
    (shell.home / "broken.json").write_text("{")
    (shell.home / "empty.json").write_text("{}")

    done = shell.run("tariffs", "--update", source, "--data", str(shell.data))

    assert done.code == 2
    assert source in done.errors
    assert not (shell.data / "models.json").exists()


def test_a_wrong_tariff_is_one_message_and_exit_code_2(shell: Shell) -> None:
    (shell.home / "proxy.yaml").write_text("tariffs: {house: {input: -9}}")
    shown = shell.run("tariffs")

    assert (shown.code, shown.out) == (2, "")
    assert "tariffs.house.input" in shown.errors


# ------------------------------------------------------------------------------------------------------------ the proof
@pytest.mark.rows("X-64")
def test_a_proof_counts_sessions_that_belong_to_one_group(tmp_path: Path) -> None:
    """One conversation makes no proof, and one whose mode changed within it is in no group."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    held_out = stored(tmp_path / "one", {"group": "holdout", "status": "shadow"}, {"group": "holdout"})
    changed = stored(tmp_path / "two", {"group": "holdout"}, {"group": ""})

    told = held_out.on_data("report", "--proof")
    assert told.code == 0, told.errors
    assert told.out.splitlines()[0] == "Not enough sessions yet: 0 with folds and 1 held out; each needs 20."
    assert "none was held out" in changed.on_data("report", "--proof").out
    assert json.loads(held_out.on_data("report", "--proof", "--json").out)["held_out"] == 1
    refused = held_out.on_data("report", "--proof", "--project", "/repos", "--by", "client")
    assert refused.code == 2
    assert "leave out --by and --project" in " ".join(refused.errors.split())


@pytest.mark.rows("X-64")
def test_a_proof_of_a_period_counts_whole_the_sessions_that_began_in_it(tmp_path: Path) -> None:
    """The ledger tells of a whole session: its re-reads are never set against a part of its requests."""
    days = (datetime(2026, 11, 20, 12), datetime(2026, 11, 22, 12))
    shell = stored(tmp_path, *({"group": "holdout", "created": int(day.timestamp() * 1000)} for day in days))

    def counted(*options: str) -> tuple[int, int]:
        told = json.loads(shell.on_data("report", "--proof", "--json", *options).out)
        (requests,) = (row["held_out"] for row in told["measures"] if row["name"] == "requests")
        return told["held_out"], round(requests or 0)

    assert counted("--since", "2026-11-22") == (0, 0)
    assert counted("--since", "2026-11-19", "--until", "2026-11-21") == (1, 2)
    assert counted("--until", "2026-11-19") == (0, 0)


@pytest.mark.rows("X-64")
async def test_a_session_whose_first_requests_are_not_read_is_not_compared(tmp_path: Path) -> None:
    (began,) = (one.created for one in records_of("local", "a")[0] if isinstance(one, Conversation))
    asked = ({"group": "holdout", "created": began + number * 1000} for number in range(1, 4))
    shell = await asyncio.to_thread(stored, tmp_path, *asked)
    store = open_store("sqlite", shell.data)
    await store.start()
    compared = [await compare_sessions(store, None, DEFAULT_TOOL_ROLES, limit=limit) for limit in (4, 2)]
    await store.close()
    assert [(proof.held_out, capped) for proof, capped in compared] == [(1, False), (0, True)]


@pytest.mark.rows("X-65")
def test_a_report_is_asked_for_by_project(tmp_path: Path) -> None:
    """A folder counts with those below it, and not with those whose name only begins like it."""
    shell = stored(
        tmp_path,
        {"project": "/repos/shop"},
        {"project": "/repos/shop/api"},
        {"project": "/repos/shop2"},
        {"project": ""},
    )

    rows = json.loads(shell.on_data("report", "--by", "project", "--json").out)["rows"]
    assert [row["key"] for row in rows] == ["/repos/shop", "/repos/shop/api", "/repos/shop2", "(not told)"]
    only = json.loads(shell.on_data("report", "--project", "/repos/shop", "--json").out)
    assert only["total"]["requests"] == 2
    assert "total: 2 requests;" in shell.on_data("report", "--project", "/repos/shop").out
    nothing = shell.on_data("report", "--project", "/repos/sho", "--today").out
    assert nothing == "No requests today match --project /repos/sho. Without a filter, all are added up.\n"


@pytest.mark.rows("X-65")
def test_a_project_is_named_as_people_name_folders(tmp_path: Path) -> None:
    """By a way that goes up, and by a link."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "link").symlink_to("shop")
    for name in ("other/../shop", "link"):
        assert is_in_project(f"{tmp_path / 'shop'}/api", project_folders(tmp_path / name))
        assert not is_in_project("/repos/bank", project_folders(tmp_path / name))
    assert is_in_project(str(tmp_path / "link"), project_folders(tmp_path / "link"))
