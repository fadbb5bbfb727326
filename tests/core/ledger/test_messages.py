"""What a message is known by."""

import json
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.ledger.messages import Call, identity_of, is_stack_tool, without_namespace

anything = st.text(st.characters(codec=None), max_size=40) | st.text(
    st.sampled_from('a"\\/\x00\x1f\x7f\n\t\b\f é\ud800')
)


@given(anything, anything, anything)
def test_an_identity_is_that_of_the_slow_writer_whatever_is_said(text: str, name: str, answers: str) -> None:
    """Identities are stored: how they are made may become faster, never other."""
    said = ["tool", text.strip(), [["id", name, "{}"]], answers]
    slow = sha256(json.dumps(said, separators=(",", ":")).encode()).hexdigest()[:32]
    assert identity_of("tool", text, (Call("id", name, "{}"),), answers) == slow


@pytest.mark.rows("X-49")
def test_a_name_of_ours_is_known_among_the_marks_of_prompt_templates() -> None:
    marked = (
        "functions.{}:0",
        "functions.{}<|channel|>json",
        "{}<|channel|>commentary",
        "{}\n",
        " {}",
        "tools.{}",
        "tool::{}",
        "tools/{}",
    )
    for form in marked:
        for name in ("stack_recall", "stack"):
            assert without_namespace(form.format(name)) == name
            assert is_stack_tool(form.format(name))
    for name in (
        "stack-trace",
        "full_stack_recall",
        "stacks",
        "my.stack-trace",
        "stack.trace",
        "mine.stack_recall",
        "functions.stacking",
    ):
        assert not is_stack_tool(name)
