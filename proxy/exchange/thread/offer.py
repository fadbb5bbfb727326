"""Chooses what a thread is offered with its first request, when nothing of it is in the provider's cache yet: all core
tools with their guidance, `stack_recall` alone, or nothing, whichever is small beside the request."""

from __future__ import annotations

from enum import StrEnum

CORE_SHARE = 0.02
"""Core tools and guidance may take this share of the first request. Above it, a short session that never folds is
visibly dearer than without us."""
RECALL_SHARE = 0.022
"""`stack_recall` alone may take this share: 88 tokens from 4,000 on."""


class Offer(StrEnum):
    CORE = "core"
    RECALL = "recall"
    NOTHING = ""


def choose_offer(request_tokens: int, core_tokens: int, recall_tokens: int, *, passive: bool) -> Offer:
    """What fits beside a request of `request_tokens`; mode `passive` offers `stack_recall` at most."""
    if not passive and core_tokens <= CORE_SHARE * request_tokens:
        return Offer.CORE
    return Offer.RECALL if recall_tokens <= RECALL_SHARE * request_tokens else Offer.NOTHING
