"""What `/stack` tells, over a real socket, from a store in memory and from one on disk."""

import threading
from types import ModuleType
from typing import Any

import pytest
from pydantic import TypeAdapter

from callstack_proxy.management import find_by_id
from callstack_proxy.management.views import requests
from callstack_proxy.management.views import schemas as shapes
from proxy.errors import StoreError
from tests.management.api.conftest import Served
from tests.management.api.small_ledger import CLOCK, HALF_PAIR, bodies

STATE_KEYS = {"version", "frames", "activeFrameID", "rootFrameIDs", "updatedAt"}


def fits(shape: Any, value: Any) -> bool:
    """Whether a value is exactly what OpenAPI says of it."""
    TypeAdapter(shape).validate_python(value, strict=True)
    return True


async def test_a_row_says_what_a_conversation_is_about_and_where_it_stands(served: Served) -> None:
    (row,) = (await served.ask("/stack/conversations")).json["conversations"]

    assert row == {
        "id": served.ours.conversation,
        "parent": None,
        "threads": ["t1"],
        "title": "Make the suite green",
        "created": CLOCK,
        "last_active": row["last_active"],
        "requests": 1,
        "turns": 2,
        "retries": 0,
        "frames": 3,
        "active_frame": served.ours.root,
        "awake": False,
        "stopped": False,
        "mode": None,
        "cost": pytest.approx(0.003125),
        "cost_untouched": pytest.approx(0.011875),
        "saved": pytest.approx(0.00875),
        "cost_caused": 0.0,
        "plan": "",
        "plan_part": "",
        "saved_percent": 73.68,
    }
    assert row["last_active"] > CLOCK
    assert (await served.ask(f"/stack/conversations/{row['id']}")).json == row


async def test_threads_tell_their_tools_and_their_tip(served: Served) -> None:
    (thread,) = (await served.ask(f"/stack/conversations/{served.ours.conversation}/threads")).json["threads"]

    assert fits(shapes.ThreadRow, thread)
    assert (thread["tools"], thread["active_frame"]) == (["bash", "read"], served.ours.root)


@pytest.mark.rows("S1-04", "S1-08", "S1-09", "S1-131")
async def test_the_state_has_the_five_keys_and_every_field_of_a_frame(served: Served) -> None:
    """S1-04, S1-08, S1-09, S1-131."""
    state = (await served.ask(f"/stack/conversations/{served.ours.conversation}/state")).json

    assert set(state) == STATE_KEYS
    assert fits(shapes.TreeState, state)
    child = state["frames"][served.ours.child]
    assert child["parentSessionID"] == served.ours.root
    assert child["results"] == "Decimal until the last step"
    assert child["logPath"] == f"/stack/frames/{served.ours.child}/log"
    assert state["frames"][served.ours.root]["plannedChildren"] == [served.ours.planned]
    assert state["activeFrameID"] == served.ours.root


async def test_the_tree_is_text_as_the_model_sees_it_and_json_where_that_is_asked_for(served: Served) -> None:
    path = f"/stack/conversations/{served.ours.conversation}/tree"
    text, as_json = await served.ask(path), await served.ask(path, headers={"accept": "application/json"})

    assert (text.kind, as_json.kind) == ("text/plain", "application/json")
    assert f"✓ Fix rounding [{served.ours.child}]" in text.body.decode()
    assert set(as_json.json) == STATE_KEYS


FILTERS = [
    ("", ["root", "child", "planned"]),
    ("?status=completed", ["child"]),
    ("?parent={root}", ["child", "planned"]),
    ("?parent={root}&status=planned", ["planned"]),
    ("?ancestors_of={child}", ["root"]),
    ("?ancestors_of={root}", []),
    ("?ancestors_of=nobody", []),
]


@pytest.mark.rows("S1-33", "S1-34")
async def test_frames_are_filtered_by_status_parent_and_ancestry(served: Served) -> None:
    """S1-33, S1-34."""
    ids = vars(served.ours)
    for query, expected in FILTERS:
        path = f"/stack/conversations/{served.ours.conversation}/frames{query.format(**ids)}"
        frames = (await served.ask(path)).json["frames"]

        assert (query, [frame["sessionID"] for frame in frames]) == (query, [ids[name] for name in expected])


async def test_a_frame_tells_its_place(served: Served) -> None:
    frame = (await served.ask(f"/stack/frames/{served.ours.child}")).json

    assert fits(shapes.FrameDetail, frame)
    assert (frame["conversation"], frame["ancestors"]) == (served.ours.conversation, [served.ours.root])
    assert not frame["active"]


@pytest.mark.rows("S0-08", "S0-10")
async def test_the_log_of_a_frame_holds_what_left_the_line_byte_for_byte(served: Served) -> None:
    """S0-08, S0-10, D14: odd white space, half a surrogate pair and escapes come back as they were stored."""
    log = (await served.ask(f"/stack/frames/{served.ours.child}/log?raw=1")).json

    assert fits(shapes.FrameLog, log)
    assert [entry["wire"].encode() for entry in log["entries"]] == served.ours.wires
    assert [entry["role"] for entry in log["entries"]] == ["assistant", "tool", "assistant"]
    assert log["entries"][0]["text"] == HALF_PAIR
    assert log["entries"][0]["calls"][0]["name"] == "read"
    assert log["entries"][2]["results"][0]["text"] == "Frame is completed."
    assert all(entry["current"] for entry in log["entries"])


async def test_a_log_without_raw_leaves_the_wire_out(served: Served) -> None:
    log = (await served.ask(f"/stack/frames/{served.ours.root}/log")).json

    assert [entry["text"] for entry in log["entries"]] == ["make the suite green", "", "Billing is green."]
    assert all("wire" not in entry for entry in log["entries"])


@pytest.mark.rows("X-16")
async def test_a_request_tells_its_receipt_and_every_body(served: Served) -> None:
    """X-16."""
    (row,) = (await served.ask(f"/stack/requests?conversation={served.ours.conversation}")).json["requests"]
    detail = (await served.ask(f"/stack/requests/{row['id']}")).json

    assert fits(shapes.RequestRow, row)
    assert fits(shapes.RequestDetail, detail)
    assert row["receipt"]["tokens_in"] == 9_100
    assert (detail["body"].encode(), detail["sent"][0]["body"].encode()) == bodies()


async def test_a_difference_names_what_was_kept_left_out_and_inserted(served: Served) -> None:
    difference = (await served.ask(f"/stack/requests/{served.ours.request}/diff")).json

    assert fits(shapes.RequestDiff, difference)
    (only,) = difference["rounds"]
    assert only["counts"] == {"kept": 1, "first bytes": 1, "left out": 1, "inserted": 1}
    assert [row["change"] for row in only["head"]] == ["left out", "inserted"]
    assert (only["tools"]["kept"], only["tools"]["inserted"]) == (["bash"], ["stack_frame_push"])
    assert only["fields"]["inserted"] == ["stream_options"]


@pytest.mark.rows("X-16")
async def test_totals_are_the_sum_of_the_receipts(served: Served) -> None:
    """X-16: sum over calls = totals."""
    for by in ("request", "frame", "conversation", "model", "day", "client"):
        told = (await served.ask(f"/stack/totals?by={by}")).json

        assert fits(shapes.Totals, told)
        assert told["total"]["tokens_in"] == sum(row["tokens_in"] for row in told["rows"]) == 9_100
        assert told["unsettled"] == 0


async def test_totals_of_one_client(served: Served) -> None:
    told = {key: (await served.ask("/stack/totals?by=client", key=key)).json["rows"] for key in ("ours", "admin")}
    of_one = (await served.ask("/stack/totals?by=model&client=agent-b", key="admin")).json["total"]
    of_nobody = (await served.ask("/stack/totals?client=agent-b", key="ours")).json["total"]

    assert [row["key"] for row in told["ours"]] == ["agent-a"]
    assert sorted(row["key"] for row in told["admin"]) == ["agent-a", "agent-b"]
    assert (of_one["requests"], of_one["tokens_in"]) == (1, 9_100)
    assert of_nobody["requests"] == 0


@pytest.mark.rows("X-65")
async def test_totals_of_a_period(served: Served) -> None:
    found = {
        query: (await served.ask(f"/stack/totals?{query}")).json["total"]["requests"]
        for query in ("", "period=week", "since=2023-11-14&until=2023-11-15", "until=2023-11-01")
    }

    assert found == {"": 1, "period=week": 0, "since=2023-11-14&until=2023-11-15": 1, "until=2023-11-01": 0}


async def test_a_mode_set_by_a_person_stays_and_can_be_taken_back(served: Served) -> None:
    path = f"/stack/conversations/{served.ours.conversation}"
    set_off = await served.ask(f"{path}/mode", method="PUT", json={"mode": "off"})
    seen = (await served.ask(path)).json["mode"]
    taken_back = await served.ask(f"{path}/mode", method="PUT", json={"mode": None})

    assert (set_off.json["mode"], seen, taken_back.json["mode"]) == ("off", "off", None)
    assert served.changed == [("key-ours", served.ours.conversation)] * 2


async def test_a_forgotten_conversation_is_gone_with_its_frames_and_requests(served: Served) -> None:
    """T10."""
    gone = await served.ask(f"/stack/conversations/{served.ours.conversation}", method="DELETE")
    left = [
        (await served.ask(path)).status
        for path in (
            f"/stack/conversations/{served.ours.conversation}",
            f"/stack/frames/{served.ours.child}",
            f"/stack/requests/{served.ours.request}",
        )
    ]

    assert (gone.status, gone.json["conversations"]) == (200, 1)
    assert left == [404, 404, 404]
    assert served.changed == [("key-ours", served.ours.conversation)]
    assert (await served.ask(f"/stack/conversations/{served.theirs.conversation}", "theirs")).status == 200


@pytest.mark.parametrize("key", ["ours", "token"])
async def test_what_is_left_of_a_forgotten_conversation_can_be_forgotten_by_its_id(served: Served, key: str) -> None:
    """T10: the receipt of an answer that was under way. Nobody else can do that, and once it is done there is nothing
    by that name."""
    path = f"/stack/conversations/{served.ours.conversation}"
    kept = await served.store.request("key-ours", served.ours.request)
    assert kept is not None
    await served.ask(path, method="DELETE")
    await served.store.wait_until_durable(served.store.write("key-ours", [kept.record, *kept.sent]))

    seen = (await served.ask(f"/stack/requests/{served.ours.request}")).json
    others = await served.ask(path, "theirs", method="DELETE")
    still = (await served.ask(f"/stack/requests/{served.ours.request}")).status
    await served.ask(path, key, method="DELETE")

    assert "green" not in str(seen)
    assert (others.status, still) == (404, 200)
    assert (await served.ask(f"/stack/requests/{served.ours.request}")).status == 404
    assert (await served.ask(path, method="DELETE")).status == 404


@pytest.mark.parametrize("named", ["/{}", "?before=9"])
async def test_memory_lets_go_of_what_is_deleted_also_where_a_copy_may_stay_in_the_file(
    served: Served, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    async def says_so(*_: object) -> None:
        raise StoreError("copies may stay", code="store_locked")

    # A patch: the store says this after five seconds of another process reading its file, and one in memory never does.
    monkeypatch.setattr(served.store, "delete_conversations", says_so)
    conversation = served.ours.conversation if "{}" in named else ""
    told = await served.ask(f"/stack/conversations{named.format(conversation)}", method="DELETE")

    assert (told.status, told.json["error"]["code"]) == (500, "store_locked")
    assert served.changed == [("key-ours", conversation)]


async def test_everything_before_a_time_is_forgotten_for_this_tenant_alone(served: Served) -> None:
    gone = await served.ask(f"/stack/conversations?before={CLOCK * 2}", method="DELETE")

    assert gone.json["conversations"] == 1
    assert (await served.ask("/stack/conversations")).json == {"conversations": []}
    assert len((await served.ask("/stack/conversations", "theirs")).json["conversations"]) == 1


@pytest.mark.rows("S1-10")
async def test_health_needs_no_key_and_says_when_the_end_begins(served: Served) -> None:
    ready = await served.ask("/health", key=None)
    served.draining = True
    ending = await served.ask("/health", key=None)

    assert (ready.status, ready.json["status"], ready.json["store"]["ok"]) == (200, "ready", True)
    assert (ready.json["started"], ready.json["token_counter"]) == (7, "o200k_base")
    assert (ending.status, ending.json["status"]) == (503, "draining")


OF_A_PATH = (
    "", "/threads", "/frames", "/state", "/tree", "/context", "/context/preview", "/explain", "/compactions",
    "/decisions", "/artifacts", "/edges", "/resume", "/autonomy", "/checkpoints", "/branches",
    "/export?format=handover",
)  # fmt: skip


def noted_threads(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[int]:
    """The threads in which a function runs from now on."""
    threads: list[int] = []
    function = getattr(module, name)

    def noting(*given: object) -> object:
        threads.append(threading.get_ident())
        return function(*given)

    monkeypatch.setattr(module, name, noting)
    return threads


@pytest.mark.parametrize("path", OF_A_PATH)
async def test_a_path_is_folded_beside_the_loop(served: Served, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Of thousands of messages it takes tenths of a second, in which nobody's request would be answered."""
    folded = noted_threads(monkeypatch, find_by_id, "replay")

    answer = await served.ask(f"/stack/conversations/{served.ours.conversation}{path}")

    assert answer.status == 200
    assert folded
    assert threading.get_ident() not in folded


async def test_bodies_are_compared_beside_the_loop(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6,000 messages it takes half a second."""
    compared = noted_threads(monkeypatch, requests, "diff_bodies")
    row, *_ = (await served.ask("/stack/requests")).json["requests"]

    assert (await served.ask(f"/stack/requests/{row['id']}/diff")).status == 200

    assert compared
    assert threading.get_ident() not in compared
