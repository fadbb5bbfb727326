"""Tools about autonomy: the rules in force, whether a push or a pop seems due, and the suggestions made. Figures that
the model leaves out of its call are taken from observed traffic. The model changes only what the configuration allows;
otherwise it may only read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from msgspec.structs import asdict, replace

from proxy.core.frames import (
    POP,
    PUSH,
    AutonomySet,
    AutonomySettings,
    Frame,
    FrameEvent,
    Suggestion,
    SuggestionsCleared,
)
from proxy.core.observers import topic_keywords
from proxy.core.policy import (
    DEFAULT_CONTEXT_WINDOW,
    HEURISTIC_NAMES,
    RULE_NAMES,
    AutonomyLevel,
    AutonomyRules,
    AutonomyVerdict,
    FrameActivity,
    clamp_threshold,
    judge,
    pending_suggestions,
    push_title,
    read_activity,
    signals_of,
    tally_at,
)
from proxy.core.text import cut_for_display, extract_keywords, format_duration
from proxy.core.tools.base import (
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    flag_argument,
    object_schema,
    text_argument,
    text_schema,
)

MAX_HISTORY_SHOWN = 20  # S1-129
MAX_LIST_LENGTH = 1_000
MAX_NUMBER = 10**12  # bound of a figure given by the model
ROOT_POP_NOTE = "This is the root frame: popping it ends the whole tree, until the user speaks again."


def configure_autonomy(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    rules = _effective_rules(tool_context)
    if flag_argument(arguments, "reset"):
        _require_permission(tool_context, *sorted(_chosen_rule_groups(tool_context)))
        return _set_rules(tool_context, AutonomySettings(tool_context.now), "What was chosen here is taken back.")
    changes = _rule_changes(tool_context, arguments, rules)
    if not changes:
        return ToolResult("\n".join(_render_rules(rules)))
    return _set_rules(
        tool_context, replace(tool_context.tree.suggestion_state.settings, at=tool_context.now, **changes), "Set."
    )


def _set_rules(tool_context: ToolContext, chosen: AutonomySettings, headline: str) -> ToolResult:
    rules = tool_context.settings.autonomy.with_overrides(chosen)
    return ToolResult("\n".join([headline, *_render_rules(rules)]), (AutonomySet(chosen),))


def _chosen_rule_groups(tool_context: ToolContext) -> set[str]:
    """The groups of rules in which something was chosen for this conversation."""
    chosen = tool_context.tree.suggestion_state.settings
    return {_GROUP_OF_RULE[name] for name in RULE_NAMES if getattr(chosen, name) is not None}


# The word of `model_may_set` that covers a rule.
_GROUP_OF_RULE = {
    "level": "level",
    "push_threshold": "thresholds",
    "pop_threshold": "thresholds",
    "combine": "thresholds",
    "suggest_in_context": "suggestions",
    "heuristics": "heuristics",
}


def _rule_changes(tool_context: ToolContext, arguments: Mapping[str, Any], rules: AutonomyRules) -> dict[str, Any]:
    """Requested changes, by rule name."""
    changes: dict[str, Any] = {}
    if level := text_argument(arguments, "level"):
        if level not in get_args(AutonomyLevel):
            raise ToolError(f"Error: level {level[:40]!r} is none of {', '.join(get_args(AutonomyLevel))}.")
        changes["level"] = level
    for name, rule in (("pushThreshold", "push_threshold"), ("popThreshold", "pop_threshold")):
        if (threshold := _number_argument(arguments, name)) is not None:
            changes[rule] = clamp_threshold(int(threshold))
    if arguments.get("suggestInContext") is not None:
        changes["suggest_in_context"] = flag_argument(arguments, "suggestInContext")
    enabled = set(rules.heuristics)
    if name := text_argument(arguments, "enableHeuristic"):
        enabled.add(_require_known_heuristic(name))
    if name := text_argument(arguments, "disableHeuristic"):
        enabled.discard(_require_known_heuristic(name))
    if enabled != set(rules.heuristics):
        changes["heuristics"] = tuple(each for each in HEURISTIC_NAMES if each in enabled)
    _require_permission(tool_context, *(_GROUP_OF_RULE[rule] for rule in changes))
    return changes


def _require_permission(tool_context: ToolContext, *settings: str) -> None:
    """Raises ToolError where the configuration does not let the model change one of these groups."""
    settable = tool_context.settings.model_may_set
    if refused := sorted({part for part in settings if part not in settable}):
        allowed = f"you may change {', '.join(sorted(settable))}" if settable else "you may only read it"
        raise ToolError(
            f"Error: {', '.join(refused)} cannot be changed from here; {allowed}. People change it with "
            "`callstack autonomy`, or allow it with `model_may_set`."
        )


def _require_known_heuristic(name: str) -> str:
    if name not in HEURISTIC_NAMES:
        raise ToolError(f"Error: there is no heuristic {name[:40]!r}. Known: {', '.join(HEURISTIC_NAMES)}.")
    return name


def _effective_rules(tool_context: ToolContext) -> AutonomyRules:
    return tool_context.settings.autonomy.with_overrides(tool_context.tree.suggestion_state.settings)


def _render_rules(rules: AutonomyRules) -> list[str]:
    off = [name for name in HEURISTIC_NAMES if name not in rules.heuristics]
    return [
        f"level: {rules.level}",
        f"thresholds: push {rules.push_threshold}, pop {rules.pop_threshold} (combine: {rules.combine})",
        f"suggestions in context: {'yes' if rules.suggest_in_context else 'no'}",
        f"heuristics: {', '.join(rules.heuristics) or 'none'}" + (f"; off: {', '.join(off)}" if off else ""),
    ]


def should_push(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """What speaks for a push here, heuristic by heuristic."""
    signals = signals_of(_read_path(tool_context), tool_context.tree.active_frame, tool_context.window_tokens)
    given: dict[str, Any] = {}
    if goal := text_argument(arguments, "potentialGoal"):
        given |= {
            "goal": "" if _is_frame_goal(tool_context.tree.active_frame, goal) else goal,
            "goal_keywords": topic_keywords(goal),
        }
    if (messages := _count_argument(arguments, "recentMessages")) is not None:
        given["messages"] = messages
    if (files := _text_list_argument(arguments, "recentFileChanges")) is not None:
        given["files"] = len(set(files))
    if (errors := _number_argument(arguments, "errorCount")) is not None:
        given["errors"] = int(errors)
    if (tokens := _number_argument(arguments, "tokenCount")) is not None:
        given["tokens"] = int(tokens)
    signals = replace(signals, **given)
    verdict = judge(PUSH, signals, _effective_rules(tool_context))
    advised = (
        f"Push a frame for {cut_for_display(push_title(tool_context.tree, signals.goal))!r}."
        if verdict.is_reached
        else "Go on here."
    )
    return ToolResult(_render_verdict(verdict, advised))


def _is_frame_goal(frame: Frame, goal: str) -> bool:
    """Whether `goal` repeats the frame's title or criteria. A part of them is a goal of its own."""
    words = extract_keywords(goal)
    frame_texts = (frame.title, frame.criteria, f"{frame.title} {frame.criteria}")
    return bool(words) and any(words == extract_keywords(text) for text in frame_texts)


def should_pop(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """What speaks for a pop of the active frame, heuristic by heuristic, and the status it would end with."""
    given: dict[str, Any] = {}
    activity = _read_path(tool_context)
    if (successes := _text_list_argument(arguments, "successSignals")) is not None:
        covered = activity.coverage_of(activity.keywords_of(tool_context.tree.active_frame), successes)
        given |= {"successes": tuple(successes), "goal_coverage": covered}
    if (failures := _text_list_argument(arguments, "failureSignals")) is not None:
        given["failures"] = tuple(failures)
    if (idle := _number_argument(arguments, "noProgressTurns")) is not None:
        given["idle_turns"] = int(idle)
    used, limit = _number_argument(arguments, "tokenCount"), _number_argument(arguments, "contextLimit")
    if limit is not None and limit < 1:
        raise ToolError("Error: contextLimit must be 1 or more: the tokens that fit your window.")
    if used is not None:
        given["usage"] = used / (limit or tool_context.window_tokens or DEFAULT_CONTEXT_WINDOW)
    signals = signals_of(activity, tool_context.tree.active_frame, int(limit or 0) or tool_context.window_tokens)
    verdict = judge(POP, replace(signals, **given), _effective_rules(tool_context))
    advised = f"Pop it as {verdict.status}." if verdict.is_reached else "Go on here."
    if verdict.primary and not verdict.is_reached and verdict.status:
        advised += f" A pop now would be {verdict.status}."
    note = [] if tool_context.tree.active_frame.parent else [ROOT_POP_NOTE]
    return ToolResult("\n".join([_render_verdict(verdict, advised), *note]))


def _read_path(tool_context: ToolContext) -> FrameActivity:
    return read_activity(tool_context.path_state, tool_context.settings.tool_roles)


def _render_verdict(verdict: AutonomyVerdict, advised: str) -> str:
    lines = [f"{advised} Confidence {verdict.confidence} of {verdict.threshold} for a {verdict.kind}."]
    for name, score in sorted(verdict.scores.items(), key=lambda each: -each[1].points):
        inputs = ", ".join(f"{key} {value}" for key, value in score.inputs.items())
        lines.append(f"- {name}: {score.points} ({inputs})")
    return "\n".join(lines)


def configure_suggestions(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """Turn suggestions in context on or off, withdraw pending ones, and show the newest."""
    events: list[FrameEvent] = []
    lines: list[str] = []
    if arguments.get("enable") is not None:
        is_on = flag_argument(arguments, "enable")
        _require_permission(tool_context, "suggestions")
        events.append(
            AutonomySet(
                replace(tool_context.tree.suggestion_state.settings, at=tool_context.now, suggest_in_context=is_on)
            )
        )
        lines.append(f"Suggestions in context are {'on' if is_on else 'off'}.")
    pending = pending_suggestions(tool_context.tree.suggestion_state, tool_context.now)
    if flag_argument(arguments, "clearPending"):
        events.append(SuggestionsCleared(tool_context.now, waiting=True))
        lines.append(f"Taken back: {len(pending)}.")
        pending = ()
    lines += [f"Waiting: {each.text}" for each in pending] or ["Nothing waits."]
    if flag_argument(arguments, "showHistory"):
        history = tool_context.tree.suggestion_state.history[-MAX_HISTORY_SHOWN:]
        lines += [_render_suggestion(each, tool_context.now) for each in history] or ["Nothing was suggested yet."]
    return ToolResult("\n".join(lines), tuple(events))


def _render_suggestion(suggestion: Suggestion, now: int) -> str:
    ago = format_duration(max(0, now - suggestion.at))
    state = (
        "acted upon"
        if suggestion.acted
        else "taken back"
        if suggestion.cleared
        else "ignored"
        if suggestion.is_expired(now)
        else "waits"
    )
    return f"- {ago} ago, {state}: {suggestion.text}"


def show_autonomy_stats(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """Counts of suggestions and of automatic frames; `reset` starts them again from zero."""
    counts_text = ", ".join(
        f"{name} {count}"
        for name, count in asdict(tally_at(tool_context.tree.suggestion_state, tool_context.now)).items()
    )
    if not flag_argument(arguments, "reset"):
        return ToolResult(counts_text)
    _require_permission(tool_context, "stats")
    return ToolResult(f"{counts_text}\nThese counts begin anew.", (SuggestionsCleared(tool_context.now, counts=True),))


def _number_argument(arguments: Mapping[str, Any], name: str) -> float | None:
    """None where it is left out."""
    value = arguments.get(name)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ToolError(f"Error: {name} must be a number of 0 or more.") from None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_NUMBER:
        raise ToolError(f"Error: {name} must be a number of 0 or more.")
    return value


def _text_list_argument(arguments: Mapping[str, Any], name: str) -> list[str] | None:
    """None where it is left out; a single text becomes a list of one."""
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return [value] if value.strip() else []
    if not isinstance(value, list) or len(value) > MAX_LIST_LENGTH or not all(isinstance(each, str) for each in value):
        raise ToolError(f"Error: {name} must be a list of at most {MAX_LIST_LENGTH} texts.")
    return value


def _count_argument(arguments: Mapping[str, Any], name: str) -> int | None:
    """A number, or the length of a list; None where it is left out."""
    value = arguments.get(name)
    if isinstance(value, list):
        return len(value)
    number = _number_argument(arguments, name)
    return None if number is None else int(number)


def _flag_schema(description: str) -> Mapping[str, Any]:
    return {"type": "boolean", "description": description}


def _number_schema(description: str) -> Mapping[str, Any]:
    return {"type": "number", "description": description}


def _text_list_schema(description: str) -> Mapping[str, Any]:
    return {"type": "array", "description": description, "items": {"type": "string"}}


def _define_tool(op: str, description: str, run: Any, **properties: Mapping[str, Any]) -> Tool:
    parameters = object_schema(**properties)
    return Tool(f"stack_{op}", op, description, parameters, run)


AUTONOMY = _define_tool(
    "autonomy",
    "Show how much the proxy decides about frames; change what the configuration allows.",
    configure_autonomy,
    level={"type": "string", "description": "how much", "enum": list(get_args(AutonomyLevel))},
    pushThreshold=_number_schema("confidence from which a push is due, 0 to 100"),
    popThreshold=_number_schema("confidence from which a pop is due, 0 to 100"),
    suggestInContext=_flag_schema("whether suggestions are shown to you"),
    enableHeuristic=text_schema("name of a heuristic"),
    disableHeuristic=text_schema("name of a heuristic"),
    reset=_flag_schema("take back what was chosen for this conversation"),
)
SHOULD_PUSH = _define_tool(
    "should_push",
    "What speaks for a push now. What you leave out is observed.",
    should_push,
    potentialGoal=text_schema("the goal of the frame you might push"),
    recentMessages=_number_schema("messages in the current frame"),
    recentFileChanges=_text_list_schema("files changed in it"),
    errorCount=_number_schema("errors in it"),
    tokenCount=_number_schema("tokens in use"),
)
SHOULD_POP = _define_tool(
    "should_pop",
    "What speaks for a pop now, and as what. What you leave out is observed.",
    should_pop,
    successSignals=_text_list_schema("what says that the work is done"),
    failureSignals=_text_list_schema("what says that it cannot be done"),
    noProgressTurns=_number_schema("turns without progress"),
    tokenCount=_number_schema("tokens in use"),
    contextLimit=_number_schema("tokens that fit your window"),
)
AUTO_SUGGEST = _define_tool(
    "auto_suggest",
    "Suggestions that wait: show, take back, turn on or off.",
    configure_suggestions,
    enable=_flag_schema("turn suggestions in your context on or off"),
    clearPending=_flag_schema("take back what waits"),
    showHistory=_flag_schema("also show earlier suggestions"),
)
AUTONOMY_STATS = _define_tool(
    "autonomy_stats",
    "Counts of suggestions and of what came of them.",
    show_autonomy_stats,
    reset=_flag_schema("begin the counts anew"),
)
