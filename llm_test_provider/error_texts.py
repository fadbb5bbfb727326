"""How providers say that a prompt is too long, and how they say "slower" in words that look alike.

Data with one law: each row is a fact about somebody's wire (status, shape, words), collected from public bug reports
and error tables up to 2026-11. Figures in it are placeholders: `{used}` tokens asked for, `{window}` tokens allowed.
No classifier lives here; whoever classifies is tested against these rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

Shape = Literal["openai", "anthropic", "google", "bedrock", "flat", "detail", "text"]


@dataclass(frozen=True, slots=True)
class Wording:
    """One refusal: who says it, with which status, in which envelope."""

    name: str
    status: int
    shape: Shape
    message: str
    code: str | None = None

    def text(self, used: int, window: int) -> str:
        return self.message.format(used=used, window=window, over=max(used - window, 0))

    def body(self, used: int, window: int) -> bytes:
        """The response body, in the envelope of its provider."""
        text = self.text(used, window)
        return text.encode() if self.shape == "text" else json.dumps(self._envelope(text)).encode()

    @property
    def kind(self) -> str:
        """What the envelopes that name kinds call it."""
        return "rate_limit_error" if self.status == 429 else "invalid_request_error"

    def _envelope(self, text: str) -> Any:
        kind = self.kind
        return {
            "openai": {"error": {"message": text, "type": kind, "param": "messages", "code": self.code}},
            "anthropic": {"type": "error", "error": {"type": kind, "message": text}},
            "google": [{"error": {"code": self.status, "message": text, "status": self.code or "INVALID_ARGUMENT"}}],
            "bedrock": {"message": text},
            "flat": {"error": text},
            "detail": {"object": "error", "message": text, "type": "BadRequestError", "code": self.status},
        }[self.shape]


OVERFLOWS: tuple[Wording, ...] = (
    Wording(
        "openai",
        400,
        "openai",
        "This model's maximum context length is {window} tokens. However, your messages resulted in {used} tokens. "
        "Please reduce the length of the messages.",
        "context_length_exceeded",
    ),
    Wording(
        "openai-window",
        400,
        "openai",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "context_length_exceeded",
    ),
    Wording(
        "openai-completion",
        400,
        "openai",
        "This model's maximum context length is {window} tokens, however you requested {used} tokens in your prompt "
        "and completion. Please reduce your prompt; or completion length.",
    ),
    Wording(
        "openai-limit",
        400,
        "openai",
        "Input tokens exceed the configured limit of {window} tokens. Your messages resulted in {used} tokens.",
        "context_length_exceeded",
    ),
    Wording("anthropic", 400, "anthropic", "prompt is too long: {used} tokens > {window} maximum"),
    Wording(
        "anthropic-sum",
        400,
        "anthropic",
        "input length and `max_tokens` exceed context limit: {used} + 32000 > {window}, decrease input length or "
        "`max_tokens` and try again",
    ),
    Wording("anthropic-size", 413, "anthropic", "request_too_large: Request exceeds the maximum size"),
    Wording("bedrock", 400, "bedrock", "Input is too long for requested model."),
    Wording(
        "google",
        400,
        "google",
        "The input token count ({used}) exceeds the maximum number of tokens allowed ({window}).",
    ),
    Wording(
        "vertex",
        400,
        "google",
        "Unable to submit request because the input token count is {used} but model only "
        "supports up to {window}. Reduce the input token count and try again.",
    ),
    Wording(
        "xai", 400, "flat", "This model's maximum prompt length is {window} but the request contains {used} tokens."
    ),
    Wording(
        "groq", 400, "openai", "Please reduce the length of the messages or completion.", "context_length_exceeded"
    ),
    Wording("groq-size", 413, "openai", "Request Entity Too Large", "request_too_large"),
    Wording(
        "openrouter",
        400,
        "openai",
        "This endpoint's maximum context length is {window} tokens. However, you requested about {used} tokens.",
        "400",
    ),
    Wording(
        "openrouter-input",
        400,
        "openai",
        "Input length {used} exceeds the maximum allowed input length of {window} tokens.",
        "400",
    ),
    Wording(
        "copilot",
        400,
        "openai",
        "prompt token count of {used} exceeds the limit of {window}",
        "model_max_prompt_tokens_exceeded",
    ),
    Wording(
        "llama.cpp",
        400,
        "openai",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        "400",
    ),
    Wording(
        "llama.cpp-counts",
        400,
        "openai",
        "request ({used} tokens) exceeds the available context size ({window} tokens), try increasing it",
        "exceed_context_size_error",
    ),
    Wording(
        "lm-studio",
        400,
        "flat",
        "The number of tokens to keep from the initial prompt is greater than the context "
        "length. Try to load the model with a larger context length, or provide a shorter input",
    ),
    Wording("ollama", 400, "flat", "prompt too long; exceeded max context length by {over} tokens"),
    Wording("ollama-input", 400, "flat", "input length exceeds the context length"),
    Wording("minimax", 400, "openai", "invalid params, context window exceeds limit", "2013"),
    Wording("moonshot", 400, "openai", "Invalid request: Your request exceeded model token limit: {window}"),
    Wording(
        "mistral",
        400,
        "detail",
        "Prompt contains {used} tokens, too large for model with {window} maximum context length",
    ),
    Wording(
        "together", 422, "openai", "Input ({used} tokens) is longer than the model's context length ({window} tokens)."
    ),
    Wording(
        "deepseek",
        400,
        "openai",
        "This model's maximum context length is {window} tokens. However, you requested "
        "{used} tokens ({used} in the messages, 0 in the completion).",
        "invalid_request_error",
    ),
    Wording(
        "vllm",
        400,
        "detail",
        "This model's maximum context length is {window} tokens. However, your request has {used} input tokens.",
    ),
    Wording(
        "vllm-sum",
        400,
        "detail",
        "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is {window} "
        "tokens and your request has {used} input tokens (8192 > {window} - {used}).",
    ),
    Wording(
        "sglang",
        400,
        "detail",
        "The input ({used} tokens) is longer than the model's context length ({window} tokens).",
    ),
    Wording("dashscope", 400, "openai", "Range of input length should be [1, {window}]", "invalid_parameter_error"),
    Wording("zhipu", 400, "openai", "Prompt exceeds max length", "1261"),
    Wording(
        "litellm",
        400,
        "openai",
        "ContextWindowExceededError: prompt has {used} tokens, but the configured context size is {window} tokens",
        "400",
    ),
    Wording(
        "tgi",
        422,
        "flat",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {window}. Given: "
        "{used} `inputs` tokens and 1024 `max_new_tokens`",
    ),
    Wording(
        "cohere",
        400,
        "bedrock",
        "too many tokens: total number of tokens in the prompt cannot exceed {window}, received {used}",
    ),
    Wording("cerebras", 400, "text", ""),
)
"""Refusals for length. The last one has no words at all: status 400 and an empty body."""

THROTTLES: tuple[Wording, ...] = (
    Wording("bedrock-throttle", 429, "bedrock", "Throttling error: Too many tokens, please wait before trying again."),
    Wording(
        "openai-tpm",
        429,
        "openai",
        "Rate limit reached for tokens per min (TPM): Limit 30000, Used 28000, Requested 6000. Please try again in 8s.",
        "rate_limit_exceeded",
    ),
    Wording(
        "openai-request-tpm",
        429,
        "openai",
        "Request too large for organization on tokens per min (TPM): Limit "
        "30000, Requested 61000. The input or output tokens must be reduced in order to run successfully.",
        "rate_limit_exceeded",
    ),
    Wording(
        "anthropic-input-rate",
        429,
        "anthropic",
        "This request would exceed your organization's rate limit of 40000 "
        "input tokens per minute. Please reduce the prompt length or the maximum tokens requested.",
    ),
    Wording(
        "google-quota",
        429,
        "google",
        "You exceeded your current quota for generate_content_free_tier_input_token_"
        "count, limit: 250000. Please retry in 12s.",
        "RESOURCE_EXHAUSTED",
    ),
)
"""Refusals for haste that name tokens and limits: trimming would not help, waiting does."""


def overflow_wording(which: int | str) -> Wording:
    """A row of OVERFLOWS by number or name. Raises KeyError for a name that is not there."""
    return _row(OVERFLOWS, which)


def throttle_wording(which: int | str) -> Wording:
    """A row of THROTTLES by number or name. Raises KeyError for a name that is not there."""
    return _row(THROTTLES, which)


def _row(rows: tuple[Wording, ...], which: int | str) -> Wording:
    return rows[which] if isinstance(which, int) else {row.name: row for row in rows}[which]
