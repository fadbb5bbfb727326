"""`callstack search` on a stored conversation (S2-38)."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Shell, Stocked
from tests.cli.test_looking import OBEYED

pytestmark = pytest.mark.rows("S2-38")


def test_what_was_done_is_found_with_where_it_was_done(stocked: Stocked) -> None:
    shown = stocked.shell.on_data("search", "rounding", "decimal")

    assert shown.code == 0
    assert f"{stocked.older.child}  " in shown.out
    assert (
        f"  completed  {stocked.newer.conversation[:12]}  Fix rounding\n    Decimal until the last step\n" in shown.out
    )
    assert OBEYED.findall(shown.out) == []


def test_a_search_as_json_is_what_the_api_answers(stocked: Stocked) -> None:
    told = json.loads(stocked.shell.on_data("search", "rounding", "--limit", "1", "--json").out)

    assert told["all_words"] is True
    assert [row["title"] for row in told["frames"]] == ["Fix rounding"]


@pytest.mark.rows("X-68")
def test_a_search_keeps_to_a_project(stocked: Stocked) -> None:
    """The agents of this store told no folder, so they belong to none."""
    elsewhere = stocked.shell.on_data("search", "rounding", "--project", "/repos/shop")

    assert (elsewhere.code, elsewhere.out) == (0, "No finished frame has any of these words.\n")


def test_nothing_found_is_said(stocked: Stocked) -> None:
    close = stocked.shell.on_data("search", "decimal", "xylophone")
    nothing = stocked.shell.on_data("search", "NEAR(", "*", '"')

    assert close.out.startswith("No finished frame has all of these words; these come close:\n")
    assert (nothing.code, nothing.out) == (0, "No finished frame has any of these words.\n")


@pytest.mark.rows("S2-45")
def test_where_meaning_is_not_looked_for_that_is_said(stocked: Stocked) -> None:
    """S2-45: the model is asked by a running proxy alone."""
    (stocked.shell.home / "proxy.yaml").write_text(
        "upstreams: {default: {url: http://127.0.0.1:9}}\nembeddings: {model: text-embedding-3-small}\n"
    )
    asked = stocked.shell.on_data("search", "rounding", "--config", str(stocked.shell.home / "proxy.yaml"))

    assert "Fix rounding" in asked.out
    assert "words were looked for alone" in asked.errors


@pytest.mark.parametrize("words", [[], ["--limit", "0", "word"], ["--limit", "many", "word"]])
def test_a_search_for_nothing_is_refused(shell: Shell, words: list[str]) -> None:
    refused = shell.on_data("search", *words)

    assert refused.code == 2
    assert refused.out == ""


def test_without_a_store_it_is_said_where_one_was_looked_for(shell: Shell) -> None:
    refused = shell.on_data("search", "word")

    assert refused.code == 2
    assert "there is no store at" in refused.errors


def test_a_file_named_as_the_data_directory_is_said_to_be_none(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("no directory")

    refused = shell.run("search", "word", "--data", str(tmp_path / "a-file"))

    assert refused.code == 2
    assert "a-file is not a directory; name one with --data" in refused.errors
