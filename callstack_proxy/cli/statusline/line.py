"""The status line: one line about the session that a client shows, asked of the proxy that runs on this machine.

A client runs this several times a second, so it must end within 50 ms. Claude Code writes a JSON object to stdin; of
its fields these are read: `session_id`, and `rate_limits`, which only a subscription has
(https://code.claude.com/docs/en/statusline, "Available data"). Claude Code blanks the line of a program that fails, so
every outcome is a line and exit code 0.
"""

from __future__ import annotations

import json
import os
from unicodedata import east_asian_width

from callstack_proxy.cli.statusline.ask_proxy import (
    NAME,
    Options,
    as_number,
    as_text,
    ask,
    print_text,
    server_of_client,
    told_by_client,
)

DEFAULT_WIDTH = 80
THOUSAND = 1000
MAX_SHARE = 100
"""Percent. One tiny request can cost many times what it would have; the share says nothing then."""
NOTHING_SAVED = "nothing saved today"
SETTINGS = """\
Claude Code, in ~/.claude/settings.json:

  "statusLine": {"type": "command", "command": "%s"}

tmux, in ~/.tmux.conf:

  set -g status-interval 5
  set -g status-right-length 80
  set -g status-right '#(%s </dev/null)'
"""


def print_status_line(options: Options) -> None:
    """Prints one line, whatever is or is not there; or the settings to paste."""
    print_text(settings_text(options) if options.shows_settings else status_line(options))


def settings_text(options: Options) -> str:
    """What to paste into the settings of Claude Code and of tmux."""
    command = options.command(NAME)
    return SETTINGS % (json.dumps(command)[1:-1], command.replace("'", "'\\''"))


def status_line(options: Options) -> str:
    """The line for the session that stdin names."""
    told = told_by_client()
    try:
        server = server_of_client(options.data_directory)
        if server is None:
            return "callstack: not in use here"  # no proxy runs, or the client asks another address
        answer = ask(server, as_text(told.get("session_id")))
    except TimeoutError:
        return "callstack: the proxy is busy"
    except (OSError, ValueError):
        return "callstack: no proxy answers"
    return cut_to_width(line_text(answer, is_subscription=isinstance(told.get("rate_limits"), dict)), _width())


def line_text(answer: dict[str, object], *, is_subscription: bool) -> str:
    """What the proxy told, as one line: the context, what is saved today, the working frame. A subscription is not paid
    by the token, so there the share of what its plan was asked for is told instead of the money, and likewise where
    plans paid for all of today; where plans paid for a part of it, both are told."""
    sent, came = as_number(answer.get("tokens_sent")), as_number(answer.get("tokens_in"))
    parts = []
    if came:
        of_all = f" of {tokens_text(came)}" if sent != came else ""
        parts.append(f"{tokens_text(sent)}{of_all} tokens")
    saved, untouched = as_number(answer.get("saved")), as_number(answer.get("untouched"))
    plan_saved, plan_untouched = as_number(answer.get("plan_saved")), as_number(answer.get("plan_untouched"))
    if is_subscription or (plan_untouched and not untouched):
        parts.append(saved_of_plan(plan_saved, plan_untouched))
    else:
        parts.append(saved_money(saved, untouched))
        if plan_untouched and (share := min(_percent(plan_saved, plan_untouched), MAX_SHARE)):
            parts.append(f"{_word(plan_saved)} {share} % of the plan")
    if frame := printable(as_text(answer.get("frame"))):
        parts.append(frame)
    return f"callstack {' · '.join(parts)}"


def saved_of_plan(saved: float, untouched: float) -> str:
    share = min(_percent(saved, untouched), MAX_SHARE)
    return f"{_word(saved)} {share} % of today's use" if share else NOTHING_SAVED


def saved_money(saved: float, untouched: float) -> str:
    share = _percent(saved, untouched)
    amount = f"{abs(saved):.2f}" if abs(saved) >= 0.01 else f"{abs(saved):.4f}"
    if not float(amount):
        return NOTHING_SAVED
    return f"{_word(saved)} ${amount} today" + (f" ({share} %)" if 0 < share <= MAX_SHARE else "")


def _percent(saved: float, untouched: float) -> int:
    return round(100 * abs(saved) / untouched) if untouched > 0 else 0


def _word(saved: float) -> str:
    return "lost" if saved < 0 else "saved"


def tokens_text(number: float) -> str:
    if number < THOUSAND:
        return f"{number:.0f}"
    return f"{number / THOUSAND:.0f}k" if number < THOUSAND**2 else f"{number / THOUSAND**2:.1f}M"


def printable(text: str) -> str:
    """The text without what moves a cursor, colours or reverses: a model wrote it."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def cut_to_width(text: str, width: int) -> str:
    """The text within so many cells, with an ellipsis where it is cut."""
    cells = 0
    for at, each in enumerate(text):
        cells += 2 if each > "\x7f" and east_asian_width(each) in "WF" else 1
        if cells > width:
            kept = text[:at]
            while kept and _cells(kept) > width - 1:
                kept = kept[:-1]
            return f"{kept.rstrip()}…"
    return text


def _cells(text: str) -> int:
    return sum(2 if each > "\x7f" and east_asian_width(each) in "WF" else 1 for each in text)


def _width() -> int:
    told = os.environ.get("COLUMNS", "")
    return int(told) if told.isdigit() and int(told) > 0 else DEFAULT_WIDTH
