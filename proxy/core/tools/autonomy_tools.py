"""The tools of autonomy: how much the proxy decides, whether a push or a pop seems due, what was suggested (S1-126 to
S1-130).

The laws: **what the model leaves out is observed** (the original took nothing for everything it was not told, D2), and
**the model changes no more than the configuration lets it**: without a word there it only reads.

What this module does not do: it pushes and pops nothing; whoever asks decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from msgspec.structs import asdict, replace

from proxy.core.frames.events import AutonomySet, FrameEvent, SuggestionsCleared
from proxy.core.frames.suggestion_log import POP, PUSH, Chosen, Suggestion
from proxy.core.frames.tree import Frame
from proxy.core.observers.turns import keywords
from proxy.core.policy.autonomy_rules import NAMES, RULES, Autonomy, Level, clamped
from proxy.core.policy.scoring import Verdict, judged
from proxy.core.policy.signals import DEFAULT_LIMIT, Reading, read, signals
from proxy.core.policy.suggest import stats, topic, waiting
from proxy.core.text import cut_for_display, extract_keywords, format_duration
from proxy.core.tools.base import Desk, Mistake, Outcome, Tool, flag_of, text_of

HISTORY_SHOWN = 20  # S1-129
LONGEST_LIST = 1_000
MOST = 10**12
"""Of a figure that a model gives."""
ROOT_NOTE = "This is the root frame: popping it ends the whole tree, until the user speaks again."


# -------------------------------------------------------------------------------------------------------- how much
def autonomy(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Show the rules that are in force here; change what the configuration lets the model change (S1-126)."""
    before = _rules(desk)
    if flag_of(arguments, "reset"):
        _may(desk, *sorted(_parts(desk)))
        return _chosen(desk, Chosen(desk.now), "What was chosen here is taken back.")
    wanted = _wanted(desk, arguments, before)
    if not wanted:
        return Outcome("\n".join(_told_rules(before)))
    return _chosen(desk, replace(desk.tree.advice.chosen, at=desk.now, **wanted), "Set.")


def _chosen(desk: Desk, chosen: Chosen, said: str) -> Outcome:
    rules = desk.settings.autonomy.with_chosen(chosen)
    return Outcome("\n".join([said, *_told_rules(rules)]), (AutonomySet(chosen),))


def _parts(desk: Desk) -> set[str]:
    """The parts of the rules in which something was chosen for this conversation."""
    chosen = desk.tree.advice.chosen
    return {_PART_OF[name] for name in RULES if getattr(chosen, name) is not None}


_PART_OF = {
    "level": "level",
    "push_threshold": "thresholds",
    "pop_threshold": "thresholds",
    "combine": "thresholds",
    "suggest_in_context": "suggestions",
    "heuristics": "heuristics",
}
"""Under which word of `model_may_set` a rule is."""


def _wanted(desk: Desk, arguments: Mapping[str, Any], rules: Autonomy) -> dict[str, Any]:
    """What is to be changed, by the name of the rule."""
    found: dict[str, Any] = {}
    if level := text_of(arguments, "level"):
        if level not in get_args(Level):
            raise Mistake(f"Error: level {level[:40]!r} is none of {', '.join(get_args(Level))}.")
        found["level"] = level
    for name, rule in (("pushThreshold", "push_threshold"), ("popThreshold", "pop_threshold")):
        if (threshold := _number(arguments, name)) is not None:
            found[rule] = clamped(int(threshold))
    if arguments.get("suggestInContext") is not None:
        found["suggest_in_context"] = flag_of(arguments, "suggestInContext")
    enabled = set(rules.heuristics)
    if name := text_of(arguments, "enableHeuristic"):
        enabled.add(_heuristic(name))
    if name := text_of(arguments, "disableHeuristic"):
        enabled.discard(_heuristic(name))
    if enabled != set(rules.heuristics):
        found["heuristics"] = tuple(each for each in NAMES if each in enabled)
    _may(desk, *(_PART_OF[rule] for rule in found))
    return found


def _may(desk: Desk, *parts: str) -> None:
    """Raises Mistake where the configuration does not let the model change one of these."""
    settable = desk.settings.autonomy.settable
    if refused := sorted({part for part in parts if part not in settable}):
        allowed = f"you may change {', '.join(sorted(settable))}" if settable else "you may only read it"
        raise Mistake(
            f"Error: {', '.join(refused)} cannot be changed from here; {allowed}. People change it with "
            "`callstack autonomy`, or allow it with `model_may_set`."
        )


def _heuristic(name: str) -> str:
    if name not in NAMES:
        raise Mistake(f"Error: there is no heuristic {name[:40]!r}. Known: {', '.join(NAMES)}.")
    return name


def _rules(desk: Desk) -> Autonomy:
    return desk.settings.autonomy.with_chosen(desk.tree.advice.chosen)


def _told_rules(rules: Autonomy) -> list[str]:
    off = [name for name in NAMES if name not in rules.heuristics]
    return [
        f"level: {rules.level}",
        f"thresholds: push {rules.push_threshold}, pop {rules.pop_threshold} (combine: {rules.combine})",
        f"suggestions in context: {'yes' if rules.suggest_in_context else 'no'}",
        f"heuristics: {', '.join(rules.heuristics) or 'none'}" + (f"; off: {', '.join(off)}" if off else ""),
    ]


# -------------------------------------------------------------------------------------------------------- is it due?
def should_push(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """What speaks for a push here, heuristic by heuristic (S1-127)."""
    seen = signals(_read(desk), desk.tree.current, desk.window)
    told: dict[str, Any] = {}
    if goal := text_of(arguments, "potentialGoal"):
        told |= {"goal": "" if _is_for(desk.tree.current, goal) else goal, "wanted": keywords(goal)}
    if (messages := _count(arguments, "recentMessages")) is not None:
        told["messages"] = messages
    if (files := _texts(arguments, "recentFileChanges")) is not None:
        told["files"] = len(set(files))
    if (errors := _number(arguments, "errorCount")) is not None:
        told["errors"] = int(errors)
    if (tokens := _number(arguments, "tokenCount")) is not None:
        told["tokens"] = int(tokens)
    seen = replace(seen, **told)
    verdict = judged(PUSH, seen, _rules(desk))
    advised = (
        f"Push a frame for {cut_for_display(topic(desk.tree, seen.goal))!r}." if verdict.reached else "Go on here."
    )
    return Outcome(_explained(verdict, advised))


def _is_for(frame: Frame, goal: str) -> bool:
    """Whether `goal` is what the frame is for, in the same words. A part of it is a goal of its own."""
    words = extract_keywords(goal)
    own = (frame.title, frame.criteria, f"{frame.title} {frame.criteria}")
    return bool(words) and any(words == extract_keywords(text) for text in own)


def should_pop(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """What speaks for a pop of the active frame, heuristic by heuristic, and as what it would end (S1-128)."""
    told: dict[str, Any] = {}
    reading = _read(desk)
    if (successes := _texts(arguments, "successSignals")) is not None:
        covered = reading.covered(reading.aims_of(desk.tree.current), successes)
        told |= {"successes": tuple(successes), "covered": covered}
    if (failures := _texts(arguments, "failureSignals")) is not None:
        told["failures"] = tuple(failures)
    if (idle := _number(arguments, "noProgressTurns")) is not None:
        told["idle"] = int(idle)
    used, limit = _number(arguments, "tokenCount"), _number(arguments, "contextLimit")
    if limit is not None and limit < 1:
        raise Mistake("Error: contextLimit must be 1 or more: the tokens that fit your window.")
    if used is not None:
        told["usage"] = used / (limit or desk.window or DEFAULT_LIMIT)
    seen = signals(reading, desk.tree.current, int(limit or 0) or desk.window)
    verdict = judged(POP, replace(seen, **told), _rules(desk))
    advised = f"Pop it as {verdict.status}." if verdict.reached else "Go on here."
    if verdict.primary and not verdict.reached and verdict.status:
        advised += f" A pop now would be {verdict.status}."
    note = [] if desk.tree.current.parent else [ROOT_NOTE]
    return Outcome("\n".join([_explained(verdict, advised), *note]))


def _read(desk: Desk) -> Reading:
    return read(desk.story, desk.settings.names)


def _explained(verdict: Verdict, advised: str) -> str:
    lines = [f"{advised} Confidence {verdict.confidence} of {verdict.threshold} for a {verdict.kind}."]
    for name, score in sorted(verdict.scores.items(), key=lambda each: -each[1].points):
        inputs = ", ".join(f"{key} {value}" for key, value in score.inputs.items())
        lines.append(f"- {name}: {score.points} ({inputs})")
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------- what was
# suggested
def auto_suggest(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Turn suggestions in context on or off, take back what waits, show the newest of them (S1-129)."""
    events: list[FrameEvent] = []
    lines: list[str] = []
    if arguments.get("enable") is not None:
        wanted = flag_of(arguments, "enable")
        _may(desk, "suggestions")
        events.append(AutonomySet(replace(desk.tree.advice.chosen, at=desk.now, suggest_in_context=wanted)))
        lines.append(f"Suggestions in context are {'on' if wanted else 'off'}.")
    pending = waiting(desk.tree.advice, desk.now)
    if flag_of(arguments, "clearPending"):
        events.append(SuggestionsCleared(desk.now, waiting=True))
        lines.append(f"Taken back: {len(pending)}.")
        pending = ()
    lines += [f"Waiting: {each.text}" for each in pending] or ["Nothing waits."]
    if flag_of(arguments, "showHistory"):
        history = desk.tree.advice.history[-HISTORY_SHOWN:]
        lines += [_told_once(each, desk.now) for each in history] or ["Nothing was suggested yet."]
    return Outcome("\n".join(lines), tuple(events))


def _told_once(each: Suggestion, now: int) -> str:
    ago = format_duration(max(0, now - each.at))
    state = (
        "acted upon" if each.acted else "taken back" if each.cleared else "ignored" if each.expired(now) else "waits"
    )
    return f"- {ago} ago, {state}: {each.text}"


def autonomy_stats(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """The counts of suggestions and of what the proxy did by itself; with `reset` they begin anew (S1-130)."""
    told = ", ".join(f"{name} {count}" for name, count in asdict(stats(desk.tree.advice, desk.now)).items())
    if not flag_of(arguments, "reset"):
        return Outcome(told)
    _may(desk, "stats")
    return Outcome(f"{told}\nThese counts begin anew.", (SuggestionsCleared(desk.now, counts=True),))


# ------------------------------------------------------------------------------------------------------------ arguments
def _number(arguments: Mapping[str, Any], name: str) -> float | None:
    """None where it is left out."""
    value = arguments.get(name)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise Mistake(f"Error: {name} must be a number of 0 or more.") from None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise Mistake(f"Error: {name} must be a number of 0 or more.")
    return value


def _texts(arguments: Mapping[str, Any], name: str) -> list[str] | None:
    """None where it is left out; a single text is a list of one."""
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return [value] if value.strip() else []
    if not isinstance(value, list) or len(value) > LONGEST_LIST or not all(isinstance(each, str) for each in value):
        raise Mistake(f"Error: {name} must be a list of at most {LONGEST_LIST} texts.")
    return value


def _count(arguments: Mapping[str, Any], name: str) -> int | None:
    """How many there are: a number, or the length of a list."""
    value = arguments.get(name)
    if isinstance(value, list):
        return len(value)
    number = _number(arguments, name)
    return None if number is None else int(number)


# ---------------------------------------------------------------------------------------------------------------- tools
_FLAG = {"type": "boolean"}
_NUMBER = {"type": "number"}
_STRING = {"type": "string"}
_TEXTS = {"type": "array", "items": _STRING}


def _tool(op: str, description: str, run: Any, **properties: Mapping[str, Any]) -> Tool:
    parameters = {"type": "object", "properties": properties}
    return Tool(f"stack_{op}", op, description, parameters, run, listed=False)


TOOLS = (
    _tool(
        "autonomy",
        "Show how much the proxy decides about frames; change what the configuration allows.",
        autonomy,
        level={"type": "string", "enum": list(get_args(Level))},
        pushThreshold=_NUMBER,
        popThreshold=_NUMBER,
        suggestInContext=_FLAG,
        enableHeuristic=_STRING,
        disableHeuristic=_STRING,
        reset=_FLAG,
    ),
    _tool(
        "should_push",
        "What speaks for a push now. What you leave out is observed.",
        should_push,
        potentialGoal=_STRING,
        recentMessages=_NUMBER,
        recentFileChanges=_TEXTS,
        errorCount=_NUMBER,
        tokenCount=_NUMBER,
    ),
    _tool(
        "should_pop",
        "What speaks for a pop now, and as what. What you leave out is observed.",
        should_pop,
        successSignals=_TEXTS,
        failureSignals=_TEXTS,
        noProgressTurns=_NUMBER,
        tokenCount=_NUMBER,
        contextLimit=_NUMBER,
    ),
    _tool(
        "auto_suggest",
        "Suggestions that wait: show, take back, turn on or off.",
        auto_suggest,
        enable=_FLAG,
        clearPending=_FLAG,
        showHistory=_FLAG,
    ),
    _tool("autonomy_stats", "Counts of suggestions and of what came of them.", autonomy_stats, reset=_FLAG),
)
