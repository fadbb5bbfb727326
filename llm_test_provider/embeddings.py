"""The scripted embedding model: the same text always has the same vector, and words of one group mean the same.

A vector counts the words of a text in buckets, so texts with common words are near each other. All words of a group
fall into a bucket of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from zlib import crc32

from llm_test_provider.answer import FixedReply, error_body
from llm_test_provider.apis.json import encoded

BUCKETS = 64
"""Of single words; the groups come behind them."""


def embeddings_reply(body: Mapping[str, Any], meanings: Sequence[Collection[str]], longest: int = 0) -> FixedReply:
    """The answer to `/v1/embeddings`, for a text or a list of texts, of at most `longest` characters each (0: any)."""
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        return FixedReply(400, error_body("'input' must be a text or a list of texts.", "invalid_request_error", None))
    if longest and any(len(text) > longest for text in texts):
        return FixedReply(400, error_body("The input is longer than the window.", "invalid_request_error", None))
    data = [
        {"object": "embedding", "index": index, "embedding": vector_of(text, meanings)}
        for index, text in enumerate(texts)
    ]
    tokens = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return FixedReply(200, encoded({"object": "list", "data": data, "model": body.get("model"), "usage": usage}))


def vector_of(text: str, meanings: Sequence[Collection[str]]) -> list[float]:
    """`BUCKETS` numbers and one for each group; never all zero."""
    vector = [0.0] * (BUCKETS + len(meanings))
    for word in re.findall(r"\w+", text.lower()) or [text]:
        group = next((number for number, words in enumerate(meanings) if word in words), None)
        vector[crc32(word.encode()) % BUCKETS if group is None else BUCKETS + group] += 1.0
    return vector
