"""What was done in a project, over all its conversations: which conversations belong to its folder, what frames did
there, and what was said."""

from callstack_proxy.management.views.project_memory.evidence import CommandEvidence, FrameEvidence, frame_evidence
from callstack_proxy.management.views.project_memory.project_conversations import ProjectConversations
from callstack_proxy.management.views.project_memory.recall_view import (
    RecalledText,
    RecallRequest,
    RecallSources,
    recall_text,
)
