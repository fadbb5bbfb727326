"""What a client hands over or notes while the agent works, once the work around it has left."""

from __future__ import annotations

import re

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, as_one_text, bash, does, push

WISH = "Name the parser after its author."
QUEUED = (
    f"The user sent a new message while you were working:\n{WISH}\n\nIMPORTANT: After completing your current task, "
    "you MUST address the user's message above."
)
MODIFIED = "Note: parser.py was modified, either by the user or by a linter."
BESIDE_A_NOTE = "Never touch the lexer."
RULE = "From now on write British English."


@pytest.mark.rows("S0-55", "X-45")
@pytest.mark.parametrize("role", ["system", "user"])
def test_what_was_handed_over_in_a_frame_that_ended_with_its_turn_is_past(
    chat: Conversation, provider: ScriptedProvider, role: str
) -> None:
    """An order is quoted as answered there, a note on a file leaves with the work on it, and a rule stays in front."""
    provider.will(
        does(push("Read the parser")), does(bash("cat parser.py")), does(bash("git mv parser.py ada.py")), says("Done.")
    )
    chat.says("Explain the parser to me, please.")
    call = chat.history[-1]["tool_calls"][0]["id"]
    chat.history.append({"role": "tool", "tool_call_id": call, "content": "def parse(): ..."})
    handed = [QUEUED, MODIFIED]
    if role == "user":
        handed = [f"<system-reminder>\n{text}\n</system-reminder>" for text in handed]
        handed.append(f"{handed[1]}<system-reminder>The user sent a new message: {BESIDE_A_NOTE}\n</system-reminder>")
    chat.history += [{"role": role, "content": text} for text in handed]
    chat.history.append({"role": "system", "content": RULE})
    chat.asks()
    chat.returns("moved")
    provider.will(says("ok"), says("all right"))
    chat.says("Now write documentation for the installer.")
    folded = provider.received[-1].messages
    chat.says("Thanks.")

    told = as_one_text(folded)
    assert "MUST address" not in told
    said = " ".join(re.findall("<said>(.*?)</said>", told))
    assert WISH in said
    assert (BESIDE_A_NOTE in said) is (role == "user")
    assert MODIFIED not in told
    places = [at for at, message in enumerate(folded) if RULE in str(message) and message["role"] == "system"]
    assert places
    assert places[-1] < len(folded) - 1, "what the user says next stands behind it"
    assert provider.received[-1].messages[: len(folded)] == folded
