"""The command `resume`: where the work of a conversation stands, on one screen."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, opened, run
from proxy.cli.inspect import AsOf, Conversation, time_of
from proxy.cli.output import one_line, say, say_json
from proxy.config.model import Config
from proxy.core.frames.frames import Status
from proxy.core.tools.inspect import TREE_ICONS
from proxy.management.views import conversations, lookup
from proxy.management.views.past import ledger_at
from proxy.management.views.resume import Resume
from proxy.management.views.resume import resume as stands
from proxy.management.views.totals import moment


def resume(
    conversation: Conversation = "",
    as_of: AsOf = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Where the work stands: the way from the goal, what was done last, what not to try again, and what is next."""
    told = run(_resume(at(config, data), conversation, time_of(as_of)))
    if as_json:
        say_json(told)
        return
    for line in resume_text(told):
        say(line)


async def _resume(config: Config, reference: str, moment_ms: int | None) -> Resume:
    async with opened(config) as store:
        ledger = ledger_at(await lookup.ledger_named(store, None, reference), moment_ms)
        return stands(ledger, conversations.story_of(ledger))


def resume_text(told: Resume) -> Iterator[str]:
    """The way down first, what comes next last; sections without content are left out."""
    yield f"{told['conversation']}  last active {moment(told['last_active'])}"
    for depth, frame in enumerate(told["path"]):
        yield f"{'  ' * depth}{_icon(frame['status'])} {one_line(frame['title'])} [{frame['frame']}]"
        if frame["criteria"]:
            yield f"{'  ' * depth}    done when: {one_line(frame['criteria'])}"
    yield from _section(
        "Finished", (f"{_icon(f['status'])} {f['title']}: {f['results'] or 'no result'}" for f in told["finished"])
    )
    yield from _section("Done last", told["actions"])
    yield from _section(
        "Not to be tried again as it is",
        (f"{' | '.join(b['calls'])} ({b['times']} times)" for b in told["blocked_actions"]),
    )
    yield from _section("Said last", [told["said"]] if told["said"] else [])
    yield ""
    planned = f" ({told['planned']} planned)" if told["planned"] else ""
    yield f"Next: {one_line(told['next']['action'])}{planned}"


def _icon(status: str) -> str:
    return TREE_ICONS[Status(status)]


def _section(title: str, lines: Iterator[str] | list[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if not number:
            yield ""
            yield f"{title}:"
        yield f"  {one_line(line)}"
