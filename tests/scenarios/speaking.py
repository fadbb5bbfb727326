"""A person beside the client: what they say into its conversation, see of it, and stop."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from llm_test_provider import ReceivedRequest, ScriptedAnswer, ScriptedProvider
from proxy.core.ledger.queued_messages import HEADING
from tests.harness import WAIT_S, Conversation, Json, RunningProxy
from tests.laws import text_of

Result = TypeVar("Result")


class ManagementUser:
    """The person. `conversation` is the only one, unless it is named."""

    def __init__(self, proxy: RunningProxy, conversation: str = "") -> None:
        self.proxy = proxy
        self.at = f"/stack/conversations/{conversation or proxy.conversations[0]['id']}"

    def says(self, text: str, lane: str = "steer", **more: str) -> Json:
        status, told = self.proxy.asked("POST", f"{self.at}/messages", {"text": text, "lane": lane, **more})
        assert status == 202, told
        assert told["queued"] is True
        return dict(told)

    def refused(self, text: str, **more: str) -> tuple[int, str]:
        """The status and the code of a refusal."""
        status, told = self.proxy.asked("POST", f"{self.at}/messages", {"text": text, **more})
        return status, told["error"]["code"]

    @property
    def messages(self) -> list[Json]:
        return list(self.proxy.get(f"{self.at}/messages")["messages"])

    @property
    def states(self) -> list[str]:
        return [message["state"] for message in self.messages]

    @property
    def live(self) -> list[Json]:
        return list(self.proxy.get(f"{self.at}/live")["requests"])

    def cancels(self, **how: bool) -> Json:
        status, told = self.proxy.asked("POST", f"{self.at}/cancel", how)
        assert status == 200, told
        return dict(told)

    def stops(self) -> Json:
        return self._tells("stop")

    def resumes(self) -> Json:
        return self._tells("resume")

    def _tells(self, what: str) -> Json:
        status, told = self.proxy.asked("POST", f"{self.at}/{what}", {})
        assert status == 200, told
        return dict(told)


def beside(chat: Conversation) -> ManagementUser:
    return ManagementUser(chat.proxy)


def words(*texts: str) -> str:
    """What the model is told of these."""
    return "\n".join([HEADING, *(f"- {text}" for text in texts)])


def told_in(messages: Sequence[Json]) -> list[str]:
    """What a line holds of a person's words."""
    return [text_of(m) for m in messages if m["role"] == "user" and HEADING in text_of(m)]


def meanwhile(provider: ScriptedProvider, number: int, act: Callable[[], object], answer: ScriptedAnswer) -> None:
    """The provider's request of this number, from 1, is answered with `answer`, once `act` was done."""

    def arrived(received: ReceivedRequest) -> bool:
        if received.chat == number:
            act()
        return received.chat == number

    provider.when(arrived, answer)


class PendingRequest:
    """A client's request whose answer is read later, or never."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def rest(self) -> tuple[bytes, bool]:
        """What came of a stream, and whether it came to a regular end."""
        response = http.client.HTTPResponse(self._socket)
        response.begin()
        try:
            return response.read(), True
        except http.client.IncompleteRead as broken:
            return broken.partial, False

    def answer(self) -> tuple[int, Any]:
        """Status and body of an answer in JSON."""
        response = http.client.HTTPResponse(self._socket)
        response.begin()
        return response.status, json.loads(response.read())


@contextmanager
def in_flight(chat: Conversation, text: str = "") -> Iterator[PendingRequest]:
    """The user's next message, or the history as it stands, asked with. The end of the block is hanging up."""
    if text:
        chat.history.append({"role": "user", "content": text})
    body, tongue = chat.body(), chat.proxy.tongue
    head = {"host": "127.0.0.1", "content-type": "application/json", "content-length": len(body), **tongue.headers}
    lines = [f"POST {tongue.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    with socket.create_connection(("127.0.0.1", chat.proxy.port), timeout=WAIT_S) as connection:
        connection.sendall("\r\n".join(lines).encode() + body)
        yield PendingRequest(connection)


def until(found: Callable[[], Result | None]) -> Result:
    """What is `found`, once it is. Asked again and again: what it waits for is what the management API tells."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if result := found():
            return result
    raise AssertionError("it never came")
