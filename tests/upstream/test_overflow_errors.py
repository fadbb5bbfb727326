"""S9: a refusal for length is told from throttling, whatever the provider's words."""

import json

import pytest

from llm_test_provider.error_texts import OVERFLOWS, THROTTLES, Wording
from proxy.upstream.overflow_errors import is_overflow


@pytest.mark.parametrize("wording", OVERFLOWS, ids=lambda w: w.name)
def test_every_known_wording_of_overflow_is_recognised(wording: Wording) -> None:
    assert is_overflow(wording.status, wording.body(210_000, 200_000), tokens=210_000)


@pytest.mark.parametrize("wording", THROTTLES, ids=lambda w: w.name)
def test_throttling_is_never_taken_for_overflow(wording: Wording) -> None:
    assert not is_overflow(wording.status, wording.body(210_000, 200_000), tokens=210_000)


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens for claude-opus-4-6",
        "max_tokens: Field required",
        "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at "
        "https://docs.claude.com/en/docs/extended-thinking#max-tokens-and-context-window-size",
        "`max_tokens` must be less than or equal to `32768`, the maximum value for `max_tokens` is less than the "
        "`context_window` for this model",
        "The maximum tokens you requested exceeds the model limit of 8192. Try again with a lower value.",
        "Invalid value for 'max_tokens': expected an integer",
        "max_tokens (65536) exceeds the maximum allowed output tokens (32768) for this model",
        "max_output_tokens must be <= 65536",
        "Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a "
        "string with length 45 instead.",
        "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64, but got a string with "
        "length 90 instead.",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 150 "
        "instead.",
    ],
)
def test_what_is_said_of_an_answer_or_a_name_is_no_overflow(words: str) -> None:
    """S9: nothing would be learned from it but a window that is none, and a line trimmed for it."""
    assert not is_overflow(400, json.dumps({"error": {"message": words}}).encode(), tokens=210_000)


@pytest.mark.parametrize(
    "words",
    [
        "The prompt has 132000 tokens but the model only supports 128000",
        "Context limit exceeded",
        "Prompt length (9000) is greater than max_model_len (8192)",
        "This model supports at most 131072 tokens, but 140000 were given",
        "Number of tokens in the prompt is over the limit",
        "Your conversation is too long",
        "Input validation error: `inputs` must have less than 8192 tokens. Given: 9000",
        "EngineCore encountered an issue: prompt length 9000 exceeds max_seq_len 8192",
        "输入长度超过模型的最大上下文长度",
        "プロンプトが長すぎます",
        "Die Eingabe ist zu lang: 140000 Token",
        "La requête dépasse la fenêtre de contexte",
    ],
)
@pytest.mark.parametrize("escaped", [True, False])
def test_overflow_is_known_in_other_words_and_languages(words: str, *, escaped: bool) -> None:
    assert is_overflow(400, json.dumps({"error": {"message": words}}, ensure_ascii=escaped).encode())


def test_a_text_that_is_too_long_is_overflow() -> None:
    words = (
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576, but got a "
        "string with length 2000000 instead."
    )
    assert is_overflow(400, json.dumps({"error": {"message": words}}).encode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"Invalid value for \'temperature\'"}}',
        b'{"error":{"message":"max_tokens is too large: 99999"}}',
        b"<html>Request Entity Too Large</html>",
        b"",
    ],
)
def test_other_refusals_are_none(body: bytes) -> None:
    assert not is_overflow(400, body)


def test_a_refusal_without_a_word_counts_only_for_a_large_request() -> None:
    assert is_overflow(400, b"", tokens=50_000)
    assert not is_overflow(400, b"", tokens=500)
    assert not is_overflow(500, b"", tokens=50_000)
