"""S4-20, S4-21, S4-60: how large a request may be, and what teaches it."""

import logging

import pytest

from llm_test_provider.error_texts import OVERFLOWS, Wording, overflow_wording
from proxy.accounting.model_prices import tariff_for
from proxy.core.ledger.messages import Usage
from proxy.upstream.context_windows import (
    MAX_REMEMBERED_MODELS,
    MIN_RATIO_TOKENS,
    NAMED_LIMIT_TTL_S,
    REFUSED_SIZE_TTL_S,
    ContextWindows,
    prompt_limit,
)
from proxy.upstream.learned_traits import LearnedTrait
from proxy.upstream.overflow_errors import named_limit

KNOWN, UNKNOWN = "claude-haiku-4-5", "some-model"
NAMED = b"This model's maximum context length is 64,000 tokens. However, you requested 70000 tokens."
SPOKEN = b"Prompt exceeds max length"


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> ContextWindows:
    return ContextWindows(clock, tariff_for)


@pytest.mark.proves("C13")
@pytest.mark.rows("S4-20", "C13")
def test_a_prompt_leaves_room_for_the_answer() -> None:
    """S4-20: window less the smaller of the model's output limit and 32,000; C13: and never more than 0.9 of it."""
    assert prompt_limit(200_000, max_output=64_000) == 168_000
    assert prompt_limit(200_000, max_output=24_000) == 176_000
    assert prompt_limit(200_000, max_output=8_000) == 180_000
    assert prompt_limit(1_000_000, max_output=64_000) == 900_000


def test_a_small_window_keeps_half_of_itself_for_the_prompt() -> None:
    assert prompt_limit(32_000, 32_000) == 16_000


def test_a_known_model_has_the_window_of_its_tariff(limits: ContextWindows) -> None:
    window = limits.window("up", KNOWN)
    assert (window.tokens, window.limit, window.source, window.is_binding) == (200_000, 168_000, "table", True)


@pytest.mark.rows("S4-21")
def test_an_unknown_model_has_a_default_that_binds_nothing_and_is_warned_of_once(
    limits: ContextWindows, caplog: pytest.LogCaptureFixture
) -> None:
    """S4-21."""
    with caplog.at_level(logging.WARNING):
        windows = [limits.window("up", UNKNOWN) for _ in range(3)]
    assert {w.tokens for w in windows} == {128_000}
    assert not any(w.is_binding for w in windows)
    assert len(caplog.records) == 1


def test_a_refusal_that_names_a_limit_teaches_it_for_a_day(limits: ContextWindows, clock: Clock) -> None:
    limits.learn_from_refusal("up", UNKNOWN, "c", 70_000, NAMED)
    assert limits.window("up", UNKNOWN, "c").tokens == 64_000
    assert limits.window("up", UNKNOWN, "c").is_binding
    assert limits.window("other", UNKNOWN, "c").tokens == 128_000
    clock.seconds += NAMED_LIMIT_TTL_S
    assert limits.window("up", UNKNOWN, "c").source == "assumed"


def test_learned_windows_are_told_with_their_times(limits: ContextWindows, clock: Clock) -> None:
    limits.learn_from_refusal("up", KNOWN, "c", 70_000, NAMED)
    limits.learn_from_refusal("up", UNKNOWN, "c", 50_000, SPOKEN)
    clock.seconds += 600
    began, day, hour = 1_000_000, 86_400_000, 3_600_000

    assert list(limits.traits(now=began + 600_000)) == [
        LearnedTrait("up", KNOWN, "window_named", began, began + day, 64_000),
        LearnedTrait("up", UNKNOWN, "window_size", began, began + hour, 50_000),
    ]
    clock.seconds += REFUSED_SIZE_TTL_S
    assert [trait.kind for trait in limits.traits(now=0)] == ["window_named"]


def test_what_one_conversation_was_refused_for_shortens_no_other(limits: ContextWindows) -> None:
    """One wrong refusal must not cost everybody's context: another conversation is asked first."""
    limits.learn_from_refusal("up", UNKNOWN, "c", 70_000, NAMED)
    assert limits.window("up", UNKNOWN, "another").source == "assumed"


def test_a_learned_limit_counts_where_it_is_smaller_than_the_tariff(limits: ContextWindows) -> None:
    limits.learn_from_refusal("up", KNOWN, "c", 70_000, NAMED)
    assert limits.window("up", KNOWN, "c").tokens == 64_000
    limits.learn_from_refusal("up", KNOWN, "c", 700_000, NAMED.replace(b"64,000", b"500,000"))
    assert limits.window("up", KNOWN, "c").tokens == 200_000


def test_the_size_that_was_refused_teaches_where_nothing_else_is_known(limits: ContextWindows, clock: Clock) -> None:
    limits.learn_from_refusal("up", UNKNOWN, "c", 50_000, SPOKEN)
    limits.learn_from_refusal("up", KNOWN, "c", 50_000, SPOKEN)
    assert (limits.window("up", UNKNOWN, "c").limit, limits.window("up", UNKNOWN, "c").source) == (49_999, "size")
    assert limits.window("up", KNOWN, "c").source == "table"
    limits.learn_from_refusal("up", UNKNOWN, "c", 90_000, SPOKEN)
    assert limits.window("up", UNKNOWN, "c").tokens == 50_000
    clock.seconds += REFUSED_SIZE_TTL_S
    assert limits.window("up", UNKNOWN, "c").source == "assumed"


@pytest.mark.parametrize("name", ["anthropic-size", "groq-size", "cerebras"])
def test_a_body_too_large_for_the_wire_teaches_no_window(limits: ContextWindows, name: str) -> None:
    limits.learn_from_refusal("up", UNKNOWN, "c", 50_000, overflow_wording(name).body(50_000, 40_000))
    assert limits.window("up", UNKNOWN, "c").source == "assumed"


def test_a_limit_is_not_believed_against_a_larger_prompt_that_passed(limits: ContextWindows) -> None:
    """Words of a client may stand in a refusal; what was answered is a fact."""
    limits.learn_from_usage("up", UNKNOWN, "c", 100_000, Usage(input=100_000))
    limits.learn_from_refusal("up", UNKNOWN, "c", 120_000, NAMED)
    limits.learn_from_refusal("up", UNKNOWN, "c", 90_000, SPOKEN)
    assert limits.window("up", UNKNOWN, "c").source == "assumed"


def test_a_larger_prompt_that_passes_takes_a_learned_limit_back(limits: ContextWindows) -> None:
    limits.learn_from_refusal("up", UNKNOWN, "c", 70_000, NAMED)
    limits.learn_from_usage("up", UNKNOWN, "c", 60_000, Usage(input=66_000))
    assert limits.window("up", UNKNOWN, "c").source == "assumed"


@pytest.mark.rows("S4-05", "S4-61", "C9")
def test_a_window_is_as_large_as_the_provider_counts(limits: ContextWindows) -> None:
    """S4-05: the actual usage decides, cached tokens among it; a wild report is believed only so far."""
    limits.learn_from_usage("up", KNOWN, "c", 10_000, Usage(input=12_500, cached=9_000))
    assert limits.window("up", KNOWN, "c").tokens == 160_000
    assert limits.window("up", KNOWN, "c").limit == 168_000 / 1.25
    limits.learn_from_usage("up", KNOWN, "c", MIN_RATIO_TOKENS - 1, Usage(input=10 * MIN_RATIO_TOKENS))
    limits.learn_from_usage("up", KNOWN, "c", 10_000, None)
    assert limits.window("up", KNOWN, "c").tokens == 160_000
    limits.learn_from_usage("up", KNOWN, "c", 10_000, Usage(input=100_000))
    assert limits.window("up", KNOWN, "c").tokens == 100_000
    assert limits.window("up", KNOWN, "another").tokens == 200_000


def test_a_learned_size_is_that_of_the_refused_request_again(limits: ContextWindows) -> None:
    limits.learn_from_usage("up", UNKNOWN, "c", 10_000, Usage(input=12_500))
    limits.learn_from_refusal("up", UNKNOWN, "c", 50_000, SPOKEN)
    assert limits.window("up", UNKNOWN, "c").tokens == 50_000


def test_what_is_remembered_is_bounded(limits: ContextWindows) -> None:
    for number in range(MAX_REMEMBERED_MODELS + 1):
        limits.learn_from_refusal("up", f"model-{number}", "c", 70_000, NAMED)
    assert limits.window("up", "model-0", "c").source == "assumed"
    assert limits.window("up", f"model-{MAX_REMEMBERED_MODELS}", "c").source == "named"


@pytest.mark.parametrize("wording", OVERFLOWS, ids=lambda w: w.name)
def test_the_limit_is_read_from_every_wording_that_names_one(wording: Wording) -> None:
    named = 200_321 if "{window}" in wording.message else None
    assert named_limit(wording.body(210_123, 200_321)) == named


def test_a_figure_with_separators_behind_an_escaped_sign_is_read() -> None:
    """Some servers escape the signs of mark-up in their JSON."""
    assert named_limit(rb'{"message":"prompt is too long: 210123 tokens \u003e 200,321 maximum"}') == 200_321
