"""The table of commands: which module holds which, and the help text of the overview.

A command's module is imported only when the command runs, because `serve` needs a web framework and `tree` a database,
and `--help` needs neither. So the texts of the overview are kept here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

COMMANDS = {
    "serve": ("serve", "Run the proxy."),
    "wrap": ("wrap", "Start a coding agent through the proxy: claude, codex, opencode or any other command."),
    "demo": ("programs", "Play a scripted agent session and show what it saves; needs no key and no network."),
    "savings": ("savings", "What the proxy would have saved in the sessions your agents have already written."),
    "replay": ("replay", "Play recorded conversations: what would it have saved, what would have been lost?"),
    "tree": ("inspect", "The frames of a conversation; without an argument the newest conversations."),
    "resume": ("inspect", "Where the work stands: the goal, what was done last, what is next."),
    "explain": ("inspect", "Why each frame stands in the block of the active one, or does not."),
    "log": ("inspect", "Everything a frame did, also what is no longer sent."),
    "search": ("inspect", "Finished frames with certain words, in all conversations."),
    "report": ("report", "Tokens and money: with the proxy and without."),
    "regrets": ("report", "What had to be read again because it had left, by tool and rule."),
    "tariffs": ("report", "Prices, windows and traits: the row each model gets."),
    "diff": ("inspect", "A client's request against what was sent for it."),
    "export": ("export", "A conversation as files: a backup, logs, a hand-over, a flame graph, spans."),
    "import": ("export", "Take in a conversation that was exported, or the state files of others."),
    "unfold": ("frames", "Bring back a frame that was folded wrongly."),
    "map": ("inspect", "What the files that were seen define, by who refers to it."),
    "loops": ("autonomy", "Loops that the model was warned of; --clear counts anew."),
    "autonomy": ("autonomy", "How much the proxy decides about frames, and why; changes it for one conversation."),
    "checkpoint": ("branches", "Name a point of a conversation."),
    "branch": ("branches", "Begin a new line of work at a checkpoint."),
    "switch": ("branches", "Go on with another branch."),
    "inject": ("branches", "Copy from one branch to another."),
    "push": ("frames", "Begin a frame by hand."),
    "plan": ("frames", "Plan frames by hand."),
    "activate": ("frames", "Begin a planned frame, resume a blocked one, try a failed one again."),
    "pop": ("frames", "End the active frame, or one above it."),
    "invalidate": ("frames", "Give up a frame and what is planned below it."),
    "rename": ("frames", "Other words for a planned frame."),
    "say": ("messages", "Say something to a running agent; --list shows what waits, --clear takes it back."),
    "cancel": ("messages", "Stop what is under way in a conversation; --tree stops its frames too."),
    "mode": ("frames", "Turn the proxy down or away for one conversation."),
    "forget": ("frames", "Really delete conversations."),
    "config": ("settings", "How subagents are tracked; sets it while the proxy runs."),
    "key": ("settings", "The client keys this proxy issues: add, list, revoke."),
    "doctor": ("doctor", "Check port, upstream, store, tokenizer and configuration."),
    "provider": ("programs", "Serve a scripted model, to try and to test against."),
}
"""Command -> its module, which has a function or group of that name, and one line of help; in the order of the help."""


class LazyCommands(TyperGroup):
    """The commands of the table, each imported when it is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"proxy.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name}_", None) or getattr(module, cmd_name)
        if not isinstance(command, typer.Typer):
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(cmd_name)(command)
            command = app
        return get_command(command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The overview, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])
