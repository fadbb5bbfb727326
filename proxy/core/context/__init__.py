"""The message list sent upstream for the active frame, and the frame block that tells the model where it is in the
tree."""

from proxy.core.context.actions import RECENT_ENTRIES_LIMIT, entries_of_frame, format_action, with_open_frame_artifacts
from proxy.core.context.fork_block import words_seen_by
from proxy.core.context.frame_block_forms import FLAT_FORMAT, BlockFormat, DrawMap, block_of
from proxy.core.context.guidance import GuidanceWording, guidance_text
from proxy.core.context.message_delivery import undelivered_messages
from proxy.core.context.message_list import (
    TOLD_CALL_RESULT,
    UNANSWERED_CALL_RESULT,
    Context,
    ContextForm,
    MessageComposer,
    answers_with_stale_reasoning,
    build_client_context,
    build_context,
    context_entries,
    entries_after_client_rewrite,
    entries_owned_by,
    holder_of,
    owner_of,
    unpaired_calls,
)
from proxy.core.context.minimal_frame_block import MAX_ACTIONS
from proxy.core.context.nested_frame_block import render_lineage
from proxy.core.context.refresh_frame_block import (
    block_holder,
    frames_with_block,
    refreshable_frames,
    replace_block,
    uncalled_frame,
    unsent_stale_frames,
)
from proxy.core.context.relatives import (
    FrameSurroundings,
    finished_siblings,
    frame_and_siblings,
    keywords_of,
    planned_children,
    surroundings_of,
)
from proxy.core.context.relevance import (
    MINIMUM_RELEVANCE,
    ancestor_score_parts,
    score_shared_words,
    sibling_base_score,
)
from proxy.core.context.role_order import LEFT_OUT_ANSWER, LEFT_OUT_WORK, AnswersLeftOut, alternate_roles
from proxy.core.context.write_frame_block import MAX_FRAME_TOKENS, frame_element, sibling_attributes
