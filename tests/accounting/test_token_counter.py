"""Counting tokens: exact where it can be, named where it cannot, and never in the way of others."""

from __future__ import annotations

import asyncio
import base64
import gzip
import random
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tiktoken_ext import openai_public  # type: ignore[import-untyped]

from callstack_proxy.management.compress_api import RememberedCounts
from proxy.accounting import load_o200k, o200k
from proxy.accounting import token_counter as tokens
from proxy.accounting.token_counter import (
    DATA_URL_TOKENS,
    MAX_COUNTED_CHARACTERS,
    SLICE_CHARACTERS,
    TokenCounter,
    sliced,
)
from tests.pace import slowness, within

COUNTER = TokenCounter()
Result = TypeVar("Result")


def without_package() -> TokenCounter:
    def load() -> None:
        raise ImportError

    return TokenCounter(load)  # type: ignore[arg-type]


def whole(text: str) -> int:
    """The count in one piece."""
    return load_o200k()(text)


def prose(characters: int, seed: int = 1) -> str:
    chance = random.Random(seed)
    source = Path(tokens.__file__).read_text().split(" ")
    words = [
        *source,
        "naïve",
        "日本語のテキスト。",
        "don't",
        "I'LL",
        "x" * 40,
        "12345678",
        "\n\n    ",
        "🙂",
        "a_b",
        "…",
    ]
    text = ""
    while len(text) < characters:
        text += " ".join(chance.choices(words, k=500))
    return text[:characters]


@pytest.mark.parametrize(("text", "count"), [("", 0), ("hello world", 2), ("a" * 500, 63), ("<|endoftext|>", 7)])
def test_known_texts_have_their_known_counts(text: str, count: int) -> None:
    assert COUNTER.count(text) == count


@pytest.mark.rows("S1-53", "C9")
@pytest.mark.rows("X-44")
def test_the_counter_says_what_counts() -> None:
    """S1-53, C9."""
    assert COUNTER.name == "o200k (tiktoken)"
    assert without_package().name == "estimate (characters / 4)"


@pytest.mark.rows("S1-53", "S4-35")
@pytest.mark.parametrize(("text", "count"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_without_the_package_a_quarter_of_the_characters_rounded_up_counts(text: str, count: int) -> None:
    """S1-53."""
    assert without_package().count(text) == count


TOLD = {
    "Chinese": "请先阅读项目的说明文件。然后修复购物车中总价计算错误的问题。完成之后运行全部测试。",
    "Chinese, of databases": "数据库连接池的大小应当根据服务器的核心数量来设置。过大的连接池反而降低系统的整体吞吐量。",
    "Chinese, traditional": "請先閱讀專案的說明文件。然後修復購物車中總價計算錯誤的問題。完成之後執行全部測試。",
    "Chinese with code": "请把 total_price 改成 Decimal 类型。然后运行 pytest -q tests/test_cart.py 并修复失败的测试。",
    "Japanese": "まずプロジェクトの説明ファイルを読み、次に合計金額の計算が間違っている問題を修正してください。",
    "Korean": "먼저 프로젝트의 설명 파일을 읽고 장바구니의 총액 계산이 잘못된 문제를 고쳐 주세요.",
    "Russian": "Сначала прочитайте описание проекта, затем исправьте ошибку в расчёте общей суммы.",
    "German": "Zuerst die Beschreibung lesen, dann den Fehler beheben; Größe, Übergänge und Maßstäbe prüfen.",
    "pictures": "👍🚀😀🎉🔥",
}  # fmt: skip


@pytest.mark.rows("S4-63")
@pytest.mark.parametrize("text", TOLD.values(), ids=TOLD.keys())
def test_other_scripts_are_estimated_within_a_third_of_what_they_are(text: str) -> None:
    """S4-63: ±30 %; a quarter of the characters would be off by 60 % for Chinese."""
    assert without_package().count(text) == pytest.approx(COUNTER.count(text), rel=0.3)


def test_an_estimate_takes_any_text_of_any_size() -> None:
    for text in ("\ud800", "\x00", "é" * 1_000_000, "漢" * 1_000_000, "\U0010ffff"):
        assert without_package().count(text) >= 1


def test_the_encoding_is_tiktokens_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """tiktoken's definition, without the download: `hashes` receives the SHA-256 of the vocabulary that it expects."""
    hashes: list[str] = []

    def not_loaded(address: str, expected_hash: str) -> dict[bytes, int]:
        hashes.append(expected_hash)
        return {}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", not_loaded)
    definition = openai_public.o200k_base()
    assert hashes == [o200k.SHA256]
    assert definition["pat_str"] == o200k.PATTERN
    assert definition["special_tokens"] == o200k.SPECIAL_TOKENS


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:1000], lambda data: b"", lambda data: gzip.compress(b"IQ== 0\n")],
    ids=["cut", "empty", "other"],
)
def test_given_a_damaged_vocabulary_then_tokens_are_estimated(
    damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "vocabulary.gz").write_bytes(damage(o200k.VOCABULARY.read_bytes()))
    monkeypatch.setattr(o200k, "VOCABULARY", tmp_path / "vocabulary.gz")
    counter = TokenCounter(load_o200k.__wrapped__)
    assert counter.count("hello world") == 3
    assert counter.name == "estimate (characters / 4)"


@pytest.mark.parametrize("seed", range(5))
def test_counting_in_slices_equals_counting_in_one_piece(seed: int) -> None:
    text = prose(8 * SLICE_CHARACTERS, seed)
    assert len(list(sliced(text))) > 8
    assert COUNTER.count(text) == whole(text)


@given(some.text(some.sampled_from("ab'sSé日ー。 \n\t.,;:/\\(5²_-\u0301\u00a0…🙂"), max_size=200))
def test_a_cut_at_any_border_changes_no_count(text: str) -> None:
    for border in tokens._TOKEN_BOUNDARY.finditer(text):
        assert whole(text[: border.end()]) + whole(text[border.end() :]) == whole(text)


@given(some.text(max_size=300))
def test_slices_are_the_text(text: str) -> None:
    assert "".join(sliced(text * 300)) == text * 300


def test_a_text_without_borders_is_cut_all_the_same_and_hardly_miscounted() -> None:
    text = "7" * (4 * SLICE_CHARACTERS)
    assert abs(COUNTER.count(text) - whole(text)) <= 8


def test_of_a_huge_text_parts_are_counted_and_stand_for_the_rest() -> None:
    text = prose(50_000)
    huge = text * (4 * MAX_COUNTED_CHARACTERS // len(text))
    expected = COUNTER.count(text) * len(huge) / len(text)
    assert COUNTER.count(huge) == COUNTER.count(huge) == pytest.approx(expected, rel=0.03)


async def test_one_letter_sixty_million_times_is_counted_in_the_time_of_a_million() -> None:
    await COUNTER.preload()
    with within(1.5):
        [counted] = await COUNTER.count_all(["a" * 60_000_000])
    assert counted == pytest.approx(60_000_000 / 8, rel=0.02)


@pytest.mark.parametrize("head", ["data:image/png;base64,", "data:;base64,", "data:text/plain;charset=utf-8;base64,"])
def test_a_data_url_has_a_flat_count_whatever_its_length(head: str) -> None:
    picture = head + base64.b64encode(random.Random(1).randbytes(300_000)).decode()
    with within(0.1):
        assert COUNTER.count(picture) == DATA_URL_TOKENS
        assert COUNTER.count(f'see "{picture}" and {picture}') == COUNTER.count('see "" and ') + 2 * DATA_URL_TOKENS


@pytest.mark.parametrize(
    "part",
    [
        '{"source":{"data":"%s","media_type":"image/png","type":"base64"},"type":"image"}',
        '{"source":{"data":"%s","media_type":"application/pdf","type":"base64"},"type":"document"}',
        '{"input_audio":{"data":"%s","format":"wav"},"type":"input_audio"}',
        '{"file":{"file_data":"%s","filename":"plan.pdf"},"type":"file"}',
    ],
    ids=["image", "document", "audio", "file"],
)
def test_a_file_as_bare_base64_counts_as_a_data_url_does(part: str) -> None:
    """A screenshot of 300 KB was 270,000 tokens where the wire format has no data URL around it."""
    said = part % base64.b64encode(random.Random(1).randbytes(300_000)).decode()
    assert COUNTER.count(said) == COUNTER.count(part % "") + DATA_URL_TOKENS
    assert COUNTER.count(f"{said} {said}") == COUNTER.count(f"{part % ''} {part % ''}") + 2 * DATA_URL_TOKENS
    small = part % base64.b64encode(b"a short note").decode()
    assert COUNTER.count(small) == whole(small)


def test_half_characters_are_counted_and_do_not_fail() -> None:
    assert COUNTER.count("a\ud800b") == COUNTER.count("a?b")


async def test_many_texts_are_counted_in_order() -> None:
    texts = ["", "hello world", prose(50_000), "data:;base64,AAAA", "a"]
    assert await COUNTER.count_all(texts) == [COUNTER.count(text) for text in texts]


async def test_a_history_that_comes_again_is_counted_once() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    counts = RememberedCounts(TokenCounter(lambda: count))
    totals = [await counts.total(texts) for texts in (["ab", "c", "ab"], ["ab", "c", "ab", "defg"], [])]

    assert totals == [5, 9, 0]
    assert counted == ["ab", "c", "defg"]


LONG_TEXTS = [prose(700_000), "日本語のテキスト、続く。" * 20_000, "🙂é" * 60_000, "x" * 700_000]


@pytest.mark.parametrize("text", LONG_TEXTS, ids=["prose", "japanese", "emoji", "one letter"])
async def test_a_large_text_does_not_stall_the_event_loop_for_10_ms(text: str) -> None:
    """PERFORMANCE section 1. In CPU time, as other processes share the machine."""
    await COUNTER.preload()
    counted, longest = await longest_turn(COUNTER.count_all([text]))
    assert counted[0] > 0
    assert longest < 0.010 * slowness()


async def test_a_large_history_that_comes_again_does_not_stall_the_event_loop_for_10_ms() -> None:
    """60 MB of texts that are known: their digests alone took 79 ms."""
    texts = [*(f"{'é' * 100_000}{number}" for number in range(300)), "x" * 30_000_000, *map(str, range(30_000))]
    counts = RememberedCounts(TokenCounter(lambda: len))
    first = await counts.total(texts)
    again, longest = await longest_turn(counts.total(texts))
    assert again == first
    assert longest < 0.010 * slowness()


async def longest_turn(work: Coroutine[None, None, Result]) -> tuple[Result, float]:
    """What the work returns, and the longest CPU time in seconds for which no other task could run."""
    task = asyncio.create_task(work)
    longest, last = 0.0, time.thread_time()
    while not task.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    return task.result(), longest
