"""Is this new conversation an old one, told again? A client that compacts its own history begins anew with a summary.

Where it names its session, that says so (`matching.compacted`). Where it names none, only the content can: the same
tools under the same system text, and one of two things. Either the last that was said in the old conversation is a
summary of it, which was asked for, and the new one opens with these words. Or enough was said to be compacted at all,
and a long first message quotes the user of the old conversation word for word and speaks of hardly anything that was
not spoken of there. The law: **when in doubt it is a new conversation**; a frame tree in a stranger's hands is worse
than one that begins again.

What this module does not do: it reads no store; whoever asks hands in the conversations that may be meant.
"""

from __future__ import annotations

from proxy.core.ledger import Entry, EntryKind, Ledger, Message, Request, visible_text
from proxy.core.matching.match import Match, MatchKind
from proxy.core.observers import asks_for_summary, names_in_messages

MIN_CONVERSATION_TOKENS = 20_000
"""Tokens of a conversation that a client may have compacted: none does while there is room."""
MIN_SUMMARY_CHARACTERS = 1_000
"""Characters of a summary; a shorter first message is somebody's prompt."""
MAX_SUMMARY_CHARACTERS = 100_000
"""Characters of it that are looked at: nobody sums up in more, and somebody's paste may have megabytes."""
MIN_QUOTE_CHARACTERS = 24
"""Characters of a message that tell one conversation from another."""
MIN_SUMMARY_NAMES = 8
MAX_SUMMARY_NAMES = 500
"""Of the names in a summary, those that are looked for, from all over it; every one is looked for in all that was said.
"""
MIN_KNOWN_NAMES_SHARE = 0.6
"""Of the names in a summary, those that the old conversation must hold."""


def match_restarted(ledger: Ledger, request: Request) -> Match | None:
    """The old conversation goes on where it stood, if `request` opens with a summary of it."""
    tip = ledger.newest_tip()
    thread = ledger.threads.get(tip.thread) if tip else None
    whole = next((m.text for m in request.messages if m.role == "user"), "")
    text = whole[:MAX_SUMMARY_CHARACTERS]
    if tip is None or thread is None or not thread.tool_names:
        return None
    if thread.tool_names != request.tool_names or thread.system_hash != request.system_hash:
        return None
    if _returns_summary(ledger, tip, request):
        return Match(MatchKind.COMPACTED, adopts=tip.id)
    if (
        len(text) < MIN_SUMMARY_CHARACTERS
        or sum(_tokens(ledger, entry) for entry in ledger.path(tip.id)) < MIN_CONVERSATION_TOKENS
    ):
        return None
    everything = ledger.entries.values()  # a second summary quotes what was said before the first one
    said = [e.message.text.strip() for e in everything if e.message and e.message.role == "user"]
    if whole.strip() in said or not any(len(one) >= MIN_QUOTE_CHARACTERS and one in text for one in said):
        return None
    return Match(MatchKind.COMPACTED, adopts=tip.id) if _shares_names(text, ledger) else None


def _returns_summary(ledger: Ledger, tip: Entry, request: Request) -> bool:
    """Whether `tip` is an answer to whoever asked for a summary of the conversation, and a message of `request` brings
    all of it."""
    asked = ledger.entries.get(tip.parent) if tip.kind is EntryKind.TURN else None
    if asked is None or asked.message is None or asked.message.role != "user":
        return False
    told = visible_text(ledger.rounds.get(tip.id, ())).strip()
    if len(told) < MIN_QUOTE_CHARACTERS or not any(told in m.text for m in request.messages if m.role == "user"):
        return False
    return asks_for_summary(asked.message.text)


def _tokens(ledger: Ledger, entry: Entry) -> int:
    own = entry.message.tokens if entry.message else 0
    return own + sum(r.spoken.message.tokens for r in ledger.rounds.get(entry.id, ()))


def _shares_names(text: str, ledger: Ledger) -> bool:
    """Whether nearly everything that has a name in `text` has one in the conversation."""
    found = names_in_messages([Message("user", b"", "", text)])
    if len(found) < MIN_SUMMARY_NAMES:
        return False
    names = sorted(found)[:: -(-len(found) // MAX_SUMMARY_NAMES)]
    told = "\n".join(
        [
            *(e.message.text for e in ledger.entries.values() if e.kind is EntryKind.MESSAGE and e.message),
            *(r.spoken.message.text for rounds in ledger.rounds.values() for r in rounds),
            *(c.arguments for rounds in ledger.rounds.values() for r in rounds for c in r.spoken.message.calls),
        ]
    )
    words = "\n".join(set(told.split()))  # no name has white space in it, and most words are said again and again
    return sum(name in words for name in names) >= MIN_KNOWN_NAMES_SHARE * len(names)
