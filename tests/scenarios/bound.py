"""A model that binds its reasoning: every thought holds only behind the exact prefix it was made behind (L8)."""

from __future__ import annotations

import json
from collections.abc import Callable

from llm_test_provider import ReceivedRequest, ScriptedAnswer
from llm_test_provider.reasoning_binding import BindingFault, BoundRequest, ReasoningItem, examine, seal


class BoundModel:
    """Put around the answers of a scripted provider. `faults` are what a provider that binds would have refused."""

    def __init__(self) -> None:
        self.faults: list[BindingFault] = []

    def __call__(self, answer: ScriptedAnswer) -> Callable[[ReceivedRequest], ScriptedAnswer]:
        def answered(received: ReceivedRequest) -> ScriptedAnswer:
            before = as_bound(received)
            found = examine(b"secret", before)
            self.faults += found.faults
            thought = seal(b"secret", answer.reasoning, before, found.last)
            return answer.but(reasoning=f"{thought.content}|{thought.token}")

        return answered


def as_bound(received: ReceivedRequest) -> BoundRequest:
    """A request as binding sees it: thoughts stand in front of the message they were made with."""
    head = json.dumps([received.body.get("tools"), received.messages[0]]).encode()
    parts: list[bytes | ReasoningItem] = []
    for message in received.messages[1:]:
        message.pop("reasoning", "")  # as it was written, where a tongue told it
        if thought := message.pop("reasoning_content", ""):
            content, _, token = thought.partition("|")
            parts.append(ReasoningItem(content, token))
        parts.append(json.dumps(message, sort_keys=True).encode())
    return BoundRequest(head, tuple(parts))
