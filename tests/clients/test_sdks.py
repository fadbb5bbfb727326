"""The libraries of two providers, anthropic and openai, from PyPI: what they make of an answer that came through the
proxy is what they make of it when the provider itself sends it. Frameworks stand on them, so what they cannot read
nobody can.

Every way in which an answer can be odd or go wrong (S1, S4, S6, S7, S8, S10) is asked for by each library, streamed
both ways it knows, directly and through the proxy: with a thread asleep, with one awake, and behind a round of ours
that nobody sees. All of it is asked in one process; each test compares what one library made of it, and names what
differs.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import (
    EVERY_BYTE,
    Cut,
    FixedReply,
    ScriptedAnswer,
    ScriptedCall,
    ScriptedProvider,
    Usage,
    answers,
    call,
    cut,
    empty,
    error_chunk,
    gzip_bomb,
    half_close,
    html,
    json_error,
    only_done,
    overflow,
    reset,
    says,
    status,
    throttled,
    truncated,
    wrong_type,
)
from llm_test_provider.answer import ErrorEvent
from llm_test_provider.apis.chat_sse import FORMS as EVENT_FORMS
from llm_test_provider.apis.typed_sse import FORMS as TYPED_FORMS
from tests.clients import installing
from tests.clients.conftest import skip_if_absent
from tests.clients.serving import AWAKE, Served, serve

Json = dict[str, Any]
PACKAGES = ("anthropic==2.12.0", "openai==3.54.0")
LIMIT_S = 120
WORDS = "Grüße 日本: I look at two things at once, and say so in some words."
RICH = answers(
    WORDS,
    [ScriptedCall("read", {"path": "é.py"}, "call_one"), ScriptedCall("now", {}, "call_two")],
    reasoning="First I think.",
    usage=Usage(100, 20, cached=40),
)
CALL_FORMS = ("arguments_absent", "interleaved", "one_character", "whole_call")
"""Those that mean something where events have types."""
ERRORS = (400, 401, 403, 404, 413, 429, 500, 502, 503, 529)
CARRIED = {"retry-after": "1", "x-should-retry": "false"}
NONE_OF_IT = says("", usage=Usage(100, 0))

CUT: dict[str, ScriptedAnswer] = {
    "S1 every byte": RICH.but(cut=EVERY_BYTE),
    "S1 pieces of seven": RICH.but(cut=Cut(7)),
    "S1 pieces by chance": RICH.but(cut=Cut(90, seed=4)),
}
DEATHS: dict[str, ScriptedAnswer] = {
    "S4 fin at once": cut(RICH, after_events=1),
    "S4 fin": cut(RICH, after_events=6),
    "S4 rst": reset(RICH, after_events=6),
    "S4 half": half_close(RICH, after_events=6),
    "S4 truncated": truncated(RICH, after_events=6),
}
ODD_EVENTS = {f"S6 {form}": RICH.but(events=(form,)) for form in sorted(EVENT_FORMS | TYPED_FORMS)}
ODD_CALLS = {f"S7 {form}": RICH.but(call_forms=(form,)) for form in CALL_FORMS}
REFUSALS: dict[str, ScriptedAnswer] = {
    **{f"S8 {code}": status(code, headers=CARRIED) for code in ERRORS},
    "S8 too long": overflow(),
    "S8 throttled": throttled(),
    "S8 plain words": status(503, body="come back later"),
}
ODD_ANSWERS: dict[str, ScriptedAnswer] = {
    "S10 json error": json_error(),
    "S10 html": html(),
    "S10 empty": empty(),
    "S10 only done": only_done(),
    "S10 wrong type": wrong_type(RICH, "text/plain"),
    "S10 gzip": RICH.but(encoding=("gzip",)),
    "S10 double gzip": RICH.but(encoding=("gzip", "gzip")),
    "S10 gzip bomb": gzip_bomb(4 << 20),
    "S10 half json": ScriptedAnswer(instead=FixedReply(200, b'{"id":"x","type":"mess')),
    "S10 error first": error_chunk(RICH),
    "S10 error behind": error_chunk(RICH, after_events=6),
    "S10 failed": RICH.but(error=ErrorEvent({"message": "no more", "code": "server_error"}, 6, as_failed=True)),
}
PLAIN: dict[str, ScriptedAnswer] = {
    "usual": RICH,
    "no words": NONE_OF_IT,
    "thoughts alone": answers(reasoning="Only this.", usage=Usage(100, 20)),
    "thoughts nobody reads": RICH.but(redacted=True),
    "cut off": RICH.but(finish="length"),
    "filtered": says("I would rather not.", finish="content_filter", usage=Usage(100, 5)),
    "after a while": RICH.but(delay_s=0.05),
}
MATRIX = PLAIN | CUT | DEATHS | ODD_EVENTS | ODD_CALLS | REFUSALS | ODD_ANSWERS
HEAVY = ("S6 long_line", "S10 gzip bomb")
"""Megabytes: asked in one way alone."""
UNREAD = ("S6 long_line", "S10 wrong type", "S10 gzip", "S10 double gzip")
"""What passes as it is, and so says of its request what the provider was asked: our tools and our guidance too."""
TOLD_BEHIND = tuple(PLAIN | CUT | DEATHS | ODD_EVENTS | ODD_CALLS) + tuple(n for n in ODD_ANSWERS if "rror " in n)
"""What may come behind a round of ours. One that is refused is asked for again, which takes its time."""

ASKED: dict[str, Json] = {
    "anthropic": {
        "model": "claude-scripted",
        "max_tokens": 4_000,
        "system": "You work.",
        "thinking": {"type": "enabled", "budget_tokens": 2_000},
    },
    "openai": {
        "model": "gpt-scripted",
        "instructions": "You work.",
        "store": False,
        "include": ["reasoning.encrypted_content"],
    },
}
OFFERED: dict[str, list[Json]] = {
    "anthropic": [{"name": name, "input_schema": {"type": "object"}} for name in ("read", "now")],
    "openai": [
        {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False}
        for name in ("read", "now")
    ],
}


@dataclass(frozen=True)
class Case:
    """One request of one library. `how` is a word of the job's; `place` is where the answer comes from: `direct`, or
    through the proxy with a thread that is `asleep` or `awake`, or `behind` a round of ours. A thread sleeps where no
    tools are offered, so `toolless` is what `asleep` is held against."""

    library: str
    name: str
    how: str
    place: str

    @property
    def marker(self) -> str:
        """What the provider knows the case by. A round of ours goes before the answer where it says so."""
        return f"[{self.name}{' behind' if self.place == 'behind' else ''}]"

    def asked(self) -> Json:
        said = f"{self.marker} {self.library} {self.how} {self.place}"
        key = "messages" if self.library == "anthropic" else "input"
        tools = {} if self.place in ("asleep", "toolless") else {"tools": OFFERED[self.library]}
        return ASKED[self.library] | tools | {key: [{"role": "user", "content": said}]}


def hows(name: str) -> tuple[str, ...]:
    """In which ways a case makes a difference."""
    if name in HEAVY:
        return ("raw",)
    return ("raw", "helped") if name in CUT | DEATHS | ODD_EVENTS | ODD_CALLS else ("plain", "raw", "helped")


Question = tuple[str, str, str]
"""A library, the name of an answer, and how it is asked for."""
LIBRARIES = tuple(ASKED)
QUESTIONS = [(library, name, how) for library in LIBRARIES for name in MATRIX for how in hows(name)]
ASLEEP = [each for each in QUESTIONS if each[2] != "helped"]
BEHIND = [each for each in QUESTIONS if each[1] in TOLD_BEHIND and each[1] not in HEAVY and each[2] != "raw"]
CASES = [
    *(Case(*each, place) for each in QUESTIONS for place in ("direct", "awake")),
    *(Case(*each, place) for each in ASLEEP for place in ("toolless", "asleep")),
    *(Case(*each, "behind") for each in BEHIND),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ScriptedProvider, Served]]:
    """A provider with an answer for every case, and a proxy in front of it."""
    opens = call("stack_frame_push", title="Look", successCriteria="Seen.")
    push = answers("", [opens], reasoning="I open a frame.", usage=Usage(90, 10))
    with ScriptedProvider() as provider:
        for name, answer in MATRIX.items():
            provider.when(f"[{name}]", answer, loop=True)
            provider.when(f"[{name} behind]", push, answer, loop=True)
        with serve(provider.origin, tmp_path_factory.mktemp("proxy") / "data", *AWAKE) as proxy:
            yield provider, proxy


@pytest.fixture(scope="module")
def came(served: tuple[ScriptedProvider, Served], kept: Path) -> Mapping[Case, Json]:
    """What each library made of each case."""
    provider, proxy = served
    python = skip_if_absent(installing.pip, kept / "sdks", PACKAGES) / "bin" / "python"
    told = asked_all(python, provider, proxy, CASES)
    return dict(zip(CASES, told, strict=True))


def asked_all(python: Path, provider: ScriptedProvider, proxy: Served, cases: Sequence[Case]) -> list[Json]:
    given = [
        {
            "library": case.library,
            "url": provider.origin if case.place in ("direct", "toolless") else proxy.origin,
            "asked": case.asked(),
            "how": case.how,
        }
        for case in cases
    ]
    job = [str(python), str(Path(__file__).with_name("sdk_job.py"))]
    done = subprocess.run(job, input=json.dumps(given), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return [compared(told) for told in json.loads(done.stdout)]


NUMBER = re.compile(r"scripted([-_])\d+")
VARYING = ("answer", "created_at", "data", "encrypted_content", "signature")
"""Members of an answer that no two have alike: numbers, times and seals."""
OF_THE_REQUEST = ("tools", "instructions")


def compared(told: Json) -> Json:
    """An answer less what no two have alike."""
    found: Json = json.loads(NUMBER.sub(r"scripted\1", json.dumps(less(told, VARYING))))
    return found


def less(value: Any, names: Sequence[str]) -> Any:
    """A value without what these members of it say, wherever they stand."""
    if isinstance(value, list):
        return [less(each, names) for each in value]
    if isinstance(value, dict):
        return {key: "..." if key in names else less(each, names) for key, each in value.items()}
    return value


every_library = pytest.mark.parametrize("library", LIBRARIES)


def failures_of(check: Callable[[str, str, str], None], questions: Sequence[Question], library: str) -> dict[str, str]:
    """What `check` says of each question to this library that fails it."""
    failed = {}
    for _, name, how in (each for each in questions if each[0] == library):
        try:
            check(library, name, how)
        except AssertionError as error:
            failed[f"{name}, {how}"] = str(error)
    return failed


@every_library
def test_a_thread_asleep_is_read_as_the_provider_is(came: Mapping[Case, Json], library: str) -> None:
    assert failures_of(partial(assert_asleep_is_direct, came), ASLEEP, library) == {}


def assert_asleep_is_direct(came: Mapping[Case, Json], library: str, name: str, how: str) -> None:
    direct, asleep = (came[Case(library, name, how, place)] for place in ("toolless", "asleep"))

    if name in DEATHS and library == "anthropic":
        assert_it_died(direct, asleep, library)
        assert asleep["events"] == direct["events"]
    else:
        assert asleep == direct


@every_library
def test_a_thread_awake_is_read_as_the_provider_is(came: Mapping[Case, Json], library: str) -> None:
    assert failures_of(partial(assert_awake_is_direct, came), QUESTIONS, library) == {}


def assert_awake_is_direct(came: Mapping[Case, Json], library: str, name: str, how: str) -> None:
    direct, awake = (came[Case(library, name, how, place)] for place in ("direct", "awake"))

    if name in DEATHS:
        assert_it_died(direct, awake, library)
    elif name in UNREAD:
        assert less(awake, OF_THE_REQUEST) == less(direct, OF_THE_REQUEST)
    else:
        assert awake == direct


@every_library
def test_an_answer_behind_a_round_of_ours_is_read_as_if_it_were_alone(came: Mapping[Case, Json], library: str) -> None:
    assert failures_of(partial(assert_behind_is_alone, came), BEHIND, library) == {}


def assert_behind_is_alone(came: Mapping[Case, Json], library: str, name: str, how: str) -> None:
    """What comes in a form that the library cannot read may come in one that it can: it was written anew."""
    direct, behind = (came[Case(library, name, how, place)] for place in ("direct", "behind"))
    usual = came[Case(library, "usual", how, "direct")]

    if name in DEATHS:
        assert_it_died(direct, behind, library)
    else:
        expected = usual if direct["error"] and name in ODD_EVENTS and not behind["error"] else direct
        assert raised(behind) == raised(expected)
        assert less(behind["final"], ("usage",)) == less(expected["final"], ("usage",))


def raised(told: Json) -> Sequence[Any]:
    """The exception, and the status it tells; what it says of the events before it is its own."""
    return (told["error"] or ())[:2]


def assert_it_died(direct: Json, told: Json, library: str) -> None:
    """The stream broke off, and nothing was made up. The messages API has a word for that, which is said unless half an
    event had left before; what was held of thoughts that are bound to their place has not left at all."""
    kind, code, words = told["error"]
    held = len(told["events"])
    assert told["final"] is None
    assert held <= max(len(direct["events"]), 2)
    assert told["error"] == direct["error"] or (library, kind, code) == ("anthropic", "APIStatusError", 200), words
