"""Which refusals may be about the form of a request, and what is remembered of them."""

from __future__ import annotations

import pytest

from proxy.upstream.learned_traits import LearnedTrait
from proxy.upstream.request_forms import (
    LEARNED_FORM_TTL_S,
    LearnedForms,
    RequestForm,
    is_about_tools,
    is_explained,
    is_form_refusal,
    is_reasoning_refusal,
)

pytestmark = pytest.mark.rows("X-27")

JINJA = b'{"error":{"code":500,"message":"Jinja Exception: roles must alternate user and assistant"}}'
SCHEMA = b'{"error":{"message":"tools.3.function.parameters: unknown keyword \'default\'"}}'


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b""),
        (400, JINJA),
        (422, b'{"detail":[{"loc":["body","tools"],"msg":"ensure this value has at most 64 items"}]}'),
        (404, b'{"error":{"message":"No endpoints found that support the provided tool_choice"}}'),
        (500, JINJA),
        (400, SCHEMA),
    ],
)
def test_a_refusal_for_no_other_reason_is_one_of_the_form(status: int, body: bytes) -> None:
    assert is_form_refusal(status, body, knows_api=True)
    assert is_explained(status, body)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b"{}"),
        (402, b"{}"),
        (403, b"{}"),
        (413, b"{}"),
        (429, b"{}"),
        (502, JINJA),
        (503, b"{}"),
        (529, b"{}"),
        (400, b'{"error":{"message":"Incorrect API key provided"}}'),
        (400, b'{"error":{"message":"Your credit balance is too low"}}'),
        (404, b'{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}'),
        (400, b'{"error":{"code":"content_filter","message":"content management policy"}}'),
        (500, b'{"error":{"message":"The server is overloaded, tools or not. Try again later."}}'),
    ],
)
def test_a_refusal_for_another_reason_is_not(status: int, body: bytes) -> None:
    assert not is_form_refusal(status, body, knows_api=False)


def test_a_500_without_a_cause_counts_only_where_the_api_is_not_known() -> None:
    said = b"Internal Server Error"

    assert is_form_refusal(500, said, knows_api=False)
    assert not is_form_refusal(500, said, knows_api=True)
    assert not is_explained(500, said)


def test_what_is_about_tools_is_told_from_what_names_calls_and_results() -> None:
    assert is_about_tools(SCHEMA)
    assert is_about_tools(b"Invalid 'tools': array too long")
    assert not is_about_tools(b"roles must alternate except for tool calls and results")


# ------------------------------------------------------------------------------------------------------------- memory
def test_what_helped_is_used_for_an_hour_and_then_the_full_form_is_tried_again() -> None:
    now = [0.0]
    forms = LearnedForms(lambda: now[0])
    forms.learn("up", "m", RequestForm.MILD, explained=True)

    assert forms.form_for("up", "m") is RequestForm.MILD
    assert forms.form_for("up", "other") is RequestForm.FULL
    now[0] = LEARNED_FORM_TTL_S
    assert forms.form_for("up", "m") is RequestForm.FULL


def test_what_is_in_use_is_told_with_its_times() -> None:
    now = [500.0]
    forms = LearnedForms(lambda: now[0])
    forms.learn("up", "m", RequestForm.BARE, explained=True)
    now[0] += 60

    assert list(forms.traits(now=1_000_000)) == [LearnedTrait("up", "m", "bare", 940_000, 4_540_000)]
    now[0] += LEARNED_FORM_TTL_S
    assert list(forms.traits(now=9_000_000)) == []


def test_a_refusal_without_a_cause_must_be_seen_again_and_again() -> None:
    """Twice in a row for a milder form to be tried, three times for it to be remembered; a success begins anew."""
    forms = LearnedForms()

    def tries(*, learns: bool) -> bool:
        found = forms.should_try_milder("up", "m", explained=False)
        forms.learn("up", "m", RequestForm.MILD, explained=False)
        assert (forms.form_for("up", "m") is RequestForm.MILD) is learns
        return found

    assert forms.should_try_milder("up", "m", explained=True)
    assert [tries(learns=False), tries(learns=False)] == [False, True]
    forms.confirm_full("up", "m")
    assert [tries(learns=False), tries(learns=False), tries(learns=True)] == [False, True, True]


@pytest.mark.rows("X-27")
@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (b"'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property 'reasoning' is "
         b"unsupported, did you mean 'role'?)]", True),
        (b"messages.1.assistant.reasoning: property 'messages.1.assistant.reasoning' is unsupported", True),
        (b'{"type":"extra_forbidden","loc":["body","messages",2,"assistant","reasoning_content"],'
         b'"msg":"Extra inputs are not permitted"}', True),
        (b"Additional properties are not allowed ('reasoning' was unexpected) - 'messages.3'", True),
        (b"thinking is enabled but reasoning_content is missing in assistant tool call message at index 2", False),
        (b"The `reasoning_content` in the thinking mode must be passed back to the API. (messages.2)", False),
        (b"Unsupported value: 'reasoning_effort' does not support 'minimal' with this model.", False),
        (b"messages.1.content.0: Input tag 'reasoning_x' not found", False),
    ],
)  # fmt: skip
def test_reasoning_that_may_not_come_back_is_told_from_reasoning_that_must(body: bytes, refused: bool) -> None:
    assert is_reasoning_refusal(400, body) is refused
    assert not is_reasoning_refusal(500, body)
