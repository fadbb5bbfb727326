"""What a message is known by."""

import json
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.ledger.messages import Call, identity_of

anything = st.text(st.characters(codec=None), max_size=40) | st.text(
    st.sampled_from('a"\\/\x00\x1f\x7f\n\t\b\f é\ud800')
)


@given(anything, anything, anything)
def test_an_identity_is_that_of_the_slow_writer_whatever_is_said(text: str, name: str, answers: str) -> None:
    """Identities are stored: how they are made may become faster, never other."""
    said = ["tool", text.strip(), [["id", name, "{}"]], answers]
    slow = sha256(json.dumps(said, separators=(",", ":")).encode()).hexdigest()[:32]
    assert identity_of("tool", text, (Call("id", name, "{}"),), answers) == slow
