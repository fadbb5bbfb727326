"""How often each heuristic of autonomy gives points in recorded conversations, and what would come of it.

    python docs/heuristics.py FILE...                           recordings, or folders; what `callstack replay` reads
    python docs/heuristics.py FOLDER --write docs/autonomy.md   put the tables between the two marks of that page
    python docs/heuristics.py FILE --details                    each suggestion with its words

A recording goes through the product offline, as `callstack replay` plays it. The proxy acts from the first request.
At every request each heuristic scores the active frame. Suggestions are made at the configured thresholds but only
listed, because the recorded answers did not see them. Then the recording is played again at level `auto`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace
from printing import Script, ledgers_after  # beside this file, which is run as a script

from callstack_proxy.management.find_by_id import newest_path_state
from callstack_proxy.replay.recording import Recording
from callstack_proxy.replay.services import build_replay
from proxy.config.model import Config
from proxy.core.frames.suggestion_log import POP, PUSH, Suggestion
from proxy.core.ledger.ledger import Ledger
from proxy.core.policy.autonomy_rules import AutonomyRules
from proxy.core.policy.heuristics import COMBINERS, HEURISTICS, judge
from proxy.core.policy.signals import FrameActivity, read_activity, signals_of
from proxy.exchange.thread.context_policy import ContextPolicy
from proxy.exchange.thread.placement import Placement

LISTED = {"wake_at_tokens": "0", "autonomy": "suggest", "suggest_in_context": "false"}
STEPS = (1, 40, 70, 80)
"""Points at which requests are counted: any, the middle, and both thresholds."""
FEW = 3
"""Suggestions in one session that a person might accept."""


@dataclass(frozen=True)
class Scored:
    """The outcome of one recording. `points` are the scores at each request, by heuristic; `reached` counts requests at
    which a combiner reached the threshold of a kind; `opened` are frames of level `auto`."""

    name: str
    requests: int
    points: dict[str, list[int]]
    reached: Counter[tuple[str, str]]
    suggestions: tuple[Suggestion, ...]
    opened: int
    ended: int


@dataclass
class Looking:
    """A note that writes nothing: it records the scores at each request of an awake thread."""

    actor: ContextPolicy
    rules: AutonomyRules
    points: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in HEURISTICS})
    reached: Counter[tuple[str, str]] = field(default_factory=Counter)
    readings: dict[tuple[str, str, str], FrameActivity] = field(default_factory=dict)

    def __call__(self, placement: Placement) -> Placement:
        at = (placement.conversation, placement.thread, placement.path_state.tree.active_frame.owner)
        reading = self.readings[at] = read_activity(
            placement.path_state, self.actor.inference_rules.tool_roles, self.readings.get(at)
        )
        window = self.actor.window_of(placement.request.model, placement.conversation).known_tokens
        seen = signals_of(reading, placement.path_state.tree.active_frame, window)
        for kind in (PUSH, POP):
            for combine in COMBINERS:
                verdict = judge(kind, seen, replace(self.rules, combine=combine))
                self.reached[combine, kind] += verdict.is_reached
            for name, score in verdict.scores.items():
                self.points[name].append(score.points)
        return placement


async def scored(recording: Recording, config: Config) -> Scored:
    """Play a recording to its end, at the configured level and at level `auto`."""
    looking, ledgers = await played(recording, config)
    return await scored_in(recording, config, looking, ledgers)


async def scored_in(recording: Recording, config: Config, looking: Looking, ledgers: Sequence[Ledger]) -> Scored:
    """The outcome of a recording that was played at the configured level; here it is played at level `auto`."""
    _, by_itself = await played(recording, config.model_copy(update={"autonomy": "auto"}))
    advices = [newest_path_state(ledger).tree.suggestion_state for ledger in ledgers]
    tallies = [newest_path_state(ledger).tree.suggestion_state.counts for ledger in by_itself]
    return Scored(
        recording.name,
        len(recording.steps),
        looking.points,
        looking.reached,
        tuple(each for advice in advices for each in advice.history),
        sum(tally.auto_pushes for tally in tallies),
        sum(tally.auto_pops for tally in tallies),
    )


async def played(recording: Recording, config: Config) -> tuple[Looking, list[Ledger]]:
    """What was seen at each request while the recording was played to its end, and what it left in the store."""
    replay = build_replay(config)
    resolver = replay.services.resolver
    looking = Looking(resolver.policy, config.autonomy_rules)
    looked_at = dataclasses.replace(resolver, notes=(*resolver.notes, looking))
    services = dataclasses.replace(replay.services, resolver=looked_at)
    return looking, await ledgers_after(recording, replay, services)


# --------------------------------------------------------------------------------------------------------- the tables
def table(done: Sequence[Scored]) -> Iterator[str]:
    """The tables: points by heuristic, thresholds reached by combiner, and suggestions made."""
    looked = sum(len(one.points["duration"]) for one in done)
    yield f"{len(done)} recordings, {looked:,} requests of awake threads."
    yield ""
    yield (
        "| heuristic | for a | "
        + " | ".join("any points" if n == 1 else f"{n} or more" for n in STEPS)
        + " | highest |"
    )
    yield "|---|---|" + "---:|" * (len(STEPS) + 1)
    for name, each in HEURISTICS.items():
        points = [value for one in done for value in one.points[name]]
        counts = " | ".join(_share(sum(value >= n for value in points), looked) for n in STEPS)
        yield f"| `{name}` | {each.kind} | {counts} | {max(points, default=0)} |"
    yield ""
    yield "| combined by | requests that reach the push threshold | the pop threshold |"
    yield "|---|---:|---:|"
    for combine in COMBINERS:
        reached = (_share(sum(one.reached[combine, kind] for one in done), looked) for kind in (PUSH, POP))
        yield f"| `{combine}` | {' | '.join(reached)} |"
    yield ""
    yield from _decided(done)


def _share(number: int, of: int) -> str:
    return f"{number:,} ({number / of:.1%})" if number and of else "0"


def _decided(done: Sequence[Scored]) -> Iterator[str]:
    counts = [len(one.suggestions) for one in done]
    yield "| what would be done, each in its own replay | in all | recordings with any | most in one |"
    yield "|---|---:|---:|---:|"
    for what, each in (
        ("suggestions of a push or a pop (`suggest`)", counts),
        ("frames opened (`auto`)", [one.opened for one in done]),
        ("frames ended (`auto`)", [one.ended for one in done]),
    ):
        yield f"| {what} | {sum(each)} | {sum(map(bool, each))} | {max(each, default=0)} |"
    yield ""
    reasons = Counter(each.heuristic for one in done for each in one.suggestions)
    told = ", ".join(f"`{name}` {number}" for name, number in reasons.most_common()) or "none"
    yield f"Suggestions by reason: {told}. Sessions with more than {FEW}: {sum(count > FEW for count in counts)}."


def details(done: Iterable[Scored]) -> Iterator[str]:
    """Each suggestion as the model would read it."""
    for one in done:
        for each in one.suggestions:
            yield f"{one.name}: {each.text}"


SCRIPT = Script(
    "docs/heuristics.py",
    "How often each heuristic of autonomy speaks up in recorded conversations, and what would come of it.",
    scored,
    table,
    details,
    "each suggestion with its words",
    LISTED,
)

if __name__ == "__main__":
    sys.exit(SCRIPT.run(sys.argv[1:]))
