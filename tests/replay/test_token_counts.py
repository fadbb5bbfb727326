"""A replay tokenizes each text once, and counts as the product does."""

import pytest

from callstack_proxy.replay.token_counts import load_memoized_o200k, memoized
from proxy.accounting import TokenCounter


@pytest.mark.parametrize("text", ["", "one two", "half a pair: \ud83d", "data:image/png;base64,QUJD", "words " * 9000])
def test_it_counts_as_the_product_does_the_first_time_and_the_second(text: str) -> None:
    counter = TokenCounter(load_memoized_o200k)

    assert [counter.count(text), counter.count(text)] == [TokenCounter().count(text)] * 2


def test_a_text_is_tokenized_once_as_long_as_its_count_is_kept() -> None:
    tokenized: list[str] = []

    def count(text: str) -> int:
        tokenized.append(text)
        return len(text)

    count_once = memoized(count, most=2)

    assert [count_once(text) for text in ("a", "bb", "a", "ccc", "a")] == [1, 2, 1, 3, 1]
    assert tokenized == ["a", "bb", "ccc", "a"]
