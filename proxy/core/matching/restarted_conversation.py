"""Recognises a new conversation that continues an old one from a summary, because the client compacted its history.

Without a session name only content can tell: the same tools, and one of two signs. Either the new conversation holds a
summary that was asked for at the end of the old one, or beside it in a request that quotes it whole. Or the old one,
under the same system text, was long enough to be compacted, and the long first message quotes its user verbatim and
names hardly anything unknown to it. In doubt it is a new conversation: showing someone else's frames is worse than
starting again.
"""

from __future__ import annotations

from proxy.core.ledger import Entry, EntryKind, Ledger, Message, Request, visible_text
from proxy.core.matching.match_result import Match, MatchKind
from proxy.core.observers import asks_for_summary, names_in_messages

MIN_CONVERSATION_TOKENS = 20_000
"""Clients do not compact shorter conversations: there is room."""
MIN_SUMMARY_CHARACTERS = 1_000
"""A shorter first message is a prompt."""
MAX_SUMMARY_CHARACTERS = 100_000
"""Summaries are shorter; a pasted text may have megabytes."""
MIN_QUOTE_CHARACTERS = 24
"""Shorter quotes identify no conversation."""
MAX_QUOTE_CHARACTERS = 200
"""Of a result; clients shorten long ones where they quote them."""
MIN_SUMMARY_NAMES = 8
MAX_SUMMARY_NAMES = 500
"""Names of a summary to look up, sampled evenly; each is searched in the whole conversation."""
MIN_KNOWN_NAMES_SHARE = 0.6
"""Share of a summary's names that the old conversation must contain."""


def match_restarted(ledger: Ledger, request: Request) -> Match | None:
    """A match that continues the old conversation at its tip, if `request` opens with a summary of it."""
    tip = _tip_under_same_tools(ledger, request)
    first_message = next((m.text for m in request.messages if m.role == "user"), "")
    text = first_message[:MAX_SUMMARY_CHARACTERS]
    if tip is None:
        return None
    if answered_summary_request(ledger, request):
        return Match(MatchKind.COMPACTED, adopts=tip.id)
    if (
        ledger.threads[tip.thread].system_hash != request.system_hash
        or len(text) < MIN_SUMMARY_CHARACTERS
        or sum(_tokens(ledger, entry) for entry in ledger.path(tip.id)) < MIN_CONVERSATION_TOKENS
    ):
        return None
    everything = ledger.entries.values()  # a second summary quotes what was said before the first one
    user_texts = [e.message.text.strip() for e in everything if e.message and e.message.role == "user"]
    if first_message.strip() in user_texts or not any(
        len(user_text) >= MIN_QUOTE_CHARACTERS and user_text in text for user_text in user_texts
    ):
        return None
    return Match(MatchKind.COMPACTED, adopts=tip.id) if _shares_names(text, ledger) else None


def match_quoted(ledger: Ledger, request: Request, summary_request: str) -> Match | None:
    """A match that continues the old conversation at its tip, if `summary_request`, to which `request` holds the
    answer, quotes all that the user said there and what tells it from others: the newest answer that is long enough,
    or all answers and results, as they begin. A second conversation with the same task, which has come less far, may
    be quoted by it too."""
    tip = _tip_under_same_tools(ledger, request)
    if tip is None:
        return None
    path = ledger.path(tip.id)
    user_texts = [e.message.text.strip() for e in path if e.message and e.message.role == "user"]
    answers = [visible_text(ledger.rounds.get(e.id, ())).strip() for e in path]
    results = [e.message.text.strip()[:MAX_QUOTE_CHARACTERS] for e in path if e.message and e.message.is_result]
    telling = [answer for answer in answers if len(answer) >= MIN_QUOTE_CHARACTERS][-1:] or [*answers, *results]
    if any(all(len(text) < MIN_QUOTE_CHARACTERS for text in texts) for texts in (user_texts, telling)):
        return None
    is_quoted = all(text in summary_request for text in (*user_texts, *telling))
    return Match(MatchKind.COMPACTED, adopts=tip.id) if is_quoted else None


def _tip_under_same_tools(ledger: Ledger, request: Request) -> Entry | None:
    """The newest entry, if it was said under the tools of `request`. The system text may tell another time of day."""
    tip = ledger.newest_tip()
    thread = ledger.threads.get(tip.thread) if tip else None
    return tip if thread and thread.tool_names and thread.tool_names == request.tool_names else None


def answered_summary_request(ledger: Ledger, request: Request) -> str:
    """The request for a summary that the newest turn answers, if a message of `request` contains all of the answer;
    empty otherwise."""
    tip = ledger.newest_tip()
    question = ledger.entries.get(tip.parent) if tip and tip.kind is EntryKind.TURN else None
    if tip is None or question is None or question.message is None or question.message.role != "user":
        return ""
    summary = _summary_in(visible_text(ledger.rounds.get(tip.id, ())))
    if len(summary) < MIN_QUOTE_CHARACTERS or not any(summary in m.text for m in request.messages):
        return ""
    return question.message.text if asks_for_summary(question.message.text) else ""


def _summary_in(answer: str) -> str:
    """The summary without the tags and the preparation around it, which clients leave out (Claude Code)."""
    inner, is_tagged, _ = answer.partition("<summary>")[2].partition("</summary>")
    return (inner if is_tagged else answer).strip()


def _tokens(ledger: Ledger, entry: Entry) -> int:
    own = entry.message.tokens if entry.message else 0
    return own + sum(r.spoken.message.tokens for r in ledger.rounds.get(entry.id, ()))


def _shares_names(text: str, ledger: Ledger) -> bool:
    """Whether nearly all names in `text` occur in the conversation."""
    all_names = names_in_messages([Message("user", b"", "", text)])
    if len(all_names) < MIN_SUMMARY_NAMES:
        return False
    names = sorted(all_names)[:: -(-len(all_names) // MAX_SUMMARY_NAMES)]
    conversation_text = "\n".join(
        [
            *(e.message.text for e in ledger.entries.values() if e.kind is EntryKind.MESSAGE and e.message),
            *(r.spoken.message.text for rounds in ledger.rounds.values() for r in rounds),
            *(c.arguments for rounds in ledger.rounds.values() for r in rounds for c in r.spoken.message.calls),
        ]
    )
    words = "\n".join(
        set(conversation_text.split())
    )  # no name has white space in it, and most words are said again and again
    return sum(name in words for name in names) >= MIN_KNOWN_NAMES_SHARE * len(names)
