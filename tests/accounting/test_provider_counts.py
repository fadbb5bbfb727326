"""How many tokens a provider counts in what the client sent, learned from what it reports of what was sent upstream."""

from __future__ import annotations

import pytest

from proxy.accounting.prompt_cache import PromptPiece, hash_chain
from proxy.accounting.untouched_run import MAX_COUNTED_PREFIXES, ProviderCounts

KEY = ("tenant", "upstream", "model")
HEAD: PromptPiece = ("head", 1_000)
WISH: PromptPiece = ("wish", 500)
WORK: PromptPiece = ("work", 20_000)
TRACE: PromptPiece = ("trace", 400)
OUTPUT: PromptPiece = ("output", 6_000)
DEAR = {"head": 2.0, "trace": 1.5}
"""The provider's tokens for one of ours; 1 elsewhere."""


def counted(*pieces: PromptPiece) -> int:
    return round(sum(DEAR.get(name, 1.0) * tokens for name, tokens in pieces))


def learn(counts: ProviderCounts, came: list[PromptPiece], sent: list[PromptPiece]) -> float:
    """The provider's tokens of what came, as learned from what was sent."""
    chain = hash_chain(came)
    return counts.learn(KEY, chain, hash_chain(sent), counted(*sent)).tokens(chain.total)


@pytest.mark.rows("X-41")
def test_a_long_output_behind_a_fold_is_counted_by_the_request_that_began_alike() -> None:
    """The small rest of a folded line is counted dearer than what left it, because of its head."""
    counts = ProviderCounts()
    learn(counts, [HEAD, WISH], [HEAD, WISH])
    learn(counts, [HEAD, WISH, WORK], [HEAD, WISH, WORK])

    told = learn(counts, [HEAD, WISH, WORK, OUTPUT], [HEAD, WISH, TRACE, OUTPUT])

    assert told == pytest.approx(counted(HEAD, WISH, WORK, OUTPUT), rel=0.01)


@pytest.mark.rows("X-41")
def test_a_trace_says_little_about_a_long_output_that_left_with_it() -> None:
    counts = ProviderCounts()
    learn(counts, [HEAD, WISH], [HEAD, WISH])
    learn(counts, [HEAD, WISH, WORK], [HEAD, WISH, WORK])

    told = learn(counts, [HEAD, WISH, WORK, OUTPUT], [HEAD, WISH, TRACE])

    assert told == pytest.approx(counted(HEAD, WISH, WORK, OUTPUT), rel=0.02)


@pytest.mark.rows("X-41")
def test_a_line_that_was_never_folded_is_counted_exactly() -> None:
    counts = ProviderCounts()
    line = [HEAD, WISH]
    for number in range(3 * MAX_COUNTED_PREFIXES):
        line = [*line, (f"message {number}", 100 + number)]
        told = learn(counts, line, line)

        assert told == pytest.approx(counted(*line))


@pytest.mark.rows("X-41")
def test_the_first_request_of_a_long_line_is_not_forgotten() -> None:
    """A fold may leave nothing but the head; what was counted with it is as old as the conversation."""
    counts = ProviderCounts()
    line = [HEAD, WISH]
    learn(counts, line, line)
    for number in range(3 * MAX_COUNTED_PREFIXES):
        line = [*line, (f"message {number}", 500)]
        learn(counts, line, line)

    output = ("output", 30_000)
    told = learn(counts, [*line, output], [HEAD, WISH, TRACE, output])

    assert told == pytest.approx(counted(*line, output), rel=0.005)


@pytest.mark.rows("X-41")
@pytest.mark.parametrize("in_head", [2.0, 0.6])
def test_head_and_messages_have_ratios_of_their_own(in_head: float) -> None:
    """All work has left, and what is new is little: by the whole of what was sent it would count as the head does."""
    counts, work = ProviderCounts(), ("small work", 600)

    def theirs(*pieces: PromptPiece) -> int:
        return round(sum((in_head if piece is HEAD else 1.0) * piece[1] for piece in pieces))

    for line in ([HEAD, WISH], [HEAD, WISH, work]):
        counts.learn(KEY, hash_chain(line), hash_chain(line), theirs(*line))
    came = hash_chain([HEAD, WISH, work, OUTPUT])
    small = [HEAD, WISH, ("trace", 60)]
    scale = counts.learn(KEY, came, hash_chain(small), theirs(*small))

    assert scale.tokens(came.tokens[0]) == pytest.approx(theirs(HEAD), rel=0.01)
    assert scale.tokens(came.total) == pytest.approx(theirs(HEAD, WISH, work, OUTPUT), rel=0.01)


@pytest.mark.rows("X-41")
def test_a_new_conversation_is_counted_by_what_others_taught_of_messages() -> None:
    """Of its first request the provider tells one figure, for head and message together."""
    counts = ProviderCounts()
    for line in ([HEAD, WISH], [HEAD, WISH, WORK]):
        learn(counts, line, line)

    first = hash_chain([HEAD, ("other wish", 3_000)])
    scale = counts.learn(KEY, first, first, counted(HEAD, ("other wish", 3_000)))

    assert scale.tokens(1_000) == pytest.approx(2_000, rel=0.01)
    assert scale.tokens(4_000) == pytest.approx(5_000, rel=0.01)


@pytest.mark.rows("X-41")
def test_while_little_was_counted_there_is_one_ratio() -> None:
    counts, small = ProviderCounts(), ("small", 100)
    for line in ([HEAD, WISH], [HEAD, WISH, small]):
        scale = counts.learn(KEY, hash_chain(line), hash_chain(line), counted(*line))

    assert scale.head == 0
    assert scale.tokens(1_600) == pytest.approx(2_600, rel=0.01)


@pytest.mark.rows("X-41")
def test_a_request_of_our_own_is_counted_though_no_client_sent_anything() -> None:
    """A summary, or what keeps a cache warm."""
    counts = ProviderCounts()
    for line in ([HEAD, WISH], [HEAD, WISH, WORK]):
        learn(counts, line, line)

    for _ in range(2):
        assert learn(counts, [], [HEAD, WISH, WORK]) == 0
