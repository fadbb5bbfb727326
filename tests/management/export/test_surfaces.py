"""Export and import as people meet them: over `/stack`, and as commands."""

import json
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from callstack_proxy.management.export.export_formats import export_formats
from tests.cli.conftest import Shell, Stocked, own_stock, shell, stocked
from tests.management.api.conftest import Served, served

__all__ = ["own_stock", "served", "shell", "stocked"]


# -----------------------------------------------------------------------------------------------------------------
# /stack
@pytest.mark.parametrize("kind", export_formats())
async def test_every_format_is_handed_out_as_a_file(served: Served, kind: str) -> None:
    answer = await served.ask(f"/stack/conversations/{served.ours.conversation}/export?format={kind}")

    assert answer.status == 200, answer.body
    assert answer.body
    assert answer.kind == (
        "application/zip" if export_formats()[kind].render_files else export_formats()[kind].content_type
    )


@pytest.mark.rows("S1-05")
async def test_several_files_come_as_an_archive(served: Served) -> None:
    """S1-05."""
    answer = await served.ask(f"/stack/conversations/{served.ours.conversation}/export?format=stack")

    with zipfile.ZipFile(BytesIO(answer.body)) as archive:
        assert archive.testzip() is None
        assert f"frames/{served.ours.child}.log" in archive.namelist()


@pytest.mark.rows("X-25")
@pytest.mark.parametrize("kind", export_formats())
async def test_nobody_exports_what_is_not_theirs(served: Served, kind: str) -> None:
    """X-25: answered like what never existed; an operator may."""
    path = f"/stack/conversations/{served.theirs.conversation}/export?format={kind}"
    never = f"/stack/conversations/{served.theirs.conversation[::-1]}/export?format={kind}"

    mine, nothing, anybody, operator = [
        await served.ask(path, "ours"), await served.ask(never, "ours"), await served.ask(path, None),
        await served.ask(path, "admin"),
    ]  # fmt: skip

    assert (mine.status, nothing.status, anybody.status, operator.status) == (404, 404, 401, 200)
    assert mine.json["error"]["code"] == nothing.json["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("format=speedscop", 400, "Did you mean 'speedscope'"),
        ("format=collapsed&measure=tokns", 400, "Did you mean 'tokens'"),
        ("format=", 400, "There are: collapsed, handover"),
        ("format=logs&thread=nobody", 404, "There is no thread 'nobody'"),
    ],
)
async def test_what_cannot_be_meant_is_answered_with_what_can(
    served: Served, query: str, status: int, words: str
) -> None:
    answer = await served.ask(f"/stack/conversations/{served.ours.conversation}/export?{query}")

    assert (answer.status, words in answer.json["error"]["message"]) == (status, True), answer.body


async def test_the_description_names_the_formats(served: Served) -> None:
    described = (await served.ask("/stack/openapi.json")).json
    operation = described["paths"]["/stack/conversations/{conversation}/export"]["get"]

    (kinds,) = [p["schema"]["enum"] for p in operation["parameters"] if p["name"] == "format"]
    assert kinds == list(export_formats())
    assert set(operation["responses"]) == {"200", "400", "401", "404", "409", "429", "500"}


# --------------------------------------------------------------------------------------------------------------
# commands
def test_with_nothing_named_the_formats_are_listed(stocked: Stocked) -> None:
    done = stocked.shell.on_data("export")

    assert done.code == 0, done.errors
    assert all(name in done.out for name in export_formats())


def test_without_a_format_it_is_the_whole_ledger(stocked: Stocked, tmp_path: Path) -> None:
    place = tmp_path / "whole.jsonl"
    written = stocked.shell.on_data("export", stocked.older.conversation, "--out", str(place))
    printed = stocked.shell.on_data("export", stocked.older.conversation)

    assert written.out == f"{stocked.older.conversation}: written to {place}\n"
    assert printed.raw == place.read_bytes()
    assert json.loads(printed.out.splitlines()[0])["conversation"]["id"] == stocked.older.conversation


@pytest.mark.rows("S1-04", "S1-05", "S1-06")
def test_a_file_is_printed_and_a_folder_is_written(stocked: Stocked) -> None:
    """S1-04..06 as a person types them; default: the newest conversation."""
    printed = stocked.shell.on_data("export", "--format", "logs")
    place = stocked.shell.home / "state"
    written = stocked.shell.on_data("export", stocked.older.conversation, "--format", "stack", "--out", str(place))

    assert json.loads(printed.out.splitlines()[0])["frame"] == stocked.newer.root
    assert (written.code, written.out) == (0, f"{stocked.older.conversation}: written to {place}\n")
    assert json.loads((place / "state.json").read_bytes())["activeFrameID"] == stocked.older.root


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--format", "handovr"), "Did you mean 'handover'"),
        (("--format", "stack"), "name a folder, or a file that ends in .zip, with --out"),
        (("nobody", "--format", "logs"), "There is no conversation 'nobody'"),
    ],
)
def test_a_command_that_cannot_be_meant_says_what_can(stocked: Stocked, words: tuple[str, ...], told: str) -> None:
    done = stocked.shell.on_data("export", *words)

    assert (done.code, done.out) == (2, "")
    assert told in " ".join(done.errors.split())


@pytest.mark.rows("S1-04", "S1-05", "S1-06")
def test_what_was_exported_is_imported_into_a_fresh_directory(stocked: Stocked, shell: Shell) -> None:
    """S1-04..06: the same tree, told by the same command."""
    place = shell.home / "whole.jsonl"
    stocked.shell.on_data("export", stocked.older.conversation, "--format", "ledger", "--out", str(place))

    done = shell.run("import", str(place), "--data", str(shell.data), "--json")
    again = shell.run("import", str(place), "--data", str(shell.data))
    elsewhere = shell.run("import", str(place), "--data", "my data")

    assert json.loads(done.out) == {
        "conversation": stocked.older.conversation, "format": "ledger", "frames": 3, "entries": 4, "requests": 1
    }  # fmt: skip
    assert (
        shell.on_data("tree", stocked.older.conversation).out
        == stocked.shell.on_data("tree", stocked.older.conversation).out
    )
    assert (again.code, "is here already" in again.errors) == (1, True)
    assert f"`callstack forget {stocked.older.conversation} --data {shell.data}`" in again.errors
    assert f"`callstack tree {stocked.older.conversation} --data 'my data'` shows it." in elsewhere.out


def test_an_import_that_cannot_be_read_says_why_and_what_to_do(shell: Shell) -> None:
    place = shell.home / "cut.jsonl"
    place.write_text('{"callstack":1,"conversation":{"id":"c"')

    done = shell.run("import", str(place), "--data", str(shell.data))

    assert done.code == 1
    assert "Nothing was imported" in done.errors


def test_nothing_is_imported_beside_a_running_proxy(own_stock: Stocked, tmp_path: Path) -> None:
    """What a proxy keeps in memory would not know of it."""
    shell = own_stock.shell
    place = tmp_path / "whole.jsonl"
    shell.on_data("export", own_stock.older.conversation, "--format", "ledger", "--out", str(place))
    serving = shell.start("serve", "--data", str(shell.data), "--port", "0", "--upstream", "http://127.0.0.1:9")
    try:
        assert serving.stdout is not None
        while "http://" not in (line := serving.stdout.readline()):
            assert line, serving.communicate()
        done = shell.run("import", str(place), "--data", str(shell.data))
    finally:
        serving.terminate()
        serving.communicate(timeout=30)

    assert (done.code, "Stop it, import, start it again" in done.errors) == (1, True)
