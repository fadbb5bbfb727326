"""Read the client's own traffic: plan items, files, commands, decisions, errors, keywords, and where a new request
begins. `observe` runs all observers of a step."""

from proxy.core.observers.broken_tools import broken_lines, broken_tools
from proxy.core.observers.call_outcomes import (
    batch_parts_of,
    call_failed,
    exit_code,
    is_failure_text,
    is_refused_by_user,
    output_of,
)
from proxy.core.observers.command_outcomes import CommandOutcome
from proxy.core.observers.commands import (
    CommandRun,
    command_lines_of,
    last_outcome_by_kind,
    observe_commands,
    tree_moves_of,
    was_missing,
)
from proxy.core.observers.effects import is_waiting, may_have_side_effects, programs_in, runs_program
from proxy.core.observers.errors import ObservedError, has_passed_later, resolution_of, what_failed, with_later_outcome
from proxy.core.observers.files import (
    FileAction,
    ObservedFile,
    changed_paths_of,
    changes_after,
    changes_before,
    files_touched_by,
    iter_touched_files,
    observe_files,
    touched_file_labels,
    without_earlier_changes,
)
from proxy.core.observers.keywords import (
    cache_names,
    cache_names_in_slices,
    clean_name,
    names_in_arguments,
    names_in_messages,
    names_in_text,
    names_still_visible,
    passing_names,
    rank_names,
)
from proxy.core.observers.observe_step import StepObservations, observe
from proxy.core.observers.plan import (
    ItemStatus,
    MirroredItem,
    PlanDiff,
    PlanItemChanged,
    PlanReplaced,
    observe_plan,
    reconcile_plan,
    without_task_itself,
)
from proxy.core.observers.shell import BUILD, LINT, TEST, TYPES, TreeMove, covers, parse_command_line
from proxy.core.observers.step import (
    Step,
    ToolExecution,
    decode_json_or_text,
    is_closing_message,
    message_after,
    messages_of,
    rounds_of,
    step_of,
    steps_of,
    tells_results,
    texts_in,
)
from proxy.core.observers.tool_roles import (
    DEFAULT_TOOL_ROLES,
    ID_ARGUMENTS,
    PATH_ARGUMENTS,
    ToolRole,
    ToolRoles,
    normalize_name,
)
from proxy.core.observers.turns import (
    asked_in,
    asks_for_summary,
    bare_task,
    continues_by_topic,
    continues_by_wording,
    continues_turn,
    ends_with_user_message,
    first_user_text,
    has_client_tag,
    is_client_elements,
    order_of,
    queued_words,
    task_text_of,
    topic_keywords,
    typed_text_of,
    without_client_elements,
    without_quotes_around,
)
from proxy.core.observers.work_log import (
    NO_TEXTS,
    FileTexts,
    WrittenText,
    edit_lines,
    joined_lines,
    refusals_of,
    step_line,
    tells_of_work,
    written_texts,
)
