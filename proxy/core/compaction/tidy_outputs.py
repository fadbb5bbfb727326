"""Writes new tool outputs shorter before they are first sent (`tidy_outputs`): without escape codes, text that a
progress bar overwrote, JSON's insignificant blanks, and blanks at line ends beside these codes, and with one line for a
run of equal ones.

Only outputs of commands, and outputs that are JSON. A text that the model may have to repeat exactly, because it is the
content of a file, is left alone, as far as the command tells: that a script prints a file is not known. The new text
names the ref under which the stored original is recalled byte for byte, and stays what it is in all later requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby

import msgspec

from proxy.core.compaction.truncate_outputs import OutputRules, recall_ref, unread_entries
from proxy.core.frames import PathEntry, PathState, ResultReplaced
from proxy.core.ledger import Call, Message, OpenCalls
from proxy.core.observers import (
    PATH_ARGUMENTS,
    ToolExecution,
    ToolRole,
    ToolRoles,
    command_lines_of,
    decode_json_or_text,
    files_touched_by,
    is_waiting,
    parse_command_line,
)
from proxy.core.text import CountTokens

TIDIED_REASON = "tidied"
"""The reason stored with the event."""
MIN_SAVED_TOKENS, MIN_SAVED_SHARE = 30, 0.05
"""A tidied output that saves less, its ref included, is sent as it came."""
MAX_TIDIED_CHARACTERS = 4_000_000
"""A longer output is sent as it came: a window cuts it anyway."""
MIN_EQUAL_LINES = 3
_TIDIED_LINE = '[tidied: codes, blanks and equal lines are left out; as it came: stack_recall with ref="{ref}"]'
_ESCAPE_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()*+#%][0-~]|[0-Z\\^-~])")
_ERASE_LINE = re.compile(r"\x1b\[[02]?K")
_JSON_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[ \t\r\n]++', re.DOTALL)
_EXACT_PROGRAM_NAMES = (
    "cat bat head tail tac less more nl sed awk gawk cut rev strings xxd od hexdump base64 grep egrep fgrep rg ag ack "
    "diff cmp jq yq type gc get-content select-string"
)
_EXACT_PROGRAMS = frozenset(_EXACT_PROGRAM_NAMES.split())
"""Programs that print texts of files, which an edit may have to match."""
_EXACT_GIT_COMMANDS = frozenset(["diff", "show", "blame", "grep", "cat-file", "log", "apply", "format-patch", "stash"])


def tidy_outputs(
    path_state: PathState, is_text: Callable[[bytes], bool], count: CountTokens, rules: OutputRules, cap: int = 0
) -> tuple[ResultReplaced, ...]:
    """A shorter text for each output behind the last answer where that saves enough. What a rule keeps whole stays, and
    what is still longer than `cap` tokens (0: no cap) is left to be cut. `is_text` says of the bytes of a message that
    it holds nothing but text."""
    found: list[ResultReplaced] = []
    for path_entry, message, call in _new_outputs(path_state):
        rule = rules.rule_for(call.name)
        if rule is not None and rule.keep_whole:
            continue
        tidied = tidy_text(message.text, call, rules.names)
        if tidied == message.text:
            continue
        words = f"{tidied}\n{_TIDIED_LINE.format(ref=recall_ref(path_entry))}"
        tokens = count(words)
        saved = message.tokens - tokens
        if saved < max(MIN_SAVED_TOKENS, MIN_SAVED_SHARE * message.tokens) or (cap and tokens > cap):
            continue
        if is_text(message.wire):
            found.append(ResultReplaced(path_entry.entry.id, words, TIDIED_REASON))
    return tuple(found)


def _new_outputs(path_state: PathState) -> Iterator[tuple[PathEntry, Message, Call]]:
    """The results of the client's tools behind the last answer, oldest first, with their calls."""
    calls = OpenCalls[Call]()
    answer = next((m for p in reversed(path_state.entries) if (m := p.message) and m.role == "assistant"), None)
    if answer is None:
        return
    calls.add((call.id, call) for call in answer.calls)
    replaced = path_state.tree.replaced_results
    for path_entry in reversed(list(unread_entries(path_state))):
        message = path_entry.entry.message
        if message is None or not message.answers or (call := calls.find(message.answers)) is None:
            continue
        if call.is_stack_call or message.loaded_tools or path_entry.entry.id in replaced:
            continue
        if len(message.text) <= MAX_TIDIED_CHARACTERS:
            yield path_entry, message, call


def tidy_text(text: str, call: Call, roles: ToolRoles) -> str:
    """The output of `call`, tidied; itself where its exact text may be needed."""
    role = roles.role_of(call.name)
    execution = ToolExecution(call, text)
    if role not in (ToolRole.SHELL, None) or _shows_exact_text(execution, roles):
        return text
    if (compact := without_json_blanks(text)) is not None:
        return compact
    return tidy_terminal_text(text) if role is ToolRole.SHELL or is_waiting(execution, roles) else text


def _shows_exact_text(execution: ToolExecution, roles: ToolRoles) -> bool:
    """Whether the call reads a file, or prints parts of files."""
    if files_touched_by(execution.call, roles):
        return True
    if roles.role_of(execution.call.name) is None:
        arguments = decode_json_or_text(execution.call.arguments)
        return isinstance(arguments, dict) and any(name in arguments for name in PATH_ARGUMENTS)
    return any(_prints_files(line) for line in command_lines_of(execution, roles))


def _prints_files(line: str, *, is_quoted: bool = False) -> bool:
    """Whether a command of the line prints texts of files. What reads the output of another one does not count."""
    is_piped = False
    for command in parse_command_line(line):
        words = [word.rpartition("/")[2].casefold() for word in command.words]
        quoted = [] if is_quoted else [word for word in command.words if " " in word]
        exact = _EXACT_GIT_COMMANDS if "git" in words[:1] else _EXACT_PROGRAMS
        if not is_piped and not exact.isdisjoint(words):
            return True
        if any(_prints_files(inner, is_quoted=True) for inner in quoted):
            return True
        is_piped = command.is_piped
    return False


# ---------------------------------------------------------------------------------------------------------------- text
def without_json_blanks(text: str) -> str | None:
    """JSON without the blanks between its tokens, which keep their spelling; None for what is no JSON value of members
    or items."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return _JSON_TOKEN.sub(lambda token: token[0] if token[0].startswith('"') else "", text)


def tidy_terminal_text(text: str) -> str:
    """What a terminal would show of the text, each run of equal lines once. Blanks at line ends stay in a text without
    escape codes and carriage returns: it may be the content of a file."""
    lines = text.split("\n")
    if "\r" in text or "\x1b" in text:
        lines = [_visible_line(line) for line in lines]
    return "\n".join(line for equal, run in groupby(lines) for line in _shorten_run(equal, sum(1 for _ in run)))


def _visible_line(line: str) -> str:
    """A line as it stands after all carriage returns in it: a later text covers an earlier one as far as it goes."""
    shown = ""
    for part in reversed(line.split("\r")):
        shown += _ESCAPE_CODE.sub("", part)[len(shown) :]
        if _ERASE_LINE.search(part):
            break
    return shown.rstrip()


def _shorten_run(line: str, times: int) -> tuple[str, ...]:
    note = f"[line repeated {times} times]"
    if times < MIN_EQUAL_LINES or (times - 1) * (len(line) + 1) <= len(note) + 1:
        return (line,) * times
    return (line, note)
