"""One plain sentence for a request: what we did with it and why, or why nothing was done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from callstack_proxy.management.console.rendering import as_sentence, format_short_tokens, format_usd
from callstack_proxy.management.reports import decision_meaning, outcome_meaning, reason_meaning
from callstack_proxy.management.views import BROKEN_OFF
from proxy.accounting import GateDecision, Receipt
from proxy.core.frames import FrameFolded, Tree, decode_event
from proxy.core.ledger import Ledger

NAMED_FRAMES = 2
"""Frames that are named in a sentence; it says how many more there are."""
MIN_AWAY_TOKENS = 100
"""Fewer tokens that are missing are a matter of how they are counted."""
CENT = 0.01
CHANGED_STATUSES = frozenset({"full", "passive"})
"""Statuses of requests that we may have rewritten."""
PUTTING_AWAY = frozenset({"wake", "fold", "trim", "view"})
"""Kinds of decisions that take something out of the context."""


@dataclass(frozen=True, slots=True)
class SentenceFacts:
    """What a conversation says beside its receipts: titles of frames, how many messages of a frame were put away where
    that happened once, and the frames of which the result alone stays when they end. `input_price` is in USD a
    token."""

    titles: Mapping[str, str] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)
    returning: frozenset[str] = frozenset()
    input_price: float = 0.0


def sentence_facts(ledger: Ledger, tree: Tree, input_price: float) -> SentenceFacts:
    folds = [
        folded
        for events in ledger.events.values()
        for event in events
        if event.kind == "folded" and isinstance(folded := decode_event(event), FrameFolded)
    ]
    times = Counter(folded.frame for folded in folds)
    messages = {folded.frame: len(folded.entries) for folded in folds if times[folded.frame] == 1}
    frames = tree.as_shown.frames.values()
    returning = frozenset(frame.id for frame in frames if not frame.leaves_only_by_fold)
    return SentenceFacts({frame.id: frame.title for frame in frames}, messages, returning, input_price)


def request_sentence(receipt: Receipt, facts: SentenceFacts, *, in_list: bool = False) -> str:
    """With a capital and a full stop. In a list without what was put away earlier, which all rows would repeat: empty
    where nothing happened."""
    if receipt.status == "error":
        how = "broken off" if receipt.reason in BROKEN_OFF else "failed"
        return as_sentence(f"{how}: {reason_meaning(receipt.reason)}" if receipt.reason else how)
    if receipt.status not in CHANGED_STATUSES:
        return as_sentence(outcome_meaning(receipt.status, receipt.reason))
    done = [*context_changes(receipt, facts)]
    if not done:
        done = [_unchanged(receipt, in_list=in_list)]
    if receipt.recalls:
        done.append(f"the model asked for {_count(receipt.recalls, 'text')} that had been put away, and got it")
    words = "; ".join(filter(None, [*done, _loss(receipt)]))
    return as_sentence(words) if words else ""


def context_changes(receipt: Receipt, facts: SentenceFacts) -> Iterable[str]:
    """What happened to the context with this request, in words without a capital and a full stop."""
    away = _subjects(receipt, "folded")
    decisions = [each for each in receipt.decisions if each.done and each.kind in PUTTING_AWAY and each.removed]
    if away or decisions:
        yield f"put away {_what(away, decisions, facts)}{_why(receipt, decisions, facts)}"
    if back := _subjects(receipt, "unfolded"):
        yield f"brought back {_named(back, facts) or 'finished work'}, because a person asked for it"
    if ended := [frame for frame in _subjects(receipt, "popped") if frame in facts.returning]:
        yield f"{_named(ended, facts)} ended: the result stays, and the work behind it was put away"


def _subjects(receipt: Receipt, kind: str) -> list[str]:
    """The frames of the events of a kind."""
    parts = (event.partition(" ") for event in receipt.events)
    return list(dict.fromkeys(frame for word, _, frame in parts if word == kind))


def _what(frames: list[str], decisions: list[GateDecision], facts: SentenceFacts) -> str:
    messages = sum(facts.messages.get(frame, 0) for frame in frames)
    tokens = sum(each.removed for each in decisions)
    size = _count(messages, "message") if messages else f"{format_short_tokens(tokens)} tokens"
    named = _named(frames, facts)
    return f"{size} of {named}" if named else size


def _why(receipt: Receipt, decisions: list[GateDecision], facts: SentenceFacts) -> str:
    """Behind a colon what it saves, where that is why it was done; else behind a comma the reason."""
    paying = [each for each in decisions if each.reason == "gate" and each.requests]
    if not paying:
        return f", because {decision_meaning(decisions[-1].reason)}" if decisions else ""
    over = f"over the next {_count(max(each.requests for each in paying), 'request')}"
    tokens = sum(each.gain - each.cost for each in paying)
    if receipt.plan is not None or not facts.input_price or tokens <= 0:
        return f": that pays {over}"
    return f": saves about {_money(tokens * facts.input_price)} {over}"


def _unchanged(receipt: Receipt, *, in_list: bool) -> str:
    """Why nothing more was put away, where something could have been."""
    away = receipt.tokens_in - (receipt.tokens_last - receipt.own_tools - receipt.own_texts)
    done = f"sent without {format_short_tokens(away)} tokens put away earlier" if away >= MIN_AWAY_TOKENS else ""
    asked = [each for each in receipt.decisions if not each.done and each.removed]
    if not asked:
        return "" if in_list else done or "nothing was put away: no finished work is in it that could leave"
    size = f"{format_short_tokens(asked[-1].removed)} {'more' if done else 'tokens'}"
    kept = f"{size} could leave, but {_later(asked[-1])}"
    return f"{done}; {kept}" if done and not in_list else kept


def _later(decision: GateDecision) -> str:
    reason = decision.reason
    return "that would cost more than it saves now" if reason == "not_yet" else decision_meaning(reason)


def _loss(receipt: Receipt) -> str:
    """What this request alone cost more than without us, and why; empty where it did not, or a plan paid."""
    amount, more = _money(-receipt.saved), receipt.rounds - 1
    if receipt.plan is not None or receipt.saved >= 0 or amount == _money(0):
        return ""
    why = f", since the model called us, which took {_count(more, 'more round')}" if more else ""
    return f"this request cost {amount} more than without us{why}"


def _money(amount: float) -> str:
    """In cents, or with four decimals what is less than one."""
    return f"${amount:,.2f}" if amount >= CENT else format_usd(amount)


def _named(frames: Iterable[str], facts: SentenceFacts) -> str:
    titles = [f"“{facts.titles[frame]}”" for frame in frames if frame in facts.titles]
    more = len(titles) - NAMED_FRAMES
    if more > 0:
        return f"{', '.join(titles[:NAMED_FRAMES])} and {more} more"
    return " and ".join(titles)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
