"""Which answer comes next: rules first, in the order they were made, then the queue, then nothing.

`Received` is one request as the provider saw it; `When` a condition on one; `Script` holds the answers. Tests add
answers from their own thread while the provider takes them in another, so `Script` locks.

Its one law: a request that no rule wants and the queue has nothing for gets `None`. The provider says so with a 500;
it never makes an answer up.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from llm_test_provider.answer import Headers, JsonObject, ScriptedAnswer, ScriptedCall, Usage
from llm_test_provider.apis import Dialect, messages_request, responses_request
from llm_test_provider.apis.json import mapping, mappings
from llm_test_provider.templates import last_text, text_of


@dataclass(eq=False, slots=True)
class ReceivedRequest:
    """One request, and what became of it."""

    number: int
    """Counted over all requests, from 1."""
    method: str
    path: str
    query: str
    headers: Headers
    """As sent: case, order and repeats kept."""
    raw: bytes
    body: Any
    """The parsed JSON, `None` where it is none."""
    arrived: float
    """Seconds of the provider's clock."""
    trailers: Headers = ()
    chat: int = 0
    """Counted over the requests for an answer alone, in whichever dialect, from 1; 0 for others."""
    dialect: Dialect | None = None
    """In which an answer is asked for; `None` for other requests."""
    items: list[JsonObject] | None = None
    """Responses: the whole input, with what the request only refers to put in its place."""
    status: int = 0
    usage: Usage | None = None
    """What the model was charged for, as reported."""
    left_at: float | None = None
    """When the peer left before its answer was complete; `None` where it stayed."""
    finished_at: float | None = None
    """When the last byte was written, or the scripted break was made."""

    def __getitem__(self, key: str) -> Any:
        return self.body[key]

    @property
    def messages(self) -> list[JsonObject]:
        """The messages of the body; empty where it has none. Those of other dialects are told as chat messages."""
        body = mapping(self.body)
        if self.dialect == "messages":
            return messages_request.conversation(body)
        if self.dialect == "responses":
            return responses_request.conversation(body, self.items)
        return [dict(message) for message in mappings(body.get("messages"))]

    @property
    def system(self) -> str:
        """All leading system text, joined by blank lines."""
        roles = ("system", "developer")
        leading = takewhile(lambda message: message.get("role") in roles, self.messages)
        return "\n\n".join(text_of(message.get("content")) for message in leading)

    @property
    def calls(self) -> list[ScriptedCall]:
        """All calls of the conversation, oldest first, their arguments as text."""
        made = [call for message in self.messages for call in mappings(message.get("tool_calls"))]
        functions = [(call, mapping(call.get("function"))) for call in made]
        return [ScriptedCall(str(f.get("name")), str(f.get("arguments")), str(call.get("id"))) for call, f in functions]

    @property
    def results(self) -> list[tuple[str, str]]:
        """All tool results of the conversation, oldest first: the id of the call, and the text."""
        found = [message for message in self.messages if message.get("role") in ("tool", "function")]
        return [(str(each.get("tool_call_id")), text_of(each.get("content"))) for each in found]

    @property
    def tool_names(self) -> list[str]:
        """Names of the tools offered, in order."""
        body = mapping(self.body)
        if self.dialect == "responses":
            return [tool.name for tool in responses_request.tools_of(body, self.items)]
        if self.dialect == "messages":
            return messages_request.tool_names(body)
        return [str(mapping(tool.get("function")).get("name")) for tool in mappings(body.get("tools"))]

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever its case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


Condition = Callable[[ReceivedRequest], bool]
Scripted = ScriptedAnswer | Callable[[ReceivedRequest], ScriptedAnswer]


@dataclass(frozen=True, slots=True)
class When:
    """A condition on a request; all that is stated must hold. Texts are regular expressions, found anywhere."""

    user: str | None = None
    """In the newest user message."""
    tool_result: str | None = None
    """The request ends with a tool result, and this is in it."""
    tool: str | None = None
    """A tool of this name is offered."""
    model: str | None = None
    """The whole model name."""
    body: str | None = None
    """In the body as it was sent."""
    request: int | None = None
    """It is the n-th request for an answer, from 1."""

    def __call__(self, received: ReceivedRequest) -> bool:
        checks = (
            self.user is None or _in(self.user, last_text(received.messages, "user")),
            self.tool_result is None or _in(self.tool_result, _ending_result(received.messages)),
            self.tool is None or self.tool in received.tool_names,
            self.model is None or bool(re.fullmatch(self.model, str(mapping(received.body).get("model")))),
            self.body is None or _in(self.body, received.raw.decode("utf-8", "replace")),
            self.request is None or self.request == received.chat,
        )
        return all(checks)


def contains(marker: str) -> Condition:
    """The condition that a text stands anywhere in the body: enough to tell parallel conversations apart."""
    return When(body=re.escape(marker))


def _in(pattern: str, text: str | None) -> bool:
    return text is not None and re.search(pattern, text) is not None


def _ending_result(messages: list[JsonObject]) -> str | None:
    last = messages[-1] if messages else {}
    return text_of(last.get("content")) if last.get("role") in ("tool", "function") else None


@dataclass(slots=True)
class Rule:
    """Answers for the requests that meet a condition. Used up, it steps aside; with `loop` it starts again."""

    condition: Condition
    answers: list[Scripted]
    loop: bool = False
    taken: int = 0

    def take(self) -> Scripted | None:
        if self.loop and self.answers:
            self.taken %= len(self.answers)
        if self.taken >= len(self.answers):
            return None
        self.taken += 1
        return self.answers[self.taken - 1]


def _always(_: ReceivedRequest) -> bool:
    return True


@dataclass
class Script:
    """All answers a provider has left to give."""

    rules: list[Rule] = field(default_factory=list)
    queue: Rule = field(default_factory=lambda: Rule(_always, []))

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def will(self, answers: Iterable[Scripted]) -> None:
        with self._lock:
            self.queue.answers.extend(answers)

    def when(self, condition: Condition, answers: Iterable[Scripted], *, loop: bool = False) -> None:
        with self._lock:
            self.rules.append(Rule(condition, list(answers), loop))

    def take(self, received: ReceivedRequest) -> ScriptedAnswer | None:
        """The answer for this request, taken off the script; `None` where nothing is left for it."""
        with self._lock:
            taken = next(
                (answer for rule in (*self.rules, self.queue) if rule.condition(received) and (answer := rule.take())),
                None,
            )
        return taken(received) if callable(taken) else taken

    @property
    def scripted(self) -> int:
        """Answers of all rules, whether given or not."""
        with self._lock:
            return sum(len(rule.answers) for rule in (*self.rules, self.queue))

    @property
    def left(self) -> int:
        """Answers not given yet; those of looping rules are not counted."""
        with self._lock:
            return sum(len(rule.answers) - rule.taken for rule in (*self.rules, self.queue) if not rule.loop)
