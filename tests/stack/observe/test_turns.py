"""DESIGN 9, user turns: what merely continues is joined to the turn before it."""

import pytest

from proxy.stack.observe.turns import continues, plain
from tests.stack.observe.labelled_turns import CONTINUES, STARTS, Pair


@pytest.mark.parametrize("pair", CONTINUES, ids=lambda pair: pair.text[:40])
def test_ordinary_sessions_go_on(pair: Pair) -> None:
    """Edit-test cycles, follow-up questions, "yes, go ahead": none of these may fold what it needs."""
    assert continues(*pair)


@pytest.mark.parametrize("pair", STARTS, ids=lambda pair: pair.text[:40])
def test_a_change_of_topic_starts_something(pair: Pair) -> None:
    assert not continues(*pair)


def test_what_the_user_typed_is_found_among_a_clients_mark_up() -> None:
    wrapped = (
        "<system-reminder>\nBe brief.\n</system-reminder>\n<command-name>/plan</command-name>\n"
        "<command-args>build a shop</command-args>"
    )
    assert plain(wrapped) == "build a shop"
    assert plain("/them\n\nok, next") == "ok, next"
