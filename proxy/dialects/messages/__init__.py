"""The wire format of Anthropic's messages API."""

from proxy.dialects.messages.cache_control import CACHE_CONTROL_BYTES, MEMBER, split_markers, with_marker
from proxy.dialects.messages.message import (
    REASONING,
    TEXT,
    TOOL_RESULT,
    TOOL_USE,
    is_failed_result,
    messages_in,
    read_message,
    type_of,
)
