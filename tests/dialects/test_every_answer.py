"""What holds for an answer in every dialect (RELIABILITY S1, S3, S4, S6, S8, S10; S4-11): one law each, and one entry
of `forms.FORMS` for each dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects.response_writer import KEEP_ALIVE
from tests.dialects.forms import FORMS, NOTHING_OF_OURS, DialectCase
from tests.dialects.playing import JSON, SSE, cut

UNREAD = b'{"error": "stack_"}'


def each(member: str) -> list[Any]:
    """The dialects with each entry of a table of theirs, as parameters."""
    tables = ((name, form, getattr(form, member)) for name, form in FORMS.items())
    return [
        pytest.param(form, entry, id=f"{name}-{key}")
        for name, form, table in tables
        for key, entry in (table.items() if isinstance(table, Mapping) else enumerate(table))
    ]


every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


# ------------------------------------------------------------------------------------------------------- stack-free
@pytest.mark.parametrize(("form", "stream"), each("stack_free"))
def test_s1_s6_a_stream_without_stack_calls_is_byte_identical(form: DialectCase, stream: bytes) -> None:
    for intercept in (True, False):
        whole = form.play(stream, intercept=intercept)
        byte_by_byte = form.play(stream, intercept=intercept, places=range(len(stream)))
        assert whole.out == byte_by_byte.out == stream, intercept
        assert whole.spoken == byte_by_byte.spoken, intercept


@every_form
def test_s6_a_line_of_10_mb_passes_byte_for_byte(form: DialectCase) -> None:
    stream = form.long()
    played = form.play(stream, places=range(0, len(stream), 65_536))
    assert played.out == stream
    assert played.spoken[0].finish == form.finish


@every_form
def test_an_answer_without_stack_calls_is_byte_identical(form: DialectCase) -> None:
    for body in (*form.bodies, *NOTHING_OF_OURS):
        for intercept in (True, False):
            played = form.play(body, stream=False, intercept=intercept, places=range(0, len(body), 7))
            assert played.out == body, intercept


# ----------------------------------------------------------------------------------------------------- between rounds
@pytest.mark.rows("X-50")
@every_form
def test_keep_alive_stands_only_between_events_of_a_stream_whose_head_has_come(form: DialectCase) -> None:
    answer = form.answer()
    assert answer.keep_alive() == b""
    answer.begin_round(200, SSE)
    assert answer.keep_alive() == KEEP_ALIVE
    answer.feed(form.hidden)
    assert answer.keep_alive() == KEEP_ALIVE
    assert form.answer(stream=False).keep_alive() == b""


@pytest.mark.rows("X-50")
@pytest.mark.parametrize("name", ["chat", "messages"])
def test_an_ending_whose_terminator_does_not_come_leaves_in_the_place_of_a_comment(name: str) -> None:
    form = FORMS[name]
    answer = form.answer()
    answer.begin_round(200, SSE)
    whole = form.words
    cut = max(at for at in range(len(whole) - 2) if whole[at : at + 2] == b"\n\n") + 2
    told = answer.feed(whole[:cut]) + answer.keep_alive()
    assert (told, answer.keep_alive()) == (whole[:cut], b"")
    assert answer.feed(whole[cut:]) == whole[cut:]


@pytest.mark.rows("X-50")
@every_form
def test_no_comment_stands_in_what_passes_unread(form: DialectCase) -> None:
    answer = form.answer()
    answer.begin_round(503, SSE)

    assert answer.keep_alive() == b""


@pytest.mark.rows("S4-11")
@every_form
def test_s4_11_what_has_arrived_can_be_read_at_any_byte_and_reading_changes_nothing(form: DialectCase) -> None:
    answer = form.answer()
    answer.begin_round(200, SSE)
    out, drafts = b"", []
    for byte in cut(form.mixed, range(len(form.mixed))):
        out += answer.feed(byte)
        drafts.append(answer.partial_response())
    spoken = answer.end_round(complete=True)
    assert (out + answer.finish(), spoken) == (form.play(form.mixed).out, form.play(form.mixed).spoken[0])
    assert not any(d.complete for d in drafts)
    texts = [d.message.text for d in drafts]
    assert texts == sorted(texts, key=len)
    assert drafts[-1].message == spoken.message


# ---------------------------------------------------------------------------------------------------------- failures
@pytest.mark.parametrize(("form", "stream"), each("failing"))
def test_an_error_inside_a_good_reply_passes_and_is_known(form: DialectCase, stream: bytes) -> None:
    played = form.play(stream)
    assert played.out == stream
    assert played.answer.round_failed
    assert not played.spoken[0].complete


@every_form
@pytest.mark.parametrize("comment", [b"", b": working\n\n"], ids=["at_once", "behind_a_comment"])
def test_a_round_that_ended_without_a_word_can_be_asked_again_in_its_place(form: DialectCase, comment: bytes) -> None:
    answer = form.answer()
    answer.begin_round(200, SSE)
    assert answer.feed(comment) == comment
    assert answer.feed(form.terminator) == b""
    answer.end_round(complete=True)
    assert answer.round_failed
    assert answer.can_retry_empty_round
    answer.retry_round()
    answer.begin_round(200, SSE)
    assert answer.feed(form.words) == form.words
    assert not answer.can_retry_empty_round


@pytest.mark.parametrize(("form", "lost"), each("lost"))
def test_an_error_of_a_later_round_waits_so_that_the_round_can_be_repeated(form: DialectCase, lost: bytes) -> None:
    answer = form.answer()
    answer.begin_round(200, SSE)
    first = answer.feed(form.hidden)
    answer.end_round(complete=True)
    answer.begin_round(200, SSE)
    assert answer.feed(lost) == b""
    assert answer.round_failed
    assert not answer.round_is_visible
    assert not answer.end_round(complete=True).complete
    answer.begin_round(200, SSE)
    again = answer.feed(form.words)
    answer.end_round(complete=True)
    out = first + again + answer.finish()
    assert form.texts(out) == ["A", "B"]
    assert form.ended(out)


@every_form
@pytest.mark.parametrize("body", [UNREAD, b"\x1f\x8b" + UNREAD], ids=["words", "compressed"])
@pytest.mark.parametrize(("kind", "encoded"), [(JSON, False), ("text/html", False), (SSE, True)])
def test_s10_a_reply_that_is_no_stream_or_is_compressed_passes_unread(
    form: DialectCase, body: bytes, kind: str, encoded: bool
) -> None:
    played = form.play(body + form.hidden, kind=kind, encoded=encoded)
    assert played.out == body + form.hidden
    assert played.answer.is_error
    assert not played.spoken[0].complete


@every_form
@pytest.mark.parametrize("status", [429, 529])
def test_s8_an_error_status_passes_unless_the_clients_stream_has_begun(form: DialectCase, status: int) -> None:
    answer = form.answer()
    answer.begin_round(status, JSON)
    assert answer.feed(b"slow down") == b"slow down"
    for begun in (answer, form.answer()):
        begun.begin_round(200, SSE)
        begun.feed(form.hidden)
        begun.end_round(complete=True)
        begun.begin_round(500, JSON)
        assert begun.feed(b"broken") == b""
        assert begun.error_body == b"broken"


@every_form
@pytest.mark.parametrize("status", [503, 529])
def test_s8_s10_an_error_status_passes_in_any_round_of_what_is_no_stream(form: DialectCase, status: int) -> None:
    answer = form.answer(stream=False)
    answer.begin_round(200, JSON)
    assert answer.feed(form.called) == b""
    answer.end_round(complete=True)
    answer.begin_round(status, "text/html")
    assert answer.feed(b"<html>") == b"<html>"
    assert answer.is_error
    answer.end_round(complete=True)
    assert answer.finish() == b""


@every_form
def test_s4_an_error_in_a_later_round_of_what_is_no_stream_is_known_and_passes(form: DialectCase) -> None:
    played = form.play(form.called, form.error, stream=False)
    assert played.answer.round_failed
    assert not played.spoken[1].complete
    assert played.out == form.error


@every_form
def test_a_body_that_was_cut_off_is_not_complete(form: DialectCase) -> None:
    assert form.play(form.said, stream=False).spoken[0].complete
    assert not form.play(form.said[:-20], stream=False).spoken[0].complete


# -------------------------------------------------------------------------------------------------------------- laws
PLACES = st.lists(st.integers(0, 9000), max_size=12)


@every_form
@settings(max_examples=60)
@given(st.data())
def test_s1_any_cut_of_any_rounds_gives_the_same_bytes_and_the_same_message(
    form: DialectCase, data: st.DataObject
) -> None:
    goes_on = data.draw(st.lists(st.sampled_from(form.goes_on), max_size=3))
    rounds = [*goes_on, data.draw(st.sampled_from(form.last))]
    wanted = data.draw(st.sampled_from(form.plays))
    whole = form.play(*rounds, **wanted)
    other = form.play(*rounds, places=data.draw(PLACES), **wanted)
    assert other.out == whole.out
    assert other.spoken == whole.spoken
    assert b"stack" not in whole.out
    assert form.ended(whole.out)


@every_form
@settings(max_examples=60)
@given(st.data())
def test_s1_any_cut_of_a_stack_free_stream_is_byte_identical_and_read_alike(
    form: DialectCase, data: st.DataObject
) -> None:
    stream = form.stack_free[data.draw(st.sampled_from(sorted(form.stack_free)))]
    played = form.play(stream, places=data.draw(PLACES))
    assert played.out == stream
    assert played.spoken == form.play(stream, intercept=False).spoken
