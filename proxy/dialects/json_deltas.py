"""Merges the deltas of a streamed JSON value without knowing its schema.

Texts grow, and lists grow item by item. Signatures stay exact, and a repeated constant member is not appended twice.
"""

from __future__ import annotations

from typing import Any

from proxy.dialects import raw_json

CONSTANT = ("index", "type", "id", "format", "role", "name", "provider")
"""Members that are said again in every delta and do not grow."""
GROWING_ITEM_TYPES = ("thinking", "text", "reasoning.text", "reasoning.summary")
"""Types of list items that arrive in pieces."""


def merge_delta(old: Any, new: Any) -> Any:
    """`new` taken into `old`: texts grow, lists grow or are aligned by `index`, the rest is the newest. So is what is
    nested deeper than it can be walked through."""
    try:
        return _merged(old, new)
    except RecursionError:
        return new


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {k: _merge_member(k, old.get(k), v) for k, v in new.items() if v is not None}
    if isinstance(old, list) and isinstance(new, list):
        whole = list(old)
        for item in new:
            at = _target_index(whole, item)
            whole[at : at + 1] = [_merged(whole[at], item) if at < len(whole) else item]
        return whole
    return new


def _target_index(whole: list[Any], item: object) -> int:
    """Where the item stands that `item` goes on with; behind all when there is none."""
    last = len(whole) - 1
    return next((i for i in range(last, -1, -1) if _is_continuation(whole[i], item, last=i == last)), last + 1)


def _merge_member(name: str, old: Any, new: Any) -> Any:
    if isinstance(old, str) and isinstance(new, str):
        return (
            old if name in CONSTANT and not new else new if name in CONSTANT else raw_json.replace_surrogates(old + new)
        )
    return _merged(old, new)


def _is_continuation(old: object, new: object, *, last: bool) -> bool:
    """Whether a list item is one more piece of a stored one: the same index, or the same open block of reasoning."""
    if not isinstance(old, dict) or not isinstance(new, dict) or old.get("type") != new.get("type"):
        return False
    if "index" in new or "index" in old:
        return old.get("index") == new.get("index")
    return last and str(new.get("type")) in GROWING_ITEM_TYPES and not is_signed(old)


def is_signed(value: object) -> bool:
    """Whether a signature or encrypted reasoning stands anywhere in a value, however deep it is nested."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, list):
            waiting += inner
        elif isinstance(inner, dict):
            if _has_signature(inner):
                return True
            waiting += inner.values()
    return False


def _has_signature(said: dict[str, Any]) -> bool:
    if any(said.get(name) for name in ("signature", "thought_signature", "encrypted_content")):
        return True
    kind = said.get("type")
    hidden = isinstance(kind, str) and any(word in kind for word in ("encrypted", "redacted"))
    return hidden and bool(said.get("data"))
