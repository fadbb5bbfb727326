"""The provider's side of one chat request, without a socket: check, count, choose an answer, plan its delivery.

`ScriptedModel.respond` is the whole way, in the order a real provider takes it: can the body be read, is the prompt
short enough, is required reasoning there, what does the model say, what does it cost. A request that is refused takes
no answer off the script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxy.scripted.answer import EVENT_STREAM_TYPE, JSON_TYPE, Answer, Call, Headers, Reply, Usage, error_body
from proxy.scripted.binding import REQUIRED_FIELDS, Field, Required
from proxy.scripted.caches import CACHE_RULES, CacheUse, Part, PrefixCache
from proxy.scripted.completion import Facts, body_of, encoded, events_of
from proxy.scripted.counting import Counter, completion_tokens, parts_of
from proxy.scripted.delivery import Delivery, deliver
from proxy.scripted.script import Received, Script
from proxy.scripted.templates import TemplateError, fill
from proxy.scripted.wordings import overflow_wording


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of one model the provider serves."""

    name: str
    window: int | None = None
    """Tokens a prompt may have; `None` is no limit."""
    cache: str = "openai"
    """A name of `caches.CACHE_RULES`."""
    required: tuple[Field, ...] = ()
    """What must come back with calls. The model invents it where the script does not give it."""
    refusal: str = "openai"
    """In whose words a prompt is too long: a name of `wordings.OVERFLOWS`."""

    def __post_init__(self) -> None:
        overflow_wording(self.refusal)
        if self.cache not in CACHE_RULES or not set(self.required) <= set(REQUIRED_FIELDS):
            raise ValueError(f"model {self.name!r} names an unknown cache or required field")


DEFAULT_MODEL = Model("scripted-model")


class ScriptedModel:
    """All models of one provider: their script, their caches, what they gave away to be sent back."""

    def __init__(
        self,
        script: Script,
        models: Iterable[Model],
        *,
        count: Counter,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """`clock` is in seconds and drives the caches; `now` is the time of day in seconds since 1970."""
        self.script = script
        self.models = {model.name: model for model in models} or {DEFAULT_MODEL.name: DEFAULT_MODEL}
        self._count, self._clock, self._now = count, clock, now
        self._caches: dict[tuple[str, str], PrefixCache] = {}
        self._required = Required()
        self._answers = 0
        self._calls = 0

    def model(self, name: str) -> Model:
        """A model by name; one that is not listed behaves like the first."""
        return self.models.get(name) or next(iter(self.models.values()))

    def respond(self, received: Received) -> Delivery | bytes:
        """What to write for this chat request; bytes are written in place of any HTTP."""
        unreadable = _unreadable(received)
        if unreadable:
            return fixed(Reply(400, error_body(unreadable, "invalid_request_error", None)))
        try:
            parts = parts_of(received.body, self._count)
        except RecursionError:
            return fixed(Reply(400, error_body("The request is nested too deeply.", "invalid_request_error", None)))
        traits = self.model(str(received.body.get("model")))
        refusal = self._refused(received, parts, traits)
        return fixed(refusal) if refusal else self._scripted(received, parts, traits)

    def _scripted(self, received: Received, parts: Sequence[Part], traits: Model) -> Delivery | bytes:
        """What the script says to a request that is in order."""
        try:
            scripted = self.script.take(received)
            answer = fill(scripted, received.messages) if scripted else None
        except TemplateError as error:
            return fixed(Reply(500, error_body(str(error), "script_error", "script_template")))
        except Exception as error:  # whatever a test's own condition or answer raises must be seen by that test
            return fixed(Reply(500, error_body(f"script failed: {error!r}", "script_error", "script_failed")))
        if answer is None:
            words = f"script exhausted: nothing is left for chat request {received.chat}"
            return fixed(Reply(500, error_body(words, "script_error", "script_exhausted")))
        if isinstance(answer.instead, bytes):
            return answer.instead
        if answer.instead is not None:
            return fixed(answer.instead, answer)
        return self._completed(answer, received, parts, traits)

    def _refused(self, received: Received, parts: Sequence[Part], traits: Model) -> Reply | None:
        used = sum(part.tokens for part in parts)
        if traits.window is not None and used > traits.window:
            wording = overflow_wording(traits.refusal)
            return Reply(wording.status, wording.body(used, traits.window))
        missing = self._required.refuse(received.messages, traits.required)
        return Reply(400, error_body(missing, "invalid_request_error", "invalid_request_error")) if missing else None

    def _completed(self, answer: Answer, received: Received, parts: Sequence[Part], traits: Model) -> Delivery:
        self._answers += 1
        answer = self._with_required(self._numbered(answer), traits)
        self._required.give(answer, traits.required)
        # The cache is used also where the script says what to report: the next request must find this one in it.
        use = self._cache_of(received, traits).use(parts)
        received.usage = answer.usage or self._usage(answer, use)
        facts = self._facts(received, received.usage)
        headers: Headers = (
            ("x-request-id", f"req-scripted-{self._answers}"),
            ("x-ratelimit-remaining-requests", "999"),
        )
        if received.body.get("stream") is True:
            return deliver(answer, 200, (EVENT_STREAM_TYPE, *headers), events_of(answer, facts), streamed=True)
        body = encoded({"error": dict(answer.error.error)}) if answer.error else body_of(answer, facts)
        return deliver(answer, 200, (JSON_TYPE, *headers), [body], streamed=False)

    def _facts(self, received: Received, usage: Usage) -> Facts:
        body = received.body
        options = body.get("stream_options")
        return Facts(
            number=self._answers,
            model=str(body.get("model")),
            created=int(self._now()),
            usage=usage,
            choices=body["n"] if isinstance(body.get("n"), int) and 0 < body["n"] <= 128 else 1,
            include_usage=isinstance(options, dict) and options.get("include_usage") is True,
            logprobs=body.get("logprobs") is True,
            legacy_functions=bool(body.get("functions")) and not body.get("tools"),
        )

    def _usage(self, answer: Answer, use: CacheUse) -> Usage:
        completion, reasoning = completion_tokens(answer, self._count)
        return Usage(use.cached + use.written + use.uncached, completion, use.cached, use.written, reasoning)

    def _cache_of(self, received: Received, traits: Model) -> PrefixCache:
        """The cache of the request's model and account."""
        key = (str(received.body.get("model")), received.header("authorization") or "")
        if key not in self._caches:
            self._caches[key] = PrefixCache(CACHE_RULES[traits.cache], self._clock)
        return self._caches[key]

    def _numbered(self, answer: Answer) -> Answer:
        """Every call with an id."""
        return answer.but(calls=tuple(self._with_id(call) for call in answer.calls))

    def _with_id(self, call: Call) -> Call:
        self._calls += 1
        return call if call.id else replace(call, id=f"call_{self._calls:08d}")

    def _with_required(self, answer: Answer, traits: Model) -> Answer:
        if not answer.calls:
            return answer
        if "reasoning_content" in traits.required and not answer.reasoning:
            answer = answer.but(reasoning=f"Considering step {self._answers}.")
        first, *others = answer.calls
        if "thought_signature" in traits.required and not first.signature:
            answer = answer.but(calls=(replace(first, signature=f"c2lnbmVk{self._answers:08d}"), *others))
        return answer


def fixed(reply: Reply, answer: Answer | None = None) -> Delivery:
    """The delivery of a fixed reply, cut and broken as `answer` says."""
    return deliver(answer or Answer(), reply.status, reply.headers, [reply.body], streamed=False)


def _unreadable(received: Received) -> str:
    """Why the body is no chat request; empty where it is one."""
    body: Any = received.body
    if not isinstance(body, dict):
        return "We could not parse the JSON body of your request."
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "Invalid 'messages': expected a non-empty array."
    if not all(isinstance(message, dict) for message in messages):
        return "Invalid 'messages': expected objects."
    return ""
