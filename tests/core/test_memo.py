"""Words that clients choose are remembered while they are short: nobody fills the memory with long ones (S11)."""

from __future__ import annotations

import gc
import re
import sys
import tracemalloc
from collections.abc import Callable

import pytest

from proxy.accounting.model_prices import Tariffs
from proxy.config.model import Config, is_loopback
from proxy.core.ledger import messages as transcript
from proxy.core.memo import MAX_MEMOIZED_LENGTH, RecentCache, TextCache, late_pattern, memoize
from proxy.core.observers.tool_roles import normalize_name
from proxy.dialects import dialect_at
from proxy.dialects.chat import message as chat_message
from proxy.server import guard as edge
from proxy.upstream import routing as upstream
from proxy.upstream.routing import Routes

TIMES = 64
LONG = 128 * 1024


def test_what_was_found_for_short_words_is_not_looked_for_again() -> None:
    asked: list[tuple[str, bytes | None]] = []

    @memoize(2)
    def found(word: str, other: bytes | None) -> int:
        asked.append((word, other))
        return len(word)

    assert [found("ab", None), found("ab", None), found("x" * MAX_MEMOIZED_LENGTH, b"y" * MAX_MEMOIZED_LENGTH)] == [
        2,
        2,
        MAX_MEMOIZED_LENGTH,
    ]
    found("x" * MAX_MEMOIZED_LENGTH, b"y" * MAX_MEMOIZED_LENGTH)
    assert len(asked) == 2
    for _ in range(2):
        assert found("x" * (MAX_MEMOIZED_LENGTH + 1), None) == MAX_MEMOIZED_LENGTH + 1
        assert found("ab", b"y" * (MAX_MEMOIZED_LENGTH + 1)) == 2
    assert len(asked) == 6
    found("ab", None)
    assert len(asked) == 6


def test_results_of_texts_are_kept_up_to_a_number_of_characters() -> None:
    lengths = TextCache(len, max_characters=20)

    assert [lengths("first"), lengths("other"), lengths("first")] == [5, 5, 5]
    assert lengths.misses == 2
    for number in range(100):
        assert lengths(f"{number:05}") == 5
        assert lengths("first") == 5
        assert len(lengths) <= 4
    assert lengths.misses == 102  # what is used stays
    lengths("other")
    assert lengths.misses == 103


def test_a_value_larger_than_the_cache_makes_way_for_the_next_ones() -> None:
    cache = RecentCache[str, str](10)
    cache.keep("small", "small", 1)
    cache.keep("large", "large", 1_000)
    assert [cache.find("small"), cache.find("large")] == ["small", "large"]

    cache.keep("next", "next", 5)
    cache.keep("last", "last", 5)

    assert [cache.find(name) for name in ("small", "large", "last")] == [None, None, "last"]


@pytest.fixture
def looks(config: Config) -> dict[str, Callable[[str], object]]:
    """Everything that a client's words are asked of, by what it asks."""
    routes = Routes(config)
    is_ours: Callable[[bytes], object] = vars(edge.RequestGuard(_no_application, config))["_is_allowed_host_cached"]
    return {
        "dialect": dialect_at,
        "spoken": upstream.wire_format_of,
        "route": routes.choose,
        "sent as": config.upstream_model_of,
        "tariff": Tariffs().tariff_of,
        "host": lambda word: is_ours(word.encode()),
        "loopback": is_loopback,
        "hidden": lambda word: edge._path_fault(word.encode()),
        "tool": normalize_name,
        "tools": lambda word: transcript.digest_of_tools(word.encode() * 3),
        "system text": lambda word: chat_message.append_text(b'{"content":"%s"}' % (word.encode() * 5), "ours"),
    }


@pytest.fixture
def config() -> Config:
    return Config.model_validate({"upstreams": {"default": {"url": "http://127.0.0.1:9"}}})


WORDS = (
    "dialect", "spoken", "route", "sent as", "tariff", "host", "loopback", "hidden", "tool", "tools", "system text",
)  # fmt: skip


@pytest.mark.parametrize("words", WORDS)
def test_long_words_are_not_held(looks: dict[str, Callable[[str], object]], words: str) -> None:
    look = looks[words]
    look("warm")
    tracemalloc.start()
    try:
        for number in range(TIMES):
            look(f"{number:03}" + "x" * LONG)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < TIMES * LONG / 8


async def _no_application(*_: object) -> None:
    raise AssertionError("nobody asks")


def test_a_late_pattern_is_compiled_at_its_first_use_and_each_of_the_engine_can_be() -> None:
    wrong, word = late_pattern("("), late_pattern(r"[A-Z]+", re.IGNORECASE)
    kind = type(word)
    modules = [module for name, module in sys.modules.items() if name.startswith("proxy.core.")]
    found = {name: each for module in modules for name, each in vars(module).items() if isinstance(each, kind)}

    with pytest.raises(re.error):
        wrong.search("a")
    assert (word.pattern, word.sub("", "one 2")) == ("[A-Z]+", " 2")
    assert len({name for name, each in found.items() if each.groups >= 0}) > 100
