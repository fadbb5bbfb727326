"""How large unfinished work grows before it is cut, and how much of it stays: the rules of a fold, by the setting
`folding`, the model's window, and whether the request is so long that it costs more."""

from __future__ import annotations

from proxy.config import Config
from proxy.core.compaction import PRESSURE_SHARE, FoldRules
from proxy.upstream import ContextWindow

USER_TURN_FRAME_SHARE = 0.8
"""Share of `frame_max_tokens` that starts a cut at a user message, a natural border."""
LONG_REQUEST_FRAME_SHARE = 0.25
"""The same where the request is so long that all of it costs more: a fold pays by what it keeps below that length."""
NEWEST_SHARE, MAX_NEWEST_TOKENS = 1 / 8, 4_000
"""Of unfinished work that is cut, the newest steps stay: this share of `frame_max_tokens`, and at most so many
tokens."""
LONGEST_WAIT = 1.3
"""Up to so many times the size from which it is cut, unfinished work waits for a command of the agent."""
PART_WINDOW_SHARE = 0.4
"""Unfinished work is cut before it fills more than this share of a known window."""


def fold_rules(config: Config, window: ContextWindow, *, at_words: bool, costs_more_for_length: bool) -> FoldRules:
    """`at_words`: the client has just added words of the user, a natural border."""
    longest = config.frame_max_tokens
    if window.is_binding and "frame_max_tokens" not in config.model_fields_set:
        longest = min(longest, int(window.tokens * PART_WINDOW_SHARE))
    part_tokens = int(longest * (USER_TURN_FRAME_SHARE if at_words else 1))
    if costs_more_for_length:
        part_tokens = int(longest * LONG_REQUEST_FRAME_SHARE)
    match config.folding:
        case "full":
            return FoldRules(part_tokens, folds_items=True)
        case "careful":
            newest = min(MAX_NEWEST_TOKENS, int(longest * NEWEST_SHARE))
            return FoldRules(part_tokens, newest, int(max(part_tokens, longest) * LONGEST_WAIT))
        case "requests":
            return FoldRules(max(longest, int(window.tokens * PRESSURE_SHARE)), MAX_NEWEST_TOKENS)
