"""Recognises what a client notes beside the agent's work of the state of things: which files somebody changed, what a
language server says of them, what is in the todo list. It was true at that moment, and is stale once the work that it
stands in has left."""

from __future__ import annotations

import re

from proxy.core.ledger import INSTRUCTION_ROLES, Message
from proxy.core.observers import is_client_elements

MAX_NOTE_LENGTH = 20_000  # a longer text is looked at no further
MAX_HEAD_LENGTH = 600  # the sentence that says what happened, and the files
_TAGS = re.compile(r"\A(?:\s*<[\w-]{1,40}>)+\s*")
_CHANGED = (
    r"(?:was|were|has|have|had)\s(?:\w+\s)?(?:been\s)?"
    r"(?:modified|changed|edited|updated|deleted|removed|renamed|moved|reformatted|formatted|reverted|overwritten)\b"
)
_DID = r"(?:modified|changed|edited|updated|deleted|removed|renamed|moved|reformatted|reverted)"
_PATH = r"[`'\"]?[^\s`'\"<>]{0,300}[\w)-]\.\w{1,8}[`'\"]?"
_NOTE = re.compile(
    rf"""(?:(?:note|notice|reminder|warning|heads\sup)\s*[:,]\s*)?
      (?: (?:the\s)?(?:file\s)?{_PATH}\s(?:\([^)\n]{{0,60}}\)\s)?{_CHANGED}
        | (?:the\s(?:following\s|contents?\sof\s)?|some\s|these\s|\d+\s)?files?(?:\(s\))?\s[^\n.]{{0,200}}?{_CHANGED}
        | \d+\sfiles?\s(?:changed|modified)\b
        | the\suser\s(?:has\s|just\s|manually\s){{0,2}}{_DID}\s(?:the\s)?(?:file\s)?{_PATH}
        | \[this\scommand\s(?:modified|changed|created|deleted)\s\d+\sfiles?\b
        | (?:the\sfollowing\s)?new\sdiagnostic )""",
    re.IGNORECASE | re.VERBOSE,
)
_TODO_NOTE = re.compile(
    r"(?:this\sis\sa\sreminder\sthat\s)?(?:your|the)\s(?:to-?do|task)\s?(?:list|write\stool)?s?\s[^\n]{0,60}?"
    r"(?:has\schanged|was\schanged|is\s(?:currently\s|still\s)?empty|tools?\shave(?:n['\u2019]t|\snot)\sbeen\sused)"
    r"|the\s\w{0,12}todo\w{0,12}\stool\shas(?:n['\u2019]t|\snot)\sbeen\sused",
    re.IGNORECASE,
)
_FILE = re.compile(r"[\w.~+@-]*[\w-]\.[A-Za-z]\w{0,7}\b")


def files_noted_in(message: Message) -> tuple[str, ...] | None:
    """Names of the files that a client's note on the state of things tells of, without folders; None for any other
    message."""
    if message.answers or message.role not in ("user", *INSTRUCTION_ROLES) or len(message.text) > MAX_NOTE_LENGTH:
        return None
    text = message.text
    if message.role == "user" and not (text.lstrip().startswith(("<", "[")) and _is_only_notes(text)):
        return None
    head = _TAGS.sub("", text[:MAX_HEAD_LENGTH].lstrip())
    if _TODO_NOTE.match(head):
        return ()
    files = tuple(dict.fromkeys(_FILE.findall(head))) if _NOTE.match(head) else ()
    return files or None


def _is_only_notes(text: str) -> bool:
    """Whether the user typed none of the text."""
    return text.lstrip().startswith("[") or is_client_elements(text)
