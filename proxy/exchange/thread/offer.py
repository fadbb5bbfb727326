"""Chooses what a thread is offered with its first request, when nothing of it is in the provider's cache yet: the tools
for frames with their guidance, `stack_recall` alone, or nothing, whichever is small beside the request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

FRAMES_SHARE = 290 / 9_000
"""Tools for frames and their guidance may take this share of the first request. They are at most 290 tokens, in the
dialect that takes most, so every request of 9,000 tokens gets them."""
RECALL_SHARE = 0.019
"""`stack_recall` alone may take this share: 76 tokens from 4,000 on."""

Offered = TypeVar("Offered")


def first_small_offer(request_tokens: int, offers: Iterable[tuple[Offered, int, float]]) -> Offered | None:
    """The first of `offers` that is small beside a request of `request_tokens`: each has its tokens and the share of
    the request that it may take."""
    return next((offer for offer, tokens, share in offers if tokens <= share * request_tokens), None)
