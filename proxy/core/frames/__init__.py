"""The frame tree of a conversation: its events, the reducer, the state of a path with its branches, and the text that
replaces a finished frame."""

from proxy.core.frames import branches
from proxy.core.frames.announcements import announced_part, outcome_part
from proxy.core.frames.branches import BRANCH_SWITCHED_KIND, MAIN_BRANCH, BranchState, Checkpoint, RequestFingerprint
from proxy.core.frames.events import *  # noqa: F403 - all events are part of this face
from proxy.core.frames.loaded_tools import LoadingGroup, groups_still_needed, groups_that_load
from proxy.core.frames.path_state import PathBuilder, PathEntry, PathState, extend, path_state_at, replay, switch_branch
from proxy.core.frames.reducer import outermost_called_frame, reduce, reopen_root, return_path
from proxy.core.frames.results import (
    CHANGED,
    CHANGED_BY_COMMAND,
    CHANGED_TEMPORARY,
    MAX_CRITERION_CHARACTERS,
    NEXT_PLANNED_SECTION,
    READ,
    FileAccess,
    PastSpeech,
    decisions_in,
    derive_compaction,
    frame_results_text,
    invalidation_text,
    marked_results,
    names_a_problem,
    next_planned_text,
    past_speech_text,
    results_from_texts,
    results_of_item,
    title_of,
)
from proxy.core.frames.same_paths import (
    direct_path,
    file_name_of,
    is_same_file,
    one_spelling,
    telling_names,
    temporary_among,
)
from proxy.core.frames.suggestion_log import POP, PUSH, AutonomySettings, Suggestion, SuggestionCounts, SuggestionState
from proxy.core.frames.tasks import STATUSES, lesson_of, newest_failed_attempt, task_of
from proxy.core.frames.tree import (
    ALLOWED,
    CONVERSATION,
    FINAL_STATUSES,
    PART_ORIGIN,
    PLAN_ORIGIN,
    REQUEST_ORIGIN,
    RETURN_STATUSES,
    USER_ORIGIN,
    DeferredPop,
    Frame,
    FrameNote,
    Loop,
    OpeningCall,
    Removal,
    Status,
    Tree,
    ancestors,
    children,
    descendants,
    distinct_titles,
    find_frame,
    frame_id_of,
    frames_titled,
    is_below_returned_frame,
    is_ended_root,
    is_kept,
    is_task,
    next_planned,
    ordered_siblings,
    path_to,
    plan_parent,
    position_of,
    siblings,
    tasks_above,
    visible_owners_of,
)
