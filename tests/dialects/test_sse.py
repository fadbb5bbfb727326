"""Server-sent events as bytes (RELIABILITY S1, S6): any cut reads the same, nothing is lost, nothing crashes."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import sse
from proxy.dialects.sse import SseDecoder, SseEvent, data_of, encode_event

STREAM = (
    b"\xef\xbb\xbfdata: first\n\n"
    b": a comment\n\n"
    b"data:no space\r\n\r\n"
    b"event: x\r\ndata: one\r\ndata: two\r\n\r\n"
    b"data: cr\r\r"
    b"\n"
    b"data: \xe2\x80\xa8 \xc2\x85 stay\n\n\n\n"
    b"data: \xff\xfe\n\r\n"
    b"data\n\n"
    b"datax: no\n\n"
    b"data: last"
)
DATA = [
    b"first",
    b"",
    b"no space",
    b"one\ntwo",
    b"cr",
    b"\xe2\x80\xa8 \xc2\x85 stay",
    b"",
    b"\xff\xfe",
    b"",
    b"",
    b"last",
]


def read(pieces: list[bytes]) -> list[SseEvent]:
    events = SseDecoder()
    found = [event for piece in pieces for event in events.feed(piece)]
    return found + events.end()


def cut_at(stream: bytes, places: list[int]) -> list[bytes]:
    borders = [0, *sorted(p % (len(stream) + 1) for p in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(borders)]


def test_s6_every_malformation_is_read_and_no_byte_is_lost() -> None:
    found = read([STREAM])
    assert [e.data for e in found] == DATA
    assert b"".join(e.raw for e in found) == STREAM


def test_s1_every_cut_in_two_and_byte_by_byte_reads_the_same() -> None:
    whole = read([STREAM])
    assert read([bytes([b]) for b in STREAM]) == whole
    for at in range(len(STREAM)):
        assert read([STREAM[:at], STREAM[at:]]) == whole


@given(st.lists(st.sampled_from([b"data: a", b"data:b", b"\n", b"\r", b"\r\n", b":c", b"x"]), max_size=30), st.data())
def test_s1_any_cut_of_any_stream_reads_the_same(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)
    pieces = cut_at(stream, data.draw(st.lists(st.integers(0, 200), max_size=8)))
    found = read(pieces)
    assert found == read([stream])
    assert b"".join(e.raw for e in found) == stream


@given(st.lists(st.sampled_from([b"data: a", b"data:b", b"\n\n", b"\n", b"\r\n", b":c"]), max_size=30), st.data())
def test_s1_what_is_said_is_the_data_of_the_events_however_it_is_cut(parts: list[bytes], data: st.DataObject) -> None:
    pieces = cut_at(b"".join(parts), data.draw(st.lists(st.integers(0, 200), max_size=8)))
    events = SseDecoder()
    said = [each for piece in pieces for each in events.feed_data(piece)]
    assert said + [event.data for event in events.end()] == [event.data for event in read(pieces)]


def test_an_event_leaves_as_soon_as_its_blank_line_is_there() -> None:
    events = SseDecoder()
    assert events.feed(b"data: a\r\n\r") == []
    assert [e.data for e in events.feed(b"\n")] == [b"a"]
    assert [e.data for e in events.feed(b"data: b\n\ndata: c")] == [b"b"]


@pytest.mark.parametrize("size", [1 << 10, 1 << 14])
def test_s6_a_line_beyond_the_limit_passes_as_bytes_and_memory_stays_bounded(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 4096)
    monkeypatch.setattr(sse, "SHORT", 1024)
    stream = b"data: " + b"x" * 10_000 + b"\n\ndata: after\n\n"
    events = SseDecoder()
    out = []
    for start in range(0, len(stream), size):
        out += events.feed(stream[start : start + size])
        assert len(events._held) <= 4096 + size
    out += events.end()
    assert b"".join(e.raw for e in out) == stream
    assert [e.data for e in out if e.data] == [b"after"]
    assert events.is_between_events


def test_data_lines_are_joined_and_other_fields_left_out() -> None:
    assert data_of(b"id: 1\ndata: a\nretry: 3\ndata:  b\n\n") == b"a\n b"


def test_s6_an_event_that_is_written_anew_has_one_line_of_data() -> None:
    """A line end inside the data would end the line, and the rest of it would be no data."""
    event = encode_event("some.event", b'{\n"a":\n"b\\n"\n}')
    assert event == b'event: some.event\ndata: { "a": "b\\n" }\n\n'
    assert json.loads(data_of(event)) == {"a": "b\n"}
