"""Items of the responses API, as clients send them, and requests made of them."""

from __future__ import annotations

import json
from typing import Any

from proxy.core.ledger.messages import Request
from proxy.dialects.parse_cache import ParseCache
from proxy.dialects.responses.request import OPENAI_RESPONSES

read = OPENAI_RESPONSES.parse_request

DEVELOPER = {
    "type": "message",
    "id": "msg_d",
    "role": "developer",
    "content": [{"type": "input_text", "text": "You write code."}],
}
USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix the login."}]}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3BhcXVl"}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "status": "completed",
    "call_id": "c1",
    "name": "bash",
    "arguments": '{"cmd": "ls", "a": 1}',
}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "login.py"}
CUSTOM = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "call_id": "c2",
    "name": "apply_patch",
    "input": "*** Begin Patch\n",
}
PATCHED = {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"}
SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk"}
TOOLS = [{"type": "function", "name": "bash", "description": "", "strict": False, "parameters": {}}]
ADDED = {
    "type": "additional_tools",
    "id": "at_1",
    "role": "developer",
    "tools": [
        {
            "type": "namespace",
            "name": "functions",
            "description": "",
            "tools": [
                {"type": "custom", "name": "exec", "description": "JavaScript"},
                {"type": "function", "name": "wait"},
            ],
        }
    ],
}


def body(*items: object, **members: Any) -> bytes:
    """A request with these items; `input` among the members stands for them."""
    return json.dumps({"model": "m", "input": list(items), **members}).encode()


def request(*items: object, **members: Any) -> Request:
    return read(body(*items, **members), ParseCache())
