"""Whether a user message goes on with the turn before it, or starts something else."""

from __future__ import annotations


def continues(before: str, closing: str, text: str) -> bool:
    """Whether `text` merely continues the turn that began with `before` and closed with `closing`."""
    return bool(before or closing or text)
