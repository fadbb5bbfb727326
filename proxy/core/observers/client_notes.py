"""Recognises what a client notes beside the agent's work of the state of files: which of them somebody changed, or what
a language server says of them. It was true at that moment, and is stale once the work that it stands in has left."""

from __future__ import annotations

import re

from proxy.core.ledger import INSTRUCTION_ROLES, Message
from proxy.core.observers.turns import is_client_elements

MAX_NOTE_LENGTH = 20_000  # a longer text is looked at no further
MAX_HEAD_LENGTH = 600  # the sentence that says what happened, and the files
_TAGS = re.compile(r"\A(?:\s*<[\w-]{1,40}>)+\s*")
_CHANGED = (
    r"(?:was|were|has|have|had)\s(?:\w+\s)?(?:been\s)?"
    r"(?:modified|changed|edited|updated|deleted|removed|renamed|moved|reformatted|formatted|reverted|overwritten)\b"
)
_PATH = r"[`'\"]?[^\s`'\"<>]{0,300}[\w)-]\.\w{1,8}[`'\"]?"
_NOTE = re.compile(
    rf"""(?:(?:note|notice|reminder|warning|heads\sup)\s*[:,]\s*)?
      (?: (?:the\s)?(?:file\s)?{_PATH}\s(?:\([^)\n]{{0,60}}\)\s)?{_CHANGED}
        | (?:the\s(?:following\s|contents?\sof\s)?|some\s|these\s|\d+\s)?files?(?:\(s\))?\s[^\n.]{{0,200}}?{_CHANGED}
        | \[this\scommand\s(?:modified|changed|created|deleted)\s\d+\sfiles?\b
        | (?:the\sfollowing\s)?new\sdiagnostic )""",
    re.IGNORECASE | re.VERBOSE,
)
_FILE = re.compile(r"[\w.~+@-]*[\w-]\.[A-Za-z]\w{0,7}\b")


def files_noted_in(message: Message) -> tuple[str, ...]:
    """Names of the files that a client's note tells of, without folders; empty for any other message."""
    if message.answers or message.role not in ("user", *INSTRUCTION_ROLES) or len(message.text) > MAX_NOTE_LENGTH:
        return ()
    text = message.text
    if message.role == "user" and not (text.lstrip().startswith(("<", "[")) and _is_only_notes(text)):
        return ()
    head = _TAGS.sub("", text[:MAX_HEAD_LENGTH].lstrip())
    return tuple(dict.fromkeys(_FILE.findall(head))) if _NOTE.match(head) else ()


def _is_only_notes(text: str) -> bool:
    """Whether the user typed none of the text."""
    return text.lstrip().startswith("[") or is_client_elements(text)
