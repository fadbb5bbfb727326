"""The simulated prompt caches, by value: what is read, written and paid in full as a conversation goes on."""

import pytest

from llm_test_provider.prompt_cache import CACHE_RULES, PromptPart, SimulatedCache, SimulatedCacheUse
from llm_test_provider.tokens import parts_of

HEAD = PromptPart(b"system", 2000, breakpoint=True)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def cache(name: str) -> tuple[SimulatedCache, Clock]:
    clock = Clock()
    return SimulatedCache(CACHE_RULES[name], clock), clock


def turn(*names: str, tokens: int = 100) -> list[PromptPart]:
    """A request: the head, then messages of `tokens` each, a breakpoint behind the last."""
    last = len(names) - 1
    return [HEAD, *(PromptPart(name.encode(), tokens, breakpoint=at == last) for at, name in enumerate(names))]


def test_marked_a_growing_history_reads_what_it_wrote_before() -> None:
    anthropic, _ = cache("anthropic")

    assert anthropic.use(turn("a")) == SimulatedCacheUse(cached=0, written=2100, uncached=0)
    assert anthropic.use(turn("a", "b", "c")) == SimulatedCacheUse(cached=2100, written=200, uncached=0)
    assert anthropic.use(turn("a", "b", "c")) == SimulatedCacheUse(cached=2300, written=0, uncached=0)


def test_marked_going_back_to_the_parent_reads_the_prefix_written_then() -> None:
    """A pop at the tail costs the cache nothing: the parent's last request was a prefix."""
    anthropic, _ = cache("anthropic")
    anthropic.use(turn("a", "push"))
    anthropic.use(turn("a", "push", "work", "more work"))

    assert anthropic.use(turn("a", "push", "result")) == SimulatedCacheUse(cached=2200, written=100, uncached=0)


def test_a_change_in_the_middle_loses_everything_behind_it() -> None:
    for name in ("anthropic", "openai", "deepseek"):
        simulated, _ = cache(name)
        simulated.use(turn("a", "b", "c"))
        whole = simulated.use(turn("a", "b", "c")).cached
        assert simulated.use(turn("a", "B", "c")).cached < whole


def test_marked_only_breakpoints_are_stored() -> None:
    anthropic, _ = cache("anthropic")
    anthropic.use(turn("a", "b", "c"))

    assert anthropic.use(turn("a", "b", "x")).cached == 2000


def test_marked_a_prefix_further_back_than_twenty_parts_is_not_found() -> None:
    anthropic, _ = cache("anthropic")
    anthropic.use(turn("a"))

    near, far = (["a", *(f"{kind}{n}" for n in range(count))] for kind, count in (("n", 19), ("f", 20)))
    assert anthropic.use(turn(*far)).cached == 2000
    assert anthropic.use(turn(*near)).cached == 2100


@pytest.mark.parametrize(
    ("name", "lifetime"), [("anthropic", 300), ("openai", 600), ("deepseek", 86400), ("gemini", 300)]
)
def test_an_entry_lives_so_long_since_its_last_use(name: str, lifetime: float) -> None:
    simulated, clock = cache(name)
    simulated.use(turn("a", "b", tokens=2_000))
    clock.seconds += lifetime
    kept = simulated.use(turn("a", "b", tokens=2_000)).cached
    clock.seconds += lifetime
    refreshed = simulated.use(turn("a", "b", tokens=2_000)).cached
    clock.seconds += lifetime + 1

    assert kept == refreshed > 0
    assert simulated.use(turn("a", "b", tokens=2_000)).cached == 0


@pytest.mark.parametrize(
    ("name", "below", "least", "cached"),
    [
        ("anthropic", 1023, 1024, 1024),
        ("openai", 1023, 1024, 1024),
        ("deepseek", 63, 64, 64),
        ("gemini", 4095, 4096, 4096),
    ],
)
def test_a_prefix_below_the_minimum_is_not_cached(name: str, below: int, least: int, cached: int) -> None:
    simulated, _ = cache(name)
    for tokens, expected in ((below, 0), (least, cached)):
        request = [PromptPart(b"%d" % tokens, tokens, breakpoint=True)]
        first = simulated.use(request)
        assert simulated.use(request).cached == expected
        assert first.written == (expected if simulated.rule.write != 1 else 0)


@pytest.mark.parametrize(("name", "cached"), [("openai", 2048), ("deepseek", 2112)])
def test_automatic_caches_count_in_steps_and_charge_nothing_for_writing(name: str, cached: int) -> None:
    simulated, _ = cache(name)
    first = simulated.use(turn("a", tokens=150))

    again = simulated.use(turn("a", tokens=150))

    assert (first.written, first.uncached) == (0, 2150)
    assert again == SimulatedCacheUse(cached, 0, 2150 - cached)


def test_nothing_is_lost_in_the_counting() -> None:
    for rule in CACHE_RULES.values():
        simulated = SimulatedCache(rule, Clock())
        for request in (turn("a"), turn("a", "b"), turn("a", "c", tokens=77), [PromptPart(b"small", 5)], []):
            use = simulated.use(request)
            assert use.cached + use.written + use.uncached == sum(part.tokens for part in request)
            assert min(use.cached, use.written, use.uncached) >= 0


def test_a_request_becomes_tools_system_and_messages_with_two_breakpoints() -> None:
    body = {
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {"role": "user", "content": "v"},
        ],
    }

    parts = parts_of(body, len)

    assert [part.breakpoint for part in parts] == [False, True, False, True]
    assert [part.tokens for part in parts[1:]] == [5, 5, 5]


def test_cache_markers_are_no_part_of_what_is_cached() -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "u", "cache_control": {"type": "ephemeral"}}]}
    plain = {"role": "user", "content": [{"type": "text", "text": "u"}]}

    assert parts_of({"messages": [marked]}, len) == parts_of({"messages": [plain]}, len)


def test_calls_and_their_arguments_are_counted_and_reasoning_is_not() -> None:
    called = {
        "role": "assistant",
        "reasoning_content": "long thoughts",
        "tool_calls": [{"id": "1", "function": {"name": "ab", "arguments": "cde"}}],
    }

    assert parts_of({"messages": [called]}, len)[0].tokens == 4 + len("ab cde")
