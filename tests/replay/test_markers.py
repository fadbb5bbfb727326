"""What a request costs where the provider caches at nothing but its markers."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from callstack_proxy.replay.cache_markers import MarkerCostTracker, cached_parts
from proxy.accounting.tariff import Tariff
from proxy.core.ledger.messages import Request
from proxy.dialects import ANTHROPIC_MESSAGES, ParseCache
from proxy.dialects.parse_cache import countable_texts, with_token_counts

Json = dict[str, Any]
MINUTE = 60_000
TARIFF = Tariff(("one",), input=1.0, output=10.0, read=0.1, write=1.25, minimum=1)
MARKED = {"cache_control": {"type": "ephemeral"}}
FOR_LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def block(text: str, marker: Json | None = None) -> Json:
    return {"type": "text", "text": text, **(marker or {})}


def request(*messages: list[Json], system: Json | None = None, **more: Any) -> Request:
    """Every other message is the model's; a text has as many tokens as characters."""
    listed = [{"role": ("user", "assistant")[at % 2], "content": blocks} for at, blocks in enumerate(messages)]
    body = {"model": "one", "messages": listed, **({"system": [system]} if system else {}), **more}
    found = ANTHROPIC_MESSAGES.parse_request(json.dumps(body).encode(), known := ParseCache())
    return with_token_counts(found, [len(text) for text in countable_texts(found)], known)


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def paid(clock: Clock) -> Callable[[Request], int]:
    """Sends a request; what its input costs, in fresh tokens, as a whole number."""
    marked = MarkerCostTracker(clock, lambda _: TARIFF)

    def send(sent: Request) -> int:
        before = marked.cost
        marked.add_request(sent, [sent], [0])
        return round((marked.cost - before) * 1_000_000)

    return send


LONG = "a" * 1000


def test_without_a_marker_nothing_is_kept(paid: Callable[[Request], int]) -> None:
    assert [paid(request([block(LONG)])) for _ in range(2)] == [1000, 1000]


def test_what_stands_before_a_marker_is_written_and_then_read(paid: Callable[[Request], int]) -> None:
    first = request([block(LONG, MARKED)])
    second = request([block(LONG)], [block("b" * 100)], [block("c" * 100, MARKED)])

    assert paid(first) == 1250
    assert paid(second) == 100 + 250


def test_a_marker_on_the_system_text_keeps_it_where_all_else_is_new(paid: Callable[[Request], int]) -> None:
    def asked(words: str) -> Request:
        return request([block(words)], system=block(LONG, MARKED))

    assert paid(asked("b" * 100)) == 1250 + 100
    assert paid(asked("c" * 100)) == 100 + 100


def test_a_text_that_joins_a_user_message_leaves_the_one_before_it_known(paid: Callable[[Request], int]) -> None:
    """Texts of ours and results of the client become one message of the API."""
    first = request([block(LONG, MARKED)])
    second = request([block(LONG), block("b" * 1000, MARKED)])

    assert paid(first) == 1250
    assert paid(second) == pytest.approx(100 + 1250, abs=5)


def test_no_marker_reaches_back_more_than_twenty_blocks(paid: Callable[[Request], int]) -> None:
    def grown(by: int) -> Request:
        return request([block(LONG), *[block("b") for _ in range(by)], block("c", MARKED)])

    paid(request([block(LONG, MARKED)]))
    assert paid(grown(18)) < 200
    assert paid(grown(40)) > 1000


@pytest.mark.parametrize(("marker", "minutes", "cost"), [(MARKED, 4, 100), (MARKED, 6, 1250), (FOR_LONG, 50, 100)])
def test_what_is_kept_lives_as_long_as_its_marker_asks(
    paid: Callable[[Request], int], clock: Clock, marker: Json, minutes: int, cost: int
) -> None:
    assert paid(request([block(LONG, marker)])) == (2000 if marker is FOR_LONG else 1250)

    clock.now = minutes * MINUTE

    assert paid(request([block(LONG, marker)])) == cost


def test_a_marker_for_the_whole_request_stands_on_its_last_block() -> None:
    parts = list(cached_parts(request([block("a"), block("b")], **MARKED)))

    assert [part.breakpoint for part in parts] == [False, False, True]


def test_thinking_is_part_of_the_prefix_and_has_no_tokens(paid: Callable[[Request], int]) -> None:
    thought = {"type": "thinking", "thinking": "hm" * 500, "signature": "s"}

    def asked(*said: Json) -> Request:
        return request([block(LONG)], list(said), [block("c" * 10, MARKED)])

    assert paid(asked(thought, block("b" * 10))) == round(1020 * 1.25)
    assert paid(asked(block("b" * 10))) == round(1020 * 1.25)


def test_a_hidden_round_costs_what_it_read_and_what_it_said(clock: Clock) -> None:
    marked = MarkerCostTracker(clock, lambda _: TARIFF)
    client = request([block(LONG, MARKED)])
    inner = request([block(LONG)], [block("b" * 100)], [block("c" * 100, MARKED)])

    marked.add_request(client, [client, inner], [5, 7])

    assert round(marked.cost_untouched * 1_000_000) == 1250 + 70
    assert round(marked.cost * 1_000_000) == 1250 + 100 + 250 + 120
