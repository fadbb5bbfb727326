"""How much the proxy decides about frames: what a path shows, what that is worth, and what comes of it (S1-81 to
S1-96).

    signals      what the work of the active frame shows, taken from traffic
    heuristics   seven scores from 0 to 100, four for a push and three for a pop
    rules        how far the proxy goes, and from which figures on
    combining    one figure of several scores
    suggesting   whether something is suggested, and in which words
    acting       whether the proxy does it by itself

The law: **nothing is done that would not also be explained**: each figure comes with what it was made of.

What this package does not do: it reads no configuration, tells no model anything and records nothing
(`proxy.suggesting` does).
"""

from proxy.core.policy import loop_detection
from proxy.core.policy.automatic_frames import AutonomyInput, decide_automatic_frames
from proxy.core.policy.autonomy_rules import (
    HEURISTIC_NAMES,
    RULE_NAMES,
    AutonomyLevel,
    AutonomyRules,
    HeuristicName,
    ModelSettable,
    ScoreCombiner,
    clamp_threshold,
)
from proxy.core.policy.frame_inference import InferenceRules, has_tool_calls, infer_frames
from proxy.core.policy.heuristics import HEURISTICS, HeuristicScore, ScoreInput
from proxy.core.policy.loop_detection import (
    REFUSED_CALL_RESULT,
    LoopRules,
    active_loops,
    call_signature,
    find_new_loop,
    find_repeated_failure,
    loop_note,
    looping_signatures,
)
from proxy.core.policy.roots import build_root, build_root_from_person, find_new_root, next_message_effect
from proxy.core.policy.scoring import AutonomyVerdict, judge
from proxy.core.policy.signals import DEFAULT_CONTEXT_WINDOW, FrameActivity, FrameSignals, read_activity, signals_of
from proxy.core.policy.suggest import (
    make_suggestion,
    pending_suggestions,
    push_title,
    reason_not_to_suggest,
    suggestion_note,
    tally_at,
)

__all__ = [
    "DEFAULT_CONTEXT_WINDOW",
    "HEURISTICS",
    "HEURISTIC_NAMES",
    "REFUSED_CALL_RESULT",
    "RULE_NAMES",
    "AutonomyInput",
    "AutonomyLevel",
    "AutonomyRules",
    "AutonomyVerdict",
    "FrameActivity",
    "FrameSignals",
    "HeuristicName",
    "HeuristicScore",
    "InferenceRules",
    "LoopRules",
    "ModelSettable",
    "ScoreCombiner",
    "ScoreInput",
    "active_loops",
    "build_root",
    "build_root_from_person",
    "call_signature",
    "clamp_threshold",
    "decide_automatic_frames",
    "find_new_loop",
    "find_new_root",
    "find_repeated_failure",
    "has_tool_calls",
    "infer_frames",
    "judge",
    "loop_detection",
    "loop_note",
    "looping_signatures",
    "make_suggestion",
    "next_message_effect",
    "pending_suggestions",
    "push_title",
    "read_activity",
    "reason_not_to_suggest",
    "signals_of",
    "suggestion_note",
    "tally_at",
]
