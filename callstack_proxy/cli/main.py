"""The program `callstack`: the table of its commands, where each stands in the overview, and its line of help there. An
error of ours becomes one message and an exit code: 2 for a request that is wrong, 1 for one that failed.

A command is an entry point, ours or another package's. Its module is imported only when the command runs, because
`serve` needs a web framework and `tree` a database, and `--help` needs neither. So the texts of the overview are kept
here.
"""

from __future__ import annotations

import gc
import io
import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from callstack_proxy import entry_points
from callstack_proxy.cli.output import print_error, print_note
from callstack_proxy.management.loggers import LOGGERS
from proxy import __version__
from proxy.errors import BadRequest, InvalidConfiguration, NotFound, ProxyError


@dataclass(frozen=True, slots=True)
class Command:
    """`help` is one line of the overview, `example` stands below the command's own help, without `callstack`."""

    help: str
    example: str


COMMANDS = {
    "serve": Command("Run the proxy.", "serve --upstream https://api.example.com --port 8787"),
    "console": Command("A web page: the call stack live, every request, and the money.", "console --data ./data"),
    "wrap": Command(
        "Start an agent through the proxy: claude, codex, opencode, ...", 'wrap codex exec "fix the tests"'
    ),
    "on": Command("Let agents always ask the proxy, also without wrap.", "on claude codex"),
    "off": Command("Undo `on`: the settings of agents as they were.", "off"),
    "demo": Command("Play a scripted session; needs no key and no network.", "demo --all"),
    "savings": Command("What it would have saved in the sessions of your agents.", "savings --since 30d --details"),
    "replay": Command(
        "Play recordings: what is saved, what would be missed?", "replay session.jsonl --set mode=passive"
    ),
    "top": Command("Conversations and their frames, live on the terminal.", "top --interval 2"),
    "tree": Command("The frames of a conversation; alone: the newest conversations.", "tree 4c2300 --details"),
    "resume": Command("Where the work stands: the goal, what was done last, what is next.", "inspect resume 4c2300"),
    "explain": Command("Why each frame stands in the block of the active one, or does not.", "inspect explain"),
    "log": Command("Everything a frame did, also what is no longer sent.", "log fx4k2 --raw"),
    "search": Command("Finished frames with certain words, in all conversations.", "search login token"),
    "report": Command("Tokens and money: with us and without us.", "report --by request --conversation 4c2300"),
    "regrets": Command("What had to be read again because it had left, by tool and rule.", "inspect regrets"),
    "tariffs": Command("Prices, windows and traits: the row each model gets.", "inspect tariffs gpt-5.4"),
    "diff": Command("A client's request against what was sent for it.", "diff r49a6f2d"),
    "export": Command(
        "A conversation as files: backup, logs, hand-over, flame graph.", "export 4c2300 --format handover"
    ),
    "import": Command("Take in a conversation that was exported.", "import conversation.jsonl"),
    "migrate": Command(
        "Copy a whole store to another place: a file, a PostgreSQL server.",
        "migrate --to postgresql://callstack@localhost/callstack",
    ),
    "unfold": Command("Bring back a frame that was folded wrongly.", "frame unfold fx4k2 --now"),
    "map": Command("What the files that were seen define, by who refers to it.", "inspect map"),
    "loops": Command("Loops that the model was warned of; --clear counts anew.", "inspect loops --clear"),
    "autonomy": Command(
        "How much the proxy decides about frames, and why; changes it for one conversation.",
        "frame autonomy 4c2300 --level suggest",
    ),
    "checkpoint": Command("Name a point of a conversation.", "branch checkpoint before-the-rewrite"),
    "branch": Command("Begin a new line of work at a checkpoint.", "branch start before-the-rewrite"),
    "switch": Command("Go on with another branch.", "branch switch main"),
    "inject": Command("Copy from one branch to another.", "branch inject main --frame fx4k2"),
    "push": Command("Begin a frame by hand.", 'frame push "Find the cause" --criteria "a failing test"'),
    "plan": Command("Plan frames by hand.", 'frame plan "Write the tests" "Write the docs"'),
    "activate": Command("Begin a planned frame, resume a blocked one, try a failed one again.", "frame activate fx4k2"),
    "pop": Command("End the active frame, or one above it.", 'frame pop --results "The cause is in totals.py"'),
    "invalidate": Command(
        "Give up a frame and what is planned below it.", 'frame invalidate fx4k2 --reason "not needed"'
    ),
    "rename": Command("Other words for a planned frame.", 'frame rename fx4k2 --title "Find the leak"'),
    "say": Command("Say something to a running agent; --list shows what waits.", 'say 4c2300 "use tabs"'),
    "cancel": Command("Stop what is under way; --tree stops its frames too.", "cancel 4c2300 --tree"),
    "mode": Command("Turn the proxy down or away for one conversation.", "frame mode 4c2300 off"),
    "forget": Command("Really delete conversations.", "forget 4c2300"),
    "config": Command(
        "How subagents are tracked; sets it while the proxy runs.", "config --set subagent.min_duration=5000"
    ),
    "key": Command("The client keys this proxy issues: add, list, revoke.", "key add laptop"),
    "user": Command(
        "Limits of the users whom a proxy in front names: limit, list, usage.", "user limit ana@example.org --usd 50"
    ),
    "doctor": Command(
        "Check port, upstream, store, tokenizer and configuration.", "doctor --upstream https://api.example.com"
    ),
    "statusline": Command("One line for Claude Code's status line, or tmux.", "statusline --settings"),
    "hook": Command("Answers the hooks of Claude Code and Codex.", "hook --settings"),
    "mcp": Command("Tools for agents: search, recall and tree of a project, over MCP.", "mcp --project ~/shop"),
    "provider": Command("Serve a scripted model, to try things against.", "provider scenario.yaml --port 9000"),
}
"""Our commands. What each runs is its entry point `callstack.commands` in pyproject.toml: a function or a group."""

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


def _others() -> list[str]:
    """The commands of other packages."""
    return [name for name in entry_points.entry_points("callstack.commands") if name not in COMMANDS]


def _nearest(typed: str, names: Iterable[str]) -> list[str]:
    """The one name that begins so, else the one that is most alike, of several one with the same two first letters;
    empty without any."""
    known = list(names)
    begun = [name for name in known if typed and name.startswith(typed)]
    if len(begun) == 1:
        return begun
    alike = get_close_matches(typed, begun or known)
    return sorted(alike, key=lambda name: name[:2] != typed[:2])[:1]  # "clod" is rather claude than codex


class LazyCommands(TyperGroup):
    """The commands of the table, each imported when it is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*(name for names in OVERVIEW.values() for name in names), *_others()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in GROUPS:
            return GroupedCommands(cmd_name)
        if cmd_name not in COMMANDS and cmd_name not in _others():
            return None
        if cmd_name in GROUP_OF and sys.stderr.isatty():
            print_note(f"`callstack {cmd_name}` is now `callstack {GROUP_OF[cmd_name]}`; the short name stays valid")
        return _load(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in {*COMMANDS, *GROUPS} and not args[0].startswith("-") and args[0] not in _others():
            agents = entry_points.entry_points("callstack.agents")
            words = GROUP_OF | {name: f"wrap {name}" for name in agents}
            near = _nearest(args[0], [*COMMANDS, *GROUPS, *_others(), *agents])
            _fail_unknown(ctx, args[0], [words.get(name, name) for name in near])
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """One screen, from the tables alone; commands of other packages stand below it by their names."""
        formatter.write("Usage: callstack COMMAND [ARGUMENTS]       callstack COMMAND --help explains one\n")
        for heading, names in OVERVIEW.items():
            for at, name in enumerate(names):
                text = GROUPS[name][0] if name in GROUPS else COMMANDS[name].help
                formatter.write(f"{'' if at else heading:{HEADING_WIDTH}}{name:{NAME_WIDTH}}{text}\n")
        if others := _others():
            formatter.write(f"{'others':{HEADING_WIDTH}}{' '.join(others)}\n")


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
            _fail_unknown(ctx, args[0], near)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        if self._own and ctx.invoked_subcommand == self._own:
            own = _load(self._own)
            with own.make_context(self._own, ctx.args, parent=ctx.parent) as inner:
                return own.invoke(inner)
        return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[command].help) for name, command in self._inside.items()])


def _load(name: str) -> Any:
    """The command, imported now. Raises InvalidConfiguration where another package's cannot be used."""
    entry_point = entry_points.entry_points("callstack.commands")[name]
    gc.disable()  # modules are no garbage, and to look for some among them took a tenth of a command's CPU
    try:
        loaded = entry_points.load(entry_point, partial(_click_command, name))
    finally:
        gc.freeze()  # later collections need not walk through them
        gc.enable()
    if name in COMMANDS:
        loaded.epilog = f"Example: callstack {COMMANDS[name].example}"
    return loaded


def _click_command(name: str, command: object) -> Any:
    """Of a function with Typer's annotations, or of a whole Typer."""
    if not isinstance(command, typer.Typer):
        if not callable(command):
            raise TypeError("it is no function")
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name)(command)
        command = app
    return get_command(command)


def _fail_unknown(ctx: Any, name: str, near: list[str]) -> None:
    """Ends with a usage error that names the nearest command, if one is near. Which there are is said above it."""
    nearest = f"; the nearest is `callstack {near[0]}`" if near else ""
    ctx.fail(f"there is no command {name!r}{nearest}")


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


class _Notes(logging.Handler):
    """Prints warnings as notes, except where the command has a log of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            print_note(record.getMessage())


def run_program() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A locale that cannot say "→" must not end a command.
            stream.reconfigure(errors="backslashreplace")
    # Commands print their own messages. Without a handler, `logging` would print bare warnings of the packages that
    # they use, such as "store write failed".
    for logger in LOGGERS:
        logger.addHandler(logging.NullHandler())
    entry_points.logger.addHandler(_Notes())
    try:
        app()
    except (BadRequest, InvalidConfiguration, NotFound) as error:
        print_error(str(error))
        sys.exit(2)
    except ProxyError as error:
        print_error(f"{error} ({error.code})")
        sys.exit(1)
