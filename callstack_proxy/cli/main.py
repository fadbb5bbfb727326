"""The program `callstack`, and the table of its commands: which module holds which, where it stands in the overview,
and its line of help there. An error of ours becomes one message and an exit code: 2 for a request that is wrong, 1 for
one that failed.

A command's module is imported only when the command runs, because `serve` needs a web framework and `tree` a database,
and `--help` needs neither. So the texts of the overview are kept here.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from callstack_proxy.cli.output import print_error, print_note
from callstack_proxy.loggers import LOGGERS
from proxy import __version__
from proxy.errors import BadRequest, InvalidConfiguration, NotFound, ProxyError

COMMANDS = {
    "serve": ("serve", "Run the proxy."),
    "console": ("serve", "A web page: the call stack live, every request, and the money."),
    "wrap": ("wrap", "Start an agent through the proxy: claude, codex, opencode, ..."),
    "on": ("wrap.on_off", "Let agents always ask the proxy, also without wrap."),
    "off": ("wrap.on_off", "Undo `on`: the settings of agents as they were."),
    "demo": ("programs", "Play a scripted session; needs no key and no network."),
    "savings": ("savings", "What it would have saved in the sessions of your agents."),
    "replay": ("replay", "Play recordings: what is saved, what would be missed?"),
    "top": ("top", "Conversations and their frames, live on the terminal."),
    "tree": ("inspect", "The frames of a conversation; alone: the newest conversations."),
    "resume": ("inspect", "Where the work stands: the goal, what was done last, what is next."),
    "explain": ("inspect", "Why each frame stands in the block of the active one, or does not."),
    "log": ("inspect", "Everything a frame did, also what is no longer sent."),
    "search": ("inspect", "Finished frames with certain words, in all conversations."),
    "report": ("report", "Tokens and money: with the proxy and without."),
    "regrets": ("report", "What had to be read again because it had left, by tool and rule."),
    "tariffs": ("tariffs", "Prices, windows and traits: the row each model gets."),
    "diff": ("inspect", "A client's request against what was sent for it."),
    "export": ("export", "A conversation as files: backup, logs, hand-over, flame graph."),
    "import": ("export", "Take in a conversation that was exported."),
    "migrate": ("export", "Copy a whole store to another place: a file, a PostgreSQL server."),
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
    "say": ("messages", "Say something to a running agent; --list shows what waits."),
    "cancel": ("messages", "Stop what is under way; --tree stops its frames too."),
    "mode": ("frames", "Turn the proxy down or away for one conversation."),
    "forget": ("frames", "Really delete conversations."),
    "config": ("settings", "How subagents are tracked; sets it while the proxy runs."),
    "key": ("settings", "The client keys this proxy issues: add, list, revoke."),
    "user": ("settings", "Limits of the users whom a proxy in front names: limit, list, usage."),
    "doctor": ("doctor", "Check port, upstream, store, tokenizer and configuration."),
    "statusline": ("statusline.command", "One line for Claude Code's status line, or tmux."),
    "hook": ("statusline.command", "Answers the hooks of Claude Code and Codex."),
    "mcp": ("mcp.command", "Tools for agents: search, recall and tree of a project, over MCP."),
    "provider": ("programs", "Serve a scripted model, to try things against."),
}
"""Command -> its module, which has a function or group of that name, and one line of help."""

EXAMPLES = {
    "serve": "serve --upstream https://api.example.com --port 8787",
    "console": "console --data ./data",
    "top": "top --interval 2",
    "wrap": 'wrap codex exec "fix the tests"',
    "on": "on claude codex",
    "off": "off",
    "demo": "demo --all",
    "savings": "savings --since 30d --details",
    "replay": "replay session.jsonl --set mode=passive",
    "tree": "tree 4c2300 --details",
    "resume": "inspect resume 4c2300",
    "explain": "inspect explain",
    "log": "log fx4k2 --raw",
    "search": "search login token",
    "report": "report --by request --conversation 4c2300",
    "regrets": "inspect regrets",
    "tariffs": "inspect tariffs gpt-5.4",
    "diff": "diff r49a6f2d",
    "export": "export 4c2300 --format handover",
    "import": "import conversation.jsonl",
    "migrate": "migrate --to postgresql://callstack@localhost/callstack",
    "unfold": "frame unfold fx4k2 --now",
    "map": "inspect map",
    "loops": "inspect loops --clear",
    "autonomy": "frame autonomy 4c2300 --level suggest",
    "checkpoint": "branch checkpoint before-the-rewrite",
    "branch": "branch start before-the-rewrite",
    "switch": "branch switch main",
    "inject": "branch inject main --frame fx4k2",
    "push": 'frame push "Find the cause" --criteria "a failing test"',
    "plan": 'frame plan "Write the tests" "Write the docs"',
    "activate": "frame activate fx4k2",
    "pop": 'frame pop --results "The cause is in totals.py"',
    "invalidate": 'frame invalidate fx4k2 --reason "not needed"',
    "rename": 'frame rename fx4k2 --title "Find the leak"',
    "say": 'say 4c2300 "use tabs"',
    "cancel": "cancel 4c2300 --tree",
    "mode": "frame mode 4c2300 off",
    "forget": "forget 4c2300",
    "config": "config --set subagent.min_duration=5000",
    "key": "key add laptop",
    "user": "user limit ana@example.org --usd 50",
    "doctor": "doctor --upstream https://api.example.com",
    "statusline": "statusline --settings",
    "hook": "hook --settings",
    "mcp": "mcp --project ~/shop",
    "provider": "provider scenario.yaml --port 9000",
}
"""Command -> an example of it, shown below its help."""

OVERVIEW = {
    "run": ("savings", "wrap", "serve", "demo", "replay"),
    "look": ("console", "top", "tree", "report", "diff", "log", "search", "inspect"),
    "steer": ("frame", "branch", "say", "cancel"),
    "manage": ("config", "key", "doctor", "export", "import", "forget"),
}
"""What the first screen of help shows, in its order."""

UNLISTED = ("provider", "migrate", "user", "statusline", "hook", "mcp", "on", "off")
"""Commands that only docs name: for trying the proxy without a model, for teams, for other programs, and for good."""

_INSPECT = ("resume", "explain", "map", "loops", "regrets", "tariffs")
GROUPS = {
    "frame": (
        "Change the tree by hand: push, plan, activate, pop, unfold, ...",
        {
            name: name
            for name in ("push", "plan", "activate", "pop", "invalidate", "rename", "unfold", "mode", "autonomy")
        },
    ),
    "branch": (
        "Name a point of a conversation, start anew there, go back.",
        {"start": "branch", "checkpoint": "checkpoint", "switch": "switch", "inject": "inject"},
    ),
    "inspect": (
        "More to look at: resume, explain, map, loops, regrets, tariffs.",
        dict(zip(_INSPECT, _INSPECT, strict=True)),
    ),
}
"""Group -> its line of help, and its commands by their names in it. Their names of before stay valid alone."""
GROUP_OF = {command: f"{group} {name}" for group, (_, inside) in GROUPS.items() for name, command in inside.items()}
NAME_WIDTH, HEADING_WIDTH = 9, 8
"""Characters of the overview's columns."""


def _nearest(typed: str, names: Iterable[str]) -> list[str]:
    """The one name that begins so, else the one that is most alike; empty without any."""
    known = list(names)
    begun = [name for name in known if typed and name.startswith(typed)]
    return begun if len(begun) == 1 else get_close_matches(typed, begun or known, 1)


class LazyCommands(TyperGroup):
    """The commands of the table, each imported when it is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in OVERVIEW.values() for name in names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in GROUPS:
            return GroupedCommands(cmd_name)
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in GROUP_OF and sys.stderr.isatty():
            print_note(f"`callstack {cmd_name}` is now `callstack {GROUP_OF[cmd_name]}`; the short name stays valid")
        return _load(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and args[0] not in GROUPS and not args[0].startswith("-"):
            near = _nearest(args[0], [*COMMANDS, *GROUPS])
            _fail_unknown(ctx, args[0], [GROUP_OF.get(name, name) for name in near], "callstack")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """One screen, from the tables alone."""
        formatter.write("Usage: callstack COMMAND [ARGUMENTS]       callstack COMMAND --help explains one\n")
        for heading, names in OVERVIEW.items():
            for at, name in enumerate(names):
                text = GROUPS[name][0] if name in GROUPS else COMMANDS[name][1]
                formatter.write(f"{'' if at else heading:{HEADING_WIDTH}}{name:{NAME_WIDTH}}{text}\n")


class GroupedCommands(TyperGroup):
    """The commands of a group. What is none of them goes to the command of the group's own name, where there is one:
    `callstack branch NAME` means what it meant before there was a group."""

    def __init__(self, name: str) -> None:
        text, self._inside = GROUPS[name]
        example = next(iter(self._inside))
        super().__init__(
            name=name,
            help=text,
            epilog=f"Example: callstack {name} {example} --help",
            no_args_is_help=name not in COMMANDS,
            invoke_without_command=name in COMMANDS,
            rich_markup_mode=None,
        )
        self._own = name if name in COMMANDS else ""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._inside)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _load(self._inside[cmd_name]) if cmd_name in self._inside else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self._own and (not args or (args[0] not in self._inside and args[0] != "--help")):
            ctx.invoked_subcommand = self._own
            ctx.args = args
            return args
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self._inside and not args[0].startswith("-"):
            near = [f"{self.name} {name}" for name in _nearest(args[0], self._inside)]
            _fail_unknown(ctx, args[0], near, f"callstack {self.name}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        if self._own and ctx.invoked_subcommand == self._own:
            own = _load(self._own)
            with own.make_context(self._own, ctx.args, parent=ctx.parent) as inner:
                return own.invoke(inner)
        return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[command][1]) for name, command in self._inside.items()])


def _load(name: str) -> Any:
    """The command, imported now."""
    module = import_module(f"callstack_proxy.cli.{COMMANDS[name][0]}")
    command = getattr(module, f"{name}_", None) or getattr(module, name)
    if not isinstance(command, typer.Typer):
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name)(command)
        command = app
    loaded = get_command(command)
    loaded.epilog = f"Example: callstack {EXAMPLES[name]}"
    return loaded


def _fail_unknown(ctx: Any, name: str, near: list[str], where: str) -> None:
    """Ends with a usage error that names the nearest command, if one is near."""
    nearest = f"; the nearest is `callstack {near[0]}`" if near else ""
    ctx.fail(f"there is no command {name!r}{nearest}; `{where} --help` lists them")


app = typer.Typer(
    cls=LazyCommands,
    no_args_is_help=True,
    add_completion=True,  # `callstack --install-completion` for bash, zsh, fish and PowerShell
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 120},  # of help; a narrower terminal has narrower lines
    help="A proxy for the OpenAI and Anthropic APIs that keeps an agent's context as a call stack of task frames.",
)


def _show_version(value: bool) -> None:  # noqa: FBT001 - the library calls it with the flag's value
    if value:
        typer.echo(f"callstack {__version__}")
        raise typer.Exit


@app.callback()
def callstack(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Options before the command."""


def run_program() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A locale that cannot say "→" must not end a command.
            stream.reconfigure(errors="backslashreplace")
    # Commands print their own messages. Without a handler, `logging` would print bare warnings of the packages that
    # they use, such as "store write failed".
    for logger in LOGGERS:
        logger.addHandler(logging.NullHandler())
    try:
        app()
    except (BadRequest, InvalidConfiguration, NotFound) as error:
        print_error(str(error))
        sys.exit(2)
    except ProxyError as error:
        print_error(f"{error} ({error.code})")
        sys.exit(1)
