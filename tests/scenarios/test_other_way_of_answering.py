"""Providers that answer in another form than asked: read as it came, delivered as asked."""

import gzip
import json
import zlib

import pytest

from llm_test_provider import FixedReply, ScriptedAnswer, ScriptedProvider, says
from tests.harness import Stage, op

pytestmark = pytest.mark.rows("X-37")
OURS = op("context_info")


@pytest.mark.parametrize("label", ["right", "wrong"])
@pytest.mark.spoken_in("chat", reason="the replies are written by hand")
def test_a_stream_for_a_plain_question_and_a_body_for_a_streamed_one(
    stage: Stage, provider: ScriptedProvider, label: str
) -> None:
    chat = stage.chat()
    kind = ("application/json" if stage.streamed else "text/event-stream") if label == "right" else (
        "text/event-stream" if stage.streamed else "application/json"
    )  # fmt: skip
    provider.will(_reply(_written(as_stream=not stage.streamed), kind), says("All done."))

    answer = chat.says("Do it, please.")

    assert (answer.status, answer.ended) == (200, True)
    assert answer.text == "Hm. \n\nAll done."
    assert b"stack" not in answer.raw
    assert len(provider.received) == 2
    assert ("event-stream" in answer.headers["content-type"]) is stage.streamed


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, lambda raw: zlib.compress(raw, wbits=-15)])
@pytest.mark.spoken_in("chat", reason="the replies are written by hand")
def test_a_compressed_answer_that_nobody_asked_for(stage: Stage, provider: ScriptedProvider, pack: object) -> None:
    assert callable(pack)
    coding = "gzip" if pack is gzip.compress else "deflate"
    kind = "text/event-stream" if stage.streamed else "application/json"
    raw = pack(_written(as_stream=stage.streamed))
    provider.will(_reply(raw, kind, coding), says("All done."))

    answer = stage.chat().says("Do it, please.")

    assert (answer.text, answer.ended) == ("Hm. \n\nAll done.", True)
    assert "content-encoding" not in answer.headers


@pytest.mark.spoken_in("chat", reason="the replies are written by hand")
def test_a_byte_order_mark_hides_no_call_of_ours(stage: Stage, provider: ScriptedProvider) -> None:
    kind = "text/event-stream" if stage.streamed else "application/json"
    provider.will(_reply(b"\xef\xbb\xbf" + _written(as_stream=stage.streamed), kind), says("All done."))

    answer = stage.chat().says("Do it, please.")

    assert (answer.text, answer.ended) == ("Hm. \n\nAll done.", True)
    assert b"stack" not in answer.raw


def _reply(raw: bytes, kind: str, coding: str = "") -> ScriptedAnswer:
    packed = (("content-encoding", coding),) if coding else ()
    return ScriptedAnswer(instead=FixedReply(200, raw, (("content-type", kind), *packed)))


def _written(*, as_stream: bool) -> bytes:
    """An answer with words and a call of ours."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": OURS.name, "arguments": json.dumps(OURS.arguments)},
    }
    message = {"role": "assistant", "content": "Hm. ", "tool_calls": [call]}
    head = {"id": "x", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    if not as_stream:
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
    deltas = [({**message, "tool_calls": [{"index": 0, **call}]}, None), ({}, "tool_calls")]
    chunks = [{**head, "choices": [{"index": 0, "delta": d, "finish_reason": f}]} for d, f in deltas]
    return b"".join(b"data: " + json.dumps(c).encode() + b"\n\n" for c in chunks) + b"data: [DONE]\n\n"
