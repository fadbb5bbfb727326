"""What the proxy decides about frames by itself: inferred frames, new roots, suggestions to push or pop, automatic
frames (level `auto`), and warnings about loops. Every score says which figures it is made of."""

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
from proxy.core.policy.forgotten_frames import FrameEnd, forgotten_frames
from proxy.core.policy.frame_inference import InferenceRules, has_frames_to_infer, has_tool_calls, infer_frames
from proxy.core.policy.heuristics import HEURISTICS, AutonomyVerdict, HeuristicScore, ScoreInput, judge
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
from proxy.core.policy.signals import DEFAULT_CONTEXT_WINDOW, FrameActivity, FrameSignals, read_activity, signals_of
from proxy.core.policy.suggest import (
    make_suggestion,
    pending_suggestions,
    push_title,
    reason_not_to_suggest,
    suggestion_note,
    tally_at,
)
