"""Where the tokens and the money of a conversation went: one line of tokens, and its requests by what made them cheaper
or dearer than without us."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from proxy.accounting import KEEP_ALIVE_STATUS, OWN_REQUEST_STATUSES, Receipt

CHANGING_EVENTS = frozenset({"woken", "folded", "parted", "replaced", "trim", "unfolded", "switched"})
"""Events with which the context is another one than with the request before."""
CAUSES = {
    "less": "less was sent than the agent gave us",
    "cached": "no less was sent, but more of it was in the provider's cache",
    "rounds": "the model called us, which took more rounds",
    "changed": "the context was changed, and what stands after the change was written anew",
    "own": "our tools and texts stood in it, and not enough had been put away",
    "pings": "sent by us to keep the provider's cache",
    "summaries": "asked by us for a summary",
}


class TokenBalance(msgspec.Struct, frozen=True):
    """Tokens of all requests. What went up is what came, less what was left out, and what the proxy added."""

    came: int
    left_out: int
    added: int
    sent: int
    cached: int
    """Of what was sent, by our count."""


class MoneyCause(msgspec.Struct, frozen=True):
    """USD that so many requests saved together, negative for a loss, and why."""

    words: str
    requests: int
    saved: float


def token_balance(receipts: Iterable[Receipt]) -> TokenBalance:
    came = added = sent = cached = 0
    for receipt in receipts:
        came += receipt.tokens_in
        added += receipt.own_tools + receipt.own_texts + receipt.own_rounds
        sent += receipt.tokens_sent
        cached += receipt.sent.cached
    return TokenBalance(came, came - (sent - added), added, sent, cached)


def money_causes(receipts: Iterable[Receipt]) -> Sequence[MoneyCause]:
    """The largest amount first; requests that cost what they would have cost are in none."""
    sums: dict[str, tuple[int, float]] = {}
    for receipt in receipts:
        if receipt.saved:
            cause = _cause(receipt)
            count, saved = sums.get(cause, (0, 0.0))
            sums[cause] = (count + 1, saved + receipt.saved)
    found = [MoneyCause(CAUSES[cause], count, saved) for cause, (count, saved) in sums.items()]
    return sorted(found, key=lambda each: -abs(each.saved))


def _cause(receipt: Receipt) -> str:
    if receipt.status in OWN_REQUEST_STATUSES:
        return "pings" if receipt.status == KEEP_ALIVE_STATUS else "summaries"
    if receipt.saved > 0:
        return "less" if receipt.tokens_sent < receipt.tokens_in else "cached"
    if receipt.rounds > 1:
        return "rounds"
    events = {event.partition(" ")[0] for event in receipt.events}
    return "changed" if events & CHANGING_EVENTS else "own"
