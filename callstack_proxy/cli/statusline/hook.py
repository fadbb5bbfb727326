"""The hooks of Claude Code and Codex: run when a session starts, before it is compacted, and when a turn ends.

Both write a JSON object to stdin, of which `hook_event_name` and `session_id` are read, and show their user the
`systemMessage` of the object that is answered (https://code.claude.com/docs/en/hooks, "JSON output";
https://developers.openai.com/codex/hooks). The model sees none of it. A hook must never stand in an agent's way: every
outcome is exit code 0, and where there is nothing to say, silence.
"""

from __future__ import annotations

import json
import socket

from callstack_proxy.cli.statusline.ask_proxy import (
    TIMEOUT_S,
    Options,
    as_number,
    as_text,
    ask,
    client_base,
    print_text,
    server_of_client,
    servers,
    told_by_client,
)
from callstack_proxy.cli.statusline.line import NOTHING_SAVED, saved_money, saved_of_plan, tokens_text

NAME = "hook"
EVENTS = ("SessionStart", "PreCompact", "Stop")
FOLDED_ENOUGH = 0.7
"""Of what the client sent; where more than that is sent, its context may really be full."""
SETTINGS = """\
Claude Code, in ~/.claude/settings.json, and Codex, in ~/.codex/hooks.json:

  "hooks": {
%s
  }
"""


def print_hook_answer(options: Options) -> None:
    """Prints a JSON object for the client, or nothing; or the settings to paste."""
    if options.shows_settings:
        print_text(settings_text(options))
    elif words := hook_words(told_by_client(), options.data_directory):
        print_text(json.dumps({"systemMessage": f"callstack: {words}"}))


def settings_text(options: Options) -> str:
    """What to paste into the settings of Claude Code and of Codex, which have the same form."""
    runs = json.dumps([{"hooks": [{"type": "command", "command": options.command(NAME)}]}])
    return SETTINGS % ",\n".join(f'    "{event}": {runs}' for event in EVENTS)


def hook_words(told: dict[str, object], data: str) -> str:
    """What the user is to read at this event; empty for nothing."""
    event = as_text(told.get("hook_event_name"))
    if event == "SessionStart":
        return _start_words(data)
    if event not in EVENTS:
        return ""
    return answer_words(event, _answer_for(as_text(told.get("session_id")), data))


def answer_words(event: str, answer: dict[str, object]) -> str:
    """The same of a session that began before, by what the proxy tells of it."""
    return _compaction_words(answer) if event == "PreCompact" else _stop_words(answer)


def _start_words(data: str) -> str:
    """Empty where a proxy answers."""
    base = client_base()
    server = server_of_client(data)
    found = servers(data) if not base else [server] if server else []
    for each in found:
        try:
            ask(each, "")
        except TimeoutError:
            return ""  # busy: the first question after its start takes longer
        except (OSError, ValueError):
            continue
        return ""
    if not base:
        return (
            "no proxy runs here. Start the agent with `callstack wrap`, or `callstack serve` if it is set to ask that."
        )
    host, _, port = base.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S).close()
    except ConnectionRefusedError:
        return f"nothing answers at {base}, where this agent asks its model. Run `callstack serve`, or `callstack off`."
    except (OSError, ValueError):
        return ""
    return ""  # a proxy of another machine, or of somebody else


def _answer_for(session: str, data: str) -> dict[str, object]:
    """What the proxy says that knows this session; empty where none does."""
    found = [server_of_client(data)] if client_base() else servers(data)
    for server in found:
        try:
            answer = ask(server, session) if server and session else {}
        except (OSError, ValueError):
            continue
        if as_number(answer.get("tokens_in")):
            return answer
    return {}


def _compaction_words(answer: dict[str, object]) -> str:
    sent, came = as_number(answer.get("tokens_sent")), as_number(answer.get("tokens_in"))
    if not came:
        return ""
    keeps = "all of this session is kept, and the model can recall what a summary leaves out"
    if sent > FOLDED_ENOUGH * came:
        return f"{keeps}."
    return f"only {tokens_text(sent)} of {tokens_text(came)} tokens are sent, so nothing has to be compacted; {keeps}."


def _stop_words(answer: dict[str, object]) -> str:
    saved, untouched = as_number(answer.get("session_saved")), as_number(answer.get("session_untouched"))
    of_plan = as_number(answer.get("session_plan_untouched"))
    if of_plan and not untouched:
        words = saved_of_plan(as_number(answer.get("session_plan_saved")), of_plan)
    else:
        words = saved_money(saved, untouched)
    return "" if words == NOTHING_SAVED else f"this session {words}"
