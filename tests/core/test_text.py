"""Files in base64 are cut out of a text before it is searched, and nothing else is. Where texts are cut for readers."""

import base64
import random
from collections.abc import Callable

import pytest

from proxy.core.text import (
    GAP_MARKER,
    KEPT_BASE64_LENGTH,
    TRUNCATION_MARKER,
    cut_for_display,
    cut_middle,
    shorten_base64,
    truncate_to_tokens,
)

FILE = base64.b64encode(random.Random(1).randbytes(300_000)).decode()
KEPT = FILE[:KEPT_BASE64_LENGTH]


@pytest.mark.parametrize(
    "shape",
    [
        '{"image_url":{"url":"data:image/png;base64,%s"},"type":"image_url"}',
        '{"source":{"data":"%s","media_type":"image/png","type":"base64"},"type":"image"}',
        'words {"file_data":"%s"} words {"url":"data:;base64,%s"} {"data":"%s"}',
    ],
)
def test_a_long_file_is_cut(shape: str) -> None:
    files = shape.count("%s")
    assert shorten_base64(shape % ((FILE,) * files)) == shape % ((KEPT,) * files)


@pytest.mark.parametrize(
    "run",
    [KEPT, "words " * 50_000, FILE + "\n" + FILE, FILE + " and more", "é" * 300_000, FILE + "\\n"],
    ids=["short", "words", "lines", "words behind", "letters", "escape"],
)
def test_what_is_no_long_file_stays(run: str) -> None:
    for shape in ('{"url":"data:;base64,%s"}', '{"data":"%s"}'):
        assert shorten_base64(shape % run) == shape % run


def test_a_file_without_an_end_stays() -> None:
    assert shorten_base64("data:;base64," + FILE) == "data:;base64," + FILE


@pytest.mark.rows("S1-59")
def at_most(characters: int) -> Callable[[str], bool]:
    return lambda shown: len(shown) <= characters


@pytest.mark.parametrize(
    "text",
    [
        "It was released on 2026-11-28 14:30:05 by hand",
        "The page https://example.org:8080/a?b=1 was read",
        "It broke in cart.py:120:14 at once",
        "The picture is 16:9 and the mix 1:2.5 then",
        "Freigegeben am 28.11.2026 um 14:30 Uhr",
    ],
)
def test_no_cut_parts_a_time_a_place_or_a_number(text: str) -> None:
    words = set(text.split())
    for length in range(12, len(text)):
        cuts = (
            cut_for_display(text, length).removesuffix("…"),
            truncate_to_tokens(text, length, len).removesuffix(TRUNCATION_MARKER),
            cut_middle(text, at_most(length)).replace(GAP_MARKER, ""),
        )
        for cut in cuts:
            assert {word for word in cut.split() if ":" in word or word[0].isdigit()} <= words, cut


@pytest.mark.parametrize(
    "text",
    [
        "return self.client.http2.request(method,url,headers,body,timeout,retries)",
        "已修复 " + "购物车的税额按地区分别处理。测试30个全部通过。" * 3,
    ],
)
def test_a_cut_inside_of_a_long_word_with_a_number_leaves_most_of_it(text: str) -> None:
    length = len(text) - 4
    assert len(cut_for_display(text, length)) == length
    assert len(truncate_to_tokens(text, length, len)) == length
    assert len(cut_middle(f"{text} 30", at_most(length))) == length
