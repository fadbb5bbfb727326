"""What cannot be taken in is refused with the place, the reason and what to do, and nothing of it is in the store."""

import json
import os
import zipfile
from collections.abc import Callable
from itertools import islice

import pytest

from callstack_proxy.management.export import ExportOptions, format_named
from callstack_proxy.management.export.files import write_export, zip_chunks
from proxy.errors import BadRequest, NotAllowed
from tests.management.api.small_ledger import records_of
from tests.management.export.conftest import ExportStores, Json, Small


def changed(change: Callable[[list[Json]], list[Json]]) -> Callable[[list[bytes]], list[bytes]]:
    def apply(rows: list[bytes]) -> list[bytes]:
        return [json.dumps(row).encode() for row in change([json.loads(row) for row in rows])]

    return apply


def without_first_entry(rows: list[Json]) -> list[Json]:
    first = next(at for at, row in enumerate(rows) if "entry" in row)
    return rows[:first] + rows[first + 1 :]


BROKEN: list[tuple[str, Callable[[list[bytes]], list[bytes]], str]] = [
    ("cut off in a line", lambda rows: [*rows[:3], rows[3][:40]], "as where a file was cut off. Nothing was"),
    ("an entry missing", changed(without_first_entry), "hang on entries that are not there"),
    ("a record nobody knows", lambda rows: [*rows, b'{"spell": {}}'], "kind 'spell' is not known"),
    ("a record that is no object", lambda rows: [*rows, b'{"entry": 3}'], "'entry' is no object"),
    ("a line that is no object", lambda rows: [*rows, b"[1]"], "it is no object"),
    ("a member missing", lambda rows: [*rows, b'{"event": {"entry": "x"}}'], "missing required field"),
    ("a number for a word", lambda rows: [*rows, b'{"thread": {"id": 7}}'], "Expected `str`"),
    ("text no bytes were written as", lambda rows: [*rows, rows[2].replace(b"make the", b"\\ud83d")], "surrogate"),
    ("an event nobody can read",
     lambda rows: [r.replace(b'\\"type\\":\\"rooted\\"', b'\\"type\\":\\"?\\"') for r in rows], "does not make"),
    ("a newer format", lambda rows: [rows[0].replace(b'"callstack":1', b'"callstack":2')], "Update the proxy"),
    ("no id", changed(lambda rows: [{**rows[0], "conversation": {**rows[0]["conversation"], "id": ""}}]), "no id"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "why"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_broken_ledger_is_refused_whole(
    stores: ExportStores, small: Small, change: Callable[[list[bytes]], list[bytes]], why: str
) -> None:
    place = stores.export(small.material, "ledger", "out.jsonl")
    place.write_bytes(b"\n".join(change(place.read_bytes().splitlines())))

    with pytest.raises(BadRequest, match=why) as refused:
        stores.take_in("to", place)

    assert refused.value.code == "not_importable"
    assert stores.conversations("to") == []


STATE: Json = {"version": 1, "rootFrameIDs": ["a"], "updatedAt": 1}
FRAME: Json = {"sessionID": "a", "status": "in_progress", "title": "A", "createdAt": 1, "updatedAt": 1}


def state(**frames: Json) -> str:
    return json.dumps({**STATE, "frames": frames})


GOAL = '{"goal": {"description": "x"}}'
FILES: list[tuple[str, dict[str, str], str]] = [
    ("nothing there", {}, "has no state.json; what can be imported are the formats ledger, stack and jetbox"),
    ("no JSON", {"state.json": "{"}, "state.json is no JSON"),
    ("no object", {"state.json": "[]"}, "state.json is no JSON object"),
    ("another state", {"state.json": "{}"}, "neither `frames` .* nor `goal`"),
    ("frames that are none", {"state.json": json.dumps({**STATE, "frames": []})}, "`frames` is no object"),
    (
        "a status nobody knows",
        {"state.json": state(a={**FRAME, "status": "paused"})},
        "frame a: .*planned, in_progress",
    ),
    ("no title", {"state.json": state(a={"sessionID": "a", "status": "failed"})}, "frame a: .*title"),
    ("an id twice", {"state.json": state(a=FRAME, b=FRAME)}, "Two frames have the id 'a'"),
    ("a frame above itself", {"state.json": state(a={**FRAME, "parentSessionID": "a"})}, "'a' is above itself"),
    ("a log cut off", {"state.json": state(a=FRAME), "frames/a.log": '{"fr'}, "frames/a.log, line 1 is no JSON"),
    ("another log", {"state.json": state(a=FRAME), "frames/a.log": "{}"}, "frames/a.log, line 1: .*frame"),
    ("no description", {"state.json": '{"goal": {"status": "pending"}}'}, "node 0: description is missing"),
    ("a task that is none", {"state.json": GOAL.replace("}", ', "tasks": [3]}', 1)}, "node 0.0 is no object"),
    ("an odd status", {"state.json": GOAL.replace("}", ', "status": "odd"}', 1)}, "'odd' is not known"),
    ("an odd action", {"state.json": GOAL, "history.jsonl": "{}"}, "history.jsonl, line 1: action is missing"),
]


@pytest.mark.parametrize(("files", "why"), [case[1:] for case in FILES], ids=[case[0] for case in FILES])
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_a_broken_layout_is_refused_whole(stores: ExportStores, files: dict[str, str], why: str, packed: bool) -> None:
    place = stores.folder / "given"
    if packed:
        with zipfile.ZipFile(place, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
    else:
        place.mkdir()
        for name, text in files.items():
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(text)

    with pytest.raises(BadRequest, match=why):
        stores.take_in("to", place)

    assert stores.conversations("to") == []


def test_what_is_no_export_at_all_says_what_could_be_one(stores: ExportStores) -> None:
    place = stores.folder / "cat.jpg"
    place.write_bytes(os.urandom(2000))

    with pytest.raises(BadRequest, match="neither a folder, nor an archive"):
        stores.take_in("to", place)


def test_a_place_with_nothing_is_named(stores: ExportStores) -> None:
    with pytest.raises(BadRequest, match=r"There is nothing at .*nowhere"):
        stores.take_in("to", stores.folder / "nowhere")


@pytest.mark.rows("S1-13")
def test_an_archive_cannot_reach_outside_itself(stores: ExportStores, small: Small) -> None:
    """S1-13: names in an archive are compared and never written."""
    place = stores.export(small.material, "stack", "out.zip")
    with zipfile.ZipFile(place, "a") as archive:
        archive.writestr("../../outside.json", "{}")

    stores.take_in("to", place)

    assert not (stores.folder.parent / "outside.json").exists()
    assert not (stores.folder.parent.parent / "outside.json").exists()


@pytest.mark.parametrize("kind", ["ledger", "stack", "jetbox"])
def test_what_is_here_already_stays_as_it_is(stores: ExportStores, small: Small, kind: str) -> None:
    place = stores.export(small.material, kind, f"{kind}.zip" if kind != "ledger" else "ledger.jsonl")
    before = stores.export(small.material, "ledger", "before.jsonl").read_bytes()

    with pytest.raises(NotAllowed, match=r"is here already\. `callstack forget"):
        stores.take_in("from", place)

    after = stores.material("from", small.written.conversation)
    assert stores.export(after, "ledger", "after.jsonl").read_bytes() == before


def test_a_request_of_another_conversation_is_not_written_over(stores: ExportStores, small: Small) -> None:
    place = stores.export(small.material, "ledger", "out.jsonl")
    stores.fill("to", records_of("local", "b")[0])
    place.write_bytes(place.read_bytes().replace(b'{"id":"arequest"', b'{"id":"brequest"'))

    with pytest.raises(NotAllowed, match="Request brequest belongs to another conversation"):
        stores.take_in("to", place)

    assert stores.conversations("to") == ["bconversation"]


# ----------------------------------------------------------------------------------------------------------------
# writing
def test_nothing_is_written_over_and_nothing_half_written_stays(stores: ExportStores, small: Small) -> None:
    place = stores.folder / "there"
    place.write_text("mine")
    with pytest.raises(BadRequest, match="is there already"):
        write_export(format_named("handover"), small.material, ExportOptions(), place)

    assert place.read_text() == "mine"


@pytest.mark.parametrize("name", ["broken", "broken.zip"])
def test_an_export_that_fails_leaves_nothing(stores: ExportStores, small: Small, name: str) -> None:
    def fails() -> Json:
        raise RuntimeError("on purpose")

    broken = format_named("stack")
    files = [("state.json", iter((b"{}",))), ("frames/a.json", (json.dumps(fails()).encode() for _ in range(1)))]
    before = sorted(path.name for path in stores.folder.iterdir())
    with pytest.raises(RuntimeError):
        write_export(
            type(broken)("", "", "", render_files=lambda _: iter(files)),
            small.material,
            ExportOptions(),
            stores.folder / name,
        )

    assert sorted(path.name for path in stores.folder.iterdir()) == before


def test_an_export_is_readable_by_its_owner_alone(stores: ExportStores, small: Small) -> None:
    place = stores.export(small.material, "stack", "out")
    single = stores.export(small.material, "logs", "out.jsonl")

    modes = {path.stat().st_mode & 0o077 for path in (place, single, *place.rglob("*"))}
    assert modes == {0}


def test_a_long_conversation_is_told_in_pieces() -> None:
    """Bounded memory: no piece grows with the conversation."""
    big = (b"x" * 1000 + b"\n" for _ in range(20_000))
    pieces = [len(piece) for piece in islice(zip_chunks([("a.log", big)]), 400)]

    assert max(pieces) < 200_000
    assert sum(pieces) < 200_000  # it is packed
