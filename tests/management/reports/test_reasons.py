"""Every word that says why a request or a decision came out as it did has a sentence."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from callstack_proxy.management.reports import decision_meaning, outcome_meaning, reason_meaning
from callstack_proxy.management.reports.reasons import DECISION_REASONS, REASON_MEANINGS, STATUS_MEANINGS
from proxy.core.compaction.fold_cost import GateReason

PROXY = Path(__file__).resolve().parents[3] / "proxy"
DOORS = PROXY.with_name("callstack_proxy")
NAMED = {
    "ContextRejected": "code",
    "StoreError": "code",
    "PolicyDecision": "reason",
    "mark_failed": "",
    "mark_bypassed": "",
    "mark_stateless": "",
    "_bypass_or_refuse": "",
    "fall_back_to_relay": "",
    "continue_with_original": "",
}
"""What is called with a reason: the name of its argument, or empty where its last one without a name is it."""
RETURNING = ("_reason_to_sleep", "_tool_conflict", "cancel_reason", "unresolvable_reason")
"""Functions that return a reason, or empty."""


def reasons_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in RETURNING:
            returned = (one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value)
            yield from (word for value in returned for word in texts_in(value))
        if isinstance(node, ast.Call) and (named := NAMED.get(name_of(node.func))) is not None:
            given = [each.value for each in node.keywords if each.arg == named] if named else node.args[-1:]
            given = given or node.args[2:]
            yield from (word for value in given for word in texts_in(value))


def texts_in(value: ast.expr) -> Iterator[str]:
    """The texts that the value may be; of a condition, both."""
    if isinstance(value, ast.IfExp):
        yield from (*texts_in(value.body), *texts_in(value.orelse))
    elif isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
        yield value.value


def name_of(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def codes_of_errors() -> set[str]:
    assigned = (node for node in ast.walk(ast.parse((PROXY / "errors.py").read_text())) if isinstance(node, ast.Assign))
    return {word for node in assigned if name_of(node.targets[0]) == "code" for word in texts_in(node.value)}


def test_every_reason_in_the_code_has_a_sentence() -> None:
    found = {
        word
        for path in [*PROXY.rglob("*.py"), *DOORS.rglob("*.py")]
        for word in reasons_in(ast.parse(path.read_text()))
    }

    assert {"small", "in_loop", "no_gain", "no_tools", "name_clash", "window", "upstream_error", "too_slow"} <= found
    assert found - REASON_MEANINGS.keys() == set()


def test_every_error_that_may_end_a_request_has_a_sentence() -> None:
    without = {"proxy_error", "not_found", "not_allowed", "method_not_allowed", "invalid_configuration"}

    assert codes_of_errors() - without - REASON_MEANINGS.keys() == set()


def test_every_reason_of_the_gate_has_a_sentence() -> None:
    assert {str(reason) for reason in GateReason} - DECISION_REASONS.keys() == set()


@pytest.mark.parametrize("table", [STATUS_MEANINGS, REASON_MEANINGS, DECISION_REASONS])
def test_a_sentence_goes_on_behind_a_colon_or_because(table: dict[str, str]) -> None:
    assert [words for words in table.values() if words[0].isupper() or words.endswith(".")] == []


def test_an_outcome_is_told_with_its_reason() -> None:
    told = outcome_meaning("bypass", "name_clash")

    assert told == (
        "passed on unchanged, since the proxy could not follow it: a tool of the client has the name of one of ours"
    )


def test_a_word_of_another_version_stands_for_itself() -> None:
    assert outcome_meaning("new_status", "new_reason") == "new_status: new reason"
    assert [reason_meaning("new_reason"), decision_meaning("new_reason")] == ["new reason"] * 2
