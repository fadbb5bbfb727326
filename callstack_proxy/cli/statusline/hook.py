"""The hooks of Claude Code and Codex: run when a session starts, is compacted, or ends a turn.

Both write a JSON object to stdin, of which `hook_event_name`, `source` and `session_id` are read, and show their user
the `systemMessage` of the object that is answered (https://code.claude.com/docs/en/hooks, "JSON output";
https://developers.openai.com/codex/hooks). The model sees none of it. What a hook prints before a compaction, Claude
Code 2.1.330 does hand to the model, as an instruction for its summary: so a compaction is told of behind it, when both
clients start the session anew. A hook must never stand in an agent's way: every outcome is exit code 0, and where there
is nothing to say, silence.
"""

from __future__ import annotations

import json
import socket

from callstack_proxy.cli.statusline.ask_proxy import (
    TIMEOUT_S,
    NotProven,
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
EVENTS = ("SessionStart", "Stop")
COMPACTED = "compact"
"""The source of a session that starts anew with a summary."""
OTHER_PROGRAM = (
    "what answers at {}, where this agent sends its key, did not prove that it is your proxy. If you did not start it, "
    "leave the agent, and run `callstack serve` before you start it again."
)
LEAST_USD = 0.01
"""Less is not worth a line at the end of each turn."""
FOLDED_ENOUGH = 0.7
"""Of what the client sent; where more than that is sent, its context may really be full."""
SETTINGS = """\
Claude Code, into ~/.claude/settings.json; Codex, into ~/.codex/hooks.json, which it asks you once to trust (/hooks):

{
  "hooks": {
%s
  }
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


def hook_words(given: dict[str, object], data: str) -> str:
    """What the user is to read at this event; empty for nothing."""
    event, is_compacted = as_text(given.get("hook_event_name")), given.get("source") == COMPACTED
    if event not in EVENTS:
        return ""
    if event == "SessionStart" and not is_compacted:
        return _start_words(data)
    answer = _answer_for(as_text(given.get("session_id")), data)
    return compaction_words(answer) if is_compacted else stop_words(answer)


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
        except NotProven:
            if base:
                return OTHER_PROGRAM.format(base)
            continue
        except (OSError, ValueError):
            continue
        return ""
    if not base:
        return "no proxy runs here. Start the agent with `callstack wrap`, or run `callstack serve` first."
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


def compaction_words(answer: dict[str, object]) -> str:
    """By what the proxy tells of the session; empty where it does not know it."""
    sent, received = as_number(answer.get("tokens_sent")), as_number(answer.get("tokens_in"))
    if not received:
        return ""
    words = "what the compaction left out is kept, and the model can recall it."
    if sent > FOLDED_ENOUGH * received:
        return words
    return f"{words} It was not needed: of {tokens_text(received)} tokens only {tokens_text(sent)} were sent."


def stop_words(answer: dict[str, object]) -> str:
    """By what the proxy tells of the session; empty where it saved and lost hardly anything."""
    saved, untouched = as_number(answer.get("session_saved")), as_number(answer.get("session_untouched"))
    of_plan = as_number(answer.get("session_plan_untouched"))
    if of_plan and not untouched:
        words = saved_of_plan(as_number(answer.get("session_plan_saved")), of_plan)
    else:
        words = saved_money(saved, untouched) if abs(saved) >= LEAST_USD else NOTHING_SAVED
    return "" if words == NOTHING_SAVED else f"this session {words}"
