"""A scenario file: the script of a provider as YAML, checked where it enters.

`load` turns a file into a `Scenario`: models, queue, rules. Keys are those of `answer.Answer` plus shorthands for
faults; docs/provider.md explains each. Its one law: a mistake in a file is told with its line, its path inside the
file, and for an unknown word the nearest known one. Nothing is ignored.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from llm_test_provider.answer import (
    EVERY_BYTE,
    WHOLE_EVENTS,
    Cut,
    Ending,
    ErrorEvent,
    FixedReply,
    Framing,
    How,
    LengthRefusal,
    ScriptedAnswer,
    ScriptedCall,
    Usage,
    overflow,
    status,
    throttled,
)
from llm_test_provider.apis import chat_calls as call_forms
from llm_test_provider.apis import chat_sse, typed_sse
from llm_test_provider.error_texts import OVERFLOWS, THROTTLES
from llm_test_provider.model import Model
from llm_test_provider.prompt_cache import CACHE_RULES
from llm_test_provider.reasoning_binding import Field as RequiredField
from llm_test_provider.reasoning_binding import Mode
from llm_test_provider.script import Rule, Script, When
from llm_test_provider.strict_profiles import PROFILES
from proxy.errors import InvalidConfiguration


class ScenarioError(InvalidConfiguration):
    """A scenario file cannot be used. The message names line, path and what to write instead."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a file says."""

    models: tuple[Model, ...]
    script: Script
    strict: str | None = None


# -------------------------------------------------------------------------------------------------------- known words
def _known(words: Sequence[str], what: str) -> AfterValidator:
    def check(word: str) -> str:
        if word not in words:
            raise ValueError(f"unknown {what} {word!r}{_nearest(word, words)}")
        return word

    return AfterValidator(check)


def _nearest(word: str, words: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, words, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; use one of {', '.join(sorted(words))}"


EventForm = Annotated[str, _known(sorted(chat_sse.FORMS | typed_sse.FORMS), "event form")]
CallForm = Annotated[str, _known(sorted(call_forms.FORMS), "call form")]
OverflowName = Annotated[str, _known([row.name for row in OVERFLOWS], "overflow wording")]
ThrottleName = Annotated[str, _known([row.name for row in THROTTLES], "throttling wording")]
ProfileName = Annotated[str, _known(list(PROFILES), "strict profile")]
CacheName = Annotated[str, _known(sorted(CACHE_RULES), "cache")]


# ---------------------------------------------------------------------------------------------------------- the models
class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Call(_Strict):
    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""
    signature: str = ""

    def value(self) -> ScriptedCall:
        return ScriptedCall(self.name, self.arguments, self.id, self.signature)


class _Usage(_Strict):
    prompt: int
    completion: int
    cached: int = 0
    written: int = 0
    reasoning: int = 0
    written_long: int = 0

    def value(self) -> Usage:
        return Usage(**self.model_dump())


class _Cut(_Strict):
    bytes: int = Field(gt=0)
    seed: int | None = None


class _Ending(_Strict):
    how: How
    after_bytes: int | None = Field(default=None, ge=0)
    after_events: int | None = Field(default=None, ge=0)
    seconds: float = float("inf")

    def value(self) -> Ending:
        return Ending(**self.model_dump())


class _ErrorEvent(_Strict):
    message: str
    code: int | str = 502
    after_events: int = 0
    with_choices: bool = False
    then_done: bool = False
    as_failed: bool = False

    def value(self) -> ErrorEvent:
        error = {"message": self.message, "type": "server_error", "code": self.code}
        return ErrorEvent(error, self.after_events, self.with_choices, self.then_done, self.as_failed)


class _Answer(_Strict):
    """One answer. At most one of `status`, `overflow`, `throttle`, `raw` may stand in for the model's words."""

    text: str = ""
    reasoning: str = ""
    call: _Call | None = None
    calls: tuple[_Call, ...] = ()
    finish: str | None = None
    usage: _Usage | None = None
    redacted: bool = False
    extra: dict[str, Any] = {}

    status: int | None = None
    body: dict[str, Any] | str | None = None
    overflow: OverflowName | None = None
    throttle: ThrottleName | None = None
    raw: str | None = None

    error: _ErrorEvent | None = None
    ending: _Ending | None = None

    cut: Literal["events", "every_byte"] | _Cut = "events"
    pace_ms: float = Field(default=0, ge=0)
    delay_s: float = Field(default=0, ge=0)
    piece: int = Field(default=12, gt=0)
    events: tuple[EventForm, ...] = ()
    call_forms: tuple[CallForm, ...] = ()
    reasoning_fields: tuple[Literal["reasoning_content", "reasoning", "reasoning_details"], ...] = (
        "reasoning_content",
    )
    encoding: tuple[Literal["gzip", "deflate"], ...] = ()
    framing: Framing | None = None
    headers: dict[str, str] = {}
    trailers: dict[str, str] = {}

    @model_validator(mode="after")
    def _one_stand_in(self) -> _Answer:
        given = [key for key in ("status", "overflow", "throttle", "raw") if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other")
        if self.body is not None and self.status is None:
            raise ValueError("body needs a status")
        return self

    def value(self) -> ScriptedAnswer:
        cut = {"events": WHOLE_EVENTS, "every_byte": EVERY_BYTE}
        return ScriptedAnswer(
            text=self.text,
            reasoning=self.reasoning,
            calls=tuple(call.value() for call in ((self.call,) if self.call else ()) + self.calls),
            finish=self.finish,
            usage=self.usage.value() if self.usage else None,
            instead=self._stand_in(),
            error=self.error.value() if self.error else None,
            ending=self.ending.value() if self.ending else None,
            cut=Cut(self.cut.bytes, self.cut.seed) if isinstance(self.cut, _Cut) else cut[self.cut],
            headers=tuple(self.headers.items()),
            trailers=tuple(self.trailers.items()),
            **self.model_dump(include=_CARRIED_OVER),
        )

    def _stand_in(self) -> FixedReply | LengthRefusal | bytes | None:
        if self.status is not None:
            return status(self.status, body=self.body).instead
        if self.overflow is not None:
            return overflow(self.overflow).instead
        if self.throttle is not None:
            return throttled(self.throttle).instead
        return None if self.raw is None else self.raw.encode()


_CARRIED_OVER = {
    "pace_ms",
    "delay_s",
    "piece",
    "events",
    "call_forms",
    "reasoning_fields",
    "encoding",
    "extra",
    "framing",
    "redacted",
}
"""Keys whose values need no translation."""


class _When(_Strict):
    user: str | None = None
    tool_result: str | None = None
    tool: str | None = None
    model: str | None = None
    body: str | None = None
    request: int | None = None


class _Rule(_Strict):
    when: _When
    answer: _Answer | None = None
    answers: tuple[_Answer, ...] = ()
    loop: bool = False

    @model_validator(mode="after")
    def _says_something(self) -> _Rule:
        if not self.answer and not self.answers:
            raise ValueError("a rule needs answer or answers")
        return self

    def value(self) -> Rule:
        given = ((self.answer,) if self.answer else ()) + self.answers
        return Rule(When(**self.when.model_dump()), [answer.value() for answer in given], self.loop)


class _Model(_Strict):
    window: int | None = Field(default=None, gt=0)
    cache: CacheName | None = None
    required: tuple[RequiredField, ...] = ()
    refusal: OverflowName | None = None
    binding: Mode = "none"


class _Scenario(_Strict):
    models: dict[str, _Model] = {}
    answers: tuple[_Answer, ...] = ()
    loop: bool = False
    rules: tuple[_Rule, ...] = ()
    strict: ProfileName | None = None

    def value(self) -> Scenario:
        models = tuple(Model(name, **model.model_dump()) for name, model in self.models.items())
        script = Script([rule.value() for rule in self.rules])
        script.will(answer.value() for answer in self.answers)
        script.queue.loop = self.loop
        return Scenario(models, script, self.strict)


# -------------------------------------------------------------------------------------------------------------- loading
def load(path: Path) -> Scenario:
    """The scenario in a file. Raises ScenarioError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ScenarioError(f"{path}: cannot be read: {reason}") from error
    return read(text, str(path))


def read(text: str, name: str = "scenario") -> Scenario:
    """The scenario in a text. Raises ScenarioError; `name` stands in its message."""
    try:
        tree = yaml.compose(text, yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScenarioError(f"{name}: not YAML: {error}") from error
    try:
        return _Scenario.model_validate(content or {}).value()
    except ValidationError as error:
        lines = [_explained(problem, tree, name) for problem in error.errors()]
        raise ScenarioError("\n".join(lines)) from error


def _explained(problem: ErrorDetails, tree: yaml.Node | None, name: str) -> str:
    """One problem as `file:line: path: words`."""
    path = list(problem["loc"])
    node, inside = _found(tree, path)
    line = node.start_mark.line + 1 if node else 1
    words = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        words = f"unknown key {path[-1]!r}{_nearest(str(path[-1]), _keys_at(path[:-1]))}"
    if problem["type"] == "missing":
        words = f"{path[-1]!r} is required"
    return f"{name}:{line}: {_written(inside)}: {words}"


def _found(tree: yaml.Node | None, path: Sequence[int | str]) -> tuple[yaml.Node | None, list[int | str]]:
    """The deepest node on `path` and the path to it. Steps that name a type and no key are passed over."""
    node, inside = tree, []
    for step in path:
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
        elif isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == step), None)
            if pair is None:
                continue
            node = pair[0] if step == path[-1] else pair[1]
        else:
            continue
        inside.append(step)
    return node, inside


def _written(path: Sequence[int | str]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".") or "file"


def _keys_at(path: Sequence[int | str]) -> list[str]:
    """The keys that are known where `path` leads."""
    places: Mapping[str, type[BaseModel]] = {
        "rules": _Rule,
        "when": _When,
        "answers": _Answer,
        "answer": _Answer,
        "call": _Call,
        "calls": _Call,
        "usage": _Usage,
        "ending": _Ending,
        "error": _ErrorEvent,
        "cut": _Cut,
        "models": _Model,
    }
    named = [step for step in path if step in places]
    return list((places[str(named[-1])] if named else _Scenario).model_fields)
