"""Where a conversation's tokens and money went, from the receipts of one that is folded and one that is too short to
be."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from callstack_proxy.management.console.parts.balance import CAUSES, money_causes, token_balance
from callstack_proxy.management.reports import sum_receipts
from llm_test_provider import ScriptedProvider
from proxy.accounting import Receipt
from tests.harness import RunningProxy, Stage
from tests.scenarios.sessions import TOOLS, Session

LONG = """
user: Find out how the parser is built.
run cat lexer
run cat parser
says: It is a table driven parser.
user: Now translate the README into French.
run cat README
says: It is translated.
user: Add a workflow for releases.
run cat workflow
says: Done.
"""
SHORT = """
user: What is this?
run ls
says: A parser.
user: And what does it parse?
run cat README
says: Dates.
"""


def receipts_of(proxy: RunningProxy) -> list[Receipt]:
    return [msgspec.convert(receipt, Receipt) for receipt in proxy.receipts()]


def played(folder: Path, script: str, padding: int) -> list[Receipt]:
    with ScriptedProvider() as provider:
        stage = Stage(provider, folder, streamed=True)
        proxy = stage.proxy()
        Session(stage.chat(proxy, tools=TOOLS), provider, padding=padding).plays(script)
        receipts = receipts_of(proxy)
        stage.stop()
    return receipts


@pytest.mark.parametrize(("script", "padding"), [(LONG, 6_000), (SHORT, 60)], ids=["folded", "short"])
def test_what_came_less_what_left_and_more_what_was_added_went_up(tmp_path: Path, script: str, padding: int) -> None:
    receipts = played(tmp_path, script, padding)
    told, row = token_balance(receipts), sum_receipts(receipts)
    assert told.came - told.left_out + told.added == told.sent == row.tokens_sent
    assert told.added > 0
    assert (told.left_out > 0) == (script is LONG)
    assert told.cached <= told.sent


@pytest.mark.parametrize(("script", "padding"), [(LONG, 6_000), (SHORT, 60)], ids=["folded", "short"])
def test_the_causes_add_up_to_the_balance(tmp_path: Path, script: str, padding: int) -> None:
    receipts = played(tmp_path, script, padding)
    causes = money_causes(receipts)
    assert sum(cause.saved for cause in causes) == pytest.approx(sum(receipt.saved for receipt in receipts))
    assert [abs(cause.saved) for cause in causes] == sorted((abs(cause.saved) for cause in causes), reverse=True)
    saved_by = {cause.words: cause.saved for cause in causes}
    if script is LONG:
        assert saved_by[CAUSES["less"]] > 0
    else:  # nothing was left out, so nobody is told a saving
        assert CAUSES["less"] not in saved_by
        assert max(saved_by.values()) <= 0
