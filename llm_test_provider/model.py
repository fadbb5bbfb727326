"""The provider's side of one request, without a socket: check, count, choose an answer, plan its delivery.

`ScriptedModel.respond` is the whole way, in the order a real provider takes it: is the request in order, is the prompt
short enough, does its reasoning fit and is the required one there, what does the model say, what does it cost. What
differs between dialects is asked of their `Wire`. A request that is refused takes no answer off the script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from llm_test_provider.answer import (
    EVENT_STREAM_TYPE,
    JSON_TYPE,
    AnswerFacts,
    ApiError,
    FixedReply,
    JsonObject,
    LengthRefusal,
    ScriptedAnswer,
    ScriptedCall,
    Usage,
    error_reply,
    refusal,
)
from llm_test_provider.apis import responses
from llm_test_provider.apis.json import encoded
from llm_test_provider.apis.responses_store import ResponseStore
from llm_test_provider.apis.wires import MESSAGES, WIRES, Wire, check_messages
from llm_test_provider.delivery import Delivery, deliver
from llm_test_provider.error_texts import overflow_wording
from llm_test_provider.plan_windows import HiddenPlan
from llm_test_provider.prompt_cache import CACHE_RULES, PromptPart, SimulatedCache, SimulatedCacheUse
from llm_test_provider.reasoning_binding import (
    REQUIRED_FIELDS,
    BoundRequest,
    Field,
    Mode,
    ReasoningItem,
    RequiredReasoning,
    examine,
    seal,
    verdict_on,
    without_foreign_items,
)
from llm_test_provider.script import ReceivedRequest, Script
from llm_test_provider.strict_profiles import PROFILES, refusal_of
from llm_test_provider.templates import TemplateError, fill
from llm_test_provider.tokens import Counter, completion_tokens


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of one model the provider serves."""

    name: str
    window: int | None = None
    """Tokens a prompt may have; `None` is no limit."""
    cache: str | None = None
    """A name of `caches.CACHE_RULES`; `None` is that of the API that is asked."""
    required: tuple[Field, ...] = ()
    """What must come back with calls. The model invents it where the script does not give it."""
    refusal: str | None = None
    """In whose words a prompt is too long: a name of `wordings.OVERFLOWS`; `None` is the API that is asked."""
    binding: Mode = "none"
    """What becomes of reasoning that stands behind something else than it was made behind."""

    def __post_init__(self) -> None:
        if self.refusal is not None:
            overflow_wording(self.refusal)
        if self.cache not in (None, *CACHE_RULES) or not set(self.required) <= set(REQUIRED_FIELDS):
            raise ValueError(f"model {self.name!r} names an unknown cache or required field")


DEFAULT_MODEL = Model("scripted-model")
SECRET = b"scripted provider"
"""What seals reasoning. It is no secret: one provider can go on where another stopped."""


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that is in order, and what was found out about it on the way."""

    received: ReceivedRequest
    wire: Wire
    traits: Model
    parts: Sequence[PromptPart]
    bound: BoundRequest
    last: str
    """The token of the newest reasoning item that holds."""
    transformations: tuple[Mapping[str, str], ...]


class ScriptedModel:
    """All models of one provider: their script, their caches, what they gave away to be sent back."""

    def __init__(  # noqa: PLR0913 - as of the provider
        self,
        script: Script,
        models: Iterable[Model],
        *,
        count: Counter,
        clock: Callable[[], float],
        now: Callable[[], float],
        strict: str | None = None,
        plan: HiddenPlan | None = None,
    ) -> None:
        """`clock` is in seconds and drives the caches; `now` is the time of day in seconds since 1970. `strict` names
        the provider that refuses; a `plan` is what all requests are paid by."""
        self._plan = plan
        if strict is not None and strict not in PROFILES:
            raise ValueError(f"unknown strict profile {strict!r}; there are {', '.join(PROFILES)}")
        self.script, self._strict = script, PROFILES[strict] if strict else None
        required = self._strict.required if self._strict else ()
        given = [replace(model, required=tuple({*model.required, *required})) for model in models]
        default = replace(DEFAULT_MODEL, required=required)
        self.models = {model.name: model for model in given} or {default.name: default}
        self._count, self._clock, self._now = count, clock, now
        self._caches: dict[tuple[str, str], SimulatedCache] = {}
        self._required = RequiredReasoning()
        self._kept = ResponseStore()
        self._answers = 0
        self._calls = 0

    def model(self, name: str) -> Model:
        """A model by name; one that is not listed behaves like the first."""
        return self.models.get(name) or next(iter(self.models.values()))

    def respond(self, received: ReceivedRequest) -> Delivery | bytes:
        """What to write for this request for an answer; bytes are written in place of any HTTP."""
        wire = WIRES[received.dialect or "chat"]
        try:
            asked = self._asked(received, wire)
        except RecursionError:
            asked = error_reply(400, ApiError("The request is nested too deeply."))
        return fixed(asked, wire=wire) if isinstance(asked, FixedReply) else self._scripted(asked)

    def count(self, received: ReceivedRequest) -> Delivery:
        """What the messages API says to a request that only asks for its tokens."""
        refused = check_messages(received, counted=True)
        if refused:
            return fixed(error_reply(400, refused), wire=MESSAGES)
        tokens = sum(part.tokens for part in MESSAGES.parts(received, self._count))
        return fixed(FixedReply(200, encoded({"input_tokens": tokens})))

    def stored(self, received: ReceivedRequest) -> FixedReply | None:
        """What a path below `/responses/` gives; `None` where this is none."""
        return self._kept.answer(received.method, received.path, received.query)

    def _asked(self, received: ReceivedRequest, wire: Wire) -> CheckedRequest | FixedReply:
        """The request, taken apart, or why it is refused."""
        unknown = self._kept.resolve(received) if received.dialect == "responses" else None
        refused = wire.check(received)
        if unknown:
            return unknown
        if refused:
            return error_reply(400, refused)
        if self._strict and (strictly := refusal_of(self._strict.name, received.dialect or "chat", received.body)):
            return strictly
        traits = self.model(str(received.body.get("model")))
        parts = wire.parts(received, self._count)
        used = sum(part.tokens for part in parts)
        if traits.window is not None and used > traits.window:
            return _too_long(LengthRefusal(used, traits.window), traits.refusal or wire.too_long)
        bound = wire.bound(received)
        found = examine(SECRET, without_foreign_items(bound) if traits.binding == "none" else bound, wire.known_as)
        judged = verdict_on(found, wire.mode(received, traits.binding), wire.words)
        missing = judged.refusal or self._missing(received, traits)
        if missing:
            return error_reply(400, ApiError(missing, code="invalid_request_error"))
        return CheckedRequest(received, wire, traits, parts, bound, found.last, judged.input_transformations)

    def _missing(self, received: ReceivedRequest, traits: Model) -> str | None:
        """Why reasoning that must be there is not."""
        if received.dialect == "responses":
            return self._kept.misplaced(received.items or ())
        return self._required.refuse(received.messages, traits.required) if received.dialect == "chat" else None

    def _scripted(self, asked: CheckedRequest) -> Delivery | bytes:
        """What the script says to a request that is in order."""
        answer = self._taken(asked.received)
        if isinstance(answer, FixedReply):
            return fixed(answer, wire=asked.wire)
        match answer.instead:
            case None:
                return self._completed(answer, asked)
            case bytes():
                return answer.instead
            case LengthRefusal():
                return fixed(_too_long(answer.instead, asked.wire.too_long), answer, wire=asked.wire)
            case FixedReply():
                return fixed(answer.instead, answer, wire=asked.wire)

    def _taken(self, received: ReceivedRequest) -> ScriptedAnswer | FixedReply:
        """The next answer of the script, its templates filled, or what is wrong with the script."""
        try:
            scripted = self.script.take(received)
            if scripted is not None:
                return fill(scripted, received.messages)
        except TemplateError as error:
            return _script_error(str(error), "script_template")
        except Exception as error:  # whatever a test's own condition or answer raises must be seen by that test
            return _script_error(f"script failed: {error!r}", "script_failed")
        words = f"script exhausted: nothing is left for {received.dialect} request {received.chat}"
        return _script_error(words, "script_exhausted")

    def _completed(self, answer: ScriptedAnswer, asked: CheckedRequest) -> Delivery:
        received, traits, wire = asked.received, asked.traits, asked.wire
        self._answers += 1
        call_id = (self._strict.call_id if self._strict else "") or wire.call_id
        answer = self._with_required(self._numbered(answer, call_id), traits)
        if self._strict and answer.reasoning_fields == ScriptedAnswer().reasoning_fields:
            answer = answer.but(reasoning_fields=(self._strict.reasoning_field,))
        self._required.give(answer, traits.required)
        # The cache is used also where the script says what to report: the next request must find this one in it.
        use = self._cache_of(asked).use(asked.parts)
        received.usage = answer.usage or self._usage(answer, use)
        facts = self._facts(answer, asked, received.usage)
        if received.dialect == "responses" and answer.error is None:
            self._kept.keep(received, wire.body_of(answer, facts), responses.output_of(answer, facts))
        headers = wire.headers(self._answers)
        if self._plan:
            headers = (*headers, *self._plan.take(received.usage, received.dialect or "chat", self._now()))
        if received.body.get("stream") is True:
            events = wire.events_of(answer, facts)
            return deliver(answer, 200, (EVENT_STREAM_TYPE, *headers), events, streamed=True)
        body = wire.failure(answer.error) if answer.error else wire.body_of(answer, facts)
        if body.get("background"):
            body |= {"status": "queued", "output": [], "usage": None}
        return deliver(answer, 200, (JSON_TYPE, *headers), [encoded(body)], streamed=False)

    def _facts(self, answer: ScriptedAnswer, asked: CheckedRequest, usage: Usage) -> AnswerFacts:
        return AnswerFacts(
            number=self._answers,
            model=str(asked.received.body.get("model")),
            created=int(self._now()),
            usage=usage,
            request=_resolved(asked.received),
            readable=asked.wire.readable(asked.received, answer),
            token=_sealed(answer, asked).token if answer.reasoning else "",
            transformations=asked.transformations,
        )

    def _usage(self, answer: ScriptedAnswer, use: SimulatedCacheUse) -> Usage:
        completion, reasoning = completion_tokens(answer, self._count)
        prompt = use.cached + use.written + use.uncached
        return Usage(prompt, completion, use.cached, use.written, reasoning, use.written_long)

    def _cache_of(self, asked: CheckedRequest) -> SimulatedCache:
        """The cache of the request's model and account."""
        received = asked.received
        account = received.header("authorization") or received.header("x-api-key") or ""
        key = (str(received.body.get("model")), account)
        if key not in self._caches:
            self._caches[key] = SimulatedCache(CACHE_RULES[asked.traits.cache or asked.wire.cache], self._clock)
        return self._caches[key]

    def _numbered(self, answer: ScriptedAnswer, prefix: str) -> ScriptedAnswer:
        """Every call with an id."""
        return answer.but(calls=tuple(self._with_id(call, prefix) for call in answer.calls))

    def _with_id(self, call: ScriptedCall, prefix: str) -> ScriptedCall:
        self._calls += 1
        return call if call.id else replace(call, id=f"{prefix}{self._calls:08d}")

    def _with_required(self, answer: ScriptedAnswer, traits: Model) -> ScriptedAnswer:
        if not answer.calls:
            return answer
        if "reasoning_content" in traits.required and not answer.reasoning:
            answer = answer.but(reasoning=f"Considering step {self._answers}.")
        first, *others = answer.calls
        if "thought_signature" in traits.required and not first.signature:
            answer = answer.but(calls=(replace(first, signature=f"c2lnbmVk{self._answers:08d}"), *others))
        return answer


def fixed(reply: FixedReply, answer: ScriptedAnswer | None = None, *, wire: Wire | None = None) -> Delivery:
    """The delivery of a fixed reply, cut and broken as `answer` says, its error in the shape of the dialect."""
    body = wire.error_body(reply) if wire and reply.error else reply.body
    return deliver(answer or ScriptedAnswer(), reply.status, reply.headers, [body], streamed=False)


def _too_long(refused: LengthRefusal, name: str) -> FixedReply:
    """The refusal in the words of this name, whoever is asked."""
    return refusal(overflow_wording(name), refused.used, refused.window)


def _resolved(received: ReceivedRequest) -> JsonObject:
    """The body, with the whole input where it only referred to some of it."""
    body: JsonObject = received.body
    return body if received.items is None else body | {"input": received.items}


def _script_error(words: str, code: str) -> FixedReply:
    return error_reply(500, ApiError(words, "script_error", code))


def _sealed(answer: ScriptedAnswer, asked: CheckedRequest) -> ReasoningItem:
    """The reasoning of an answer, tied to the request and to what is said with it."""
    content = asked.wire.readable(asked.received, answer)
    return seal(SECRET, content, asked.bound, asked.last, asked.wire.together(answer))
