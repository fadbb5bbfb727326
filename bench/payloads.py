"""The requests the benchmark sends: what a coding agent's traffic looks like, the same bytes on every machine.

Everything comes from a seed, so two runs, and the direct and the proxied half of one run, send equal bytes. A
different seed is a conversation nobody has seen before, which is what a first sight is measured with. Text is made of
paths, code, test output and listings in the mix of such sessions, because a tokenizer's speed depends on it. Nothing
here talks to anybody.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TOOL_COUNT = 15
LARGE_MESSAGES = 300
LARGE_MB = 0.68
MEDIUM_MESSAGES = 60
RESULT_BYTES = 3_600
"""Mean size of a tool result; with it the medium body is about 135 KB and the large one about 684 KB."""
SESSION_TURNS = 41
USER_EVERY = 10
"""In a growing session every tenth request ends with a new wish of the user, the others with a tool's result."""

NOUNS = """
invoice ledger parcel route depot driver manifest customs tariff pallet scanner label carrier quote window
slot warehouse shelf order refund address region holiday calendar shift roster permit weight volume surcharge
claim seal audit booking container gateway terminal berth crane forklift inventory supplier contract payment
receipt currency exchange
""".split()  # noqa: SIM905 - as a list it fills a screen
VERBS = """
load pack route split merge price quote check seal track release assign cancel resume settle verify
""".split()  # noqa: SIM905 - as a list it fills a screen


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call the recorded agent made."""

    identity: str
    name: str
    arguments: str


class Writer:
    """Writes plausible text. Two writers with one seed write the same."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - text, not secrets

    def noun(self) -> str:
        """One word of the made-up freight company."""
        return self._random.choice(NOUNS)

    def path(self) -> str:
        """A source file of theirs."""
        return f"src/{self.noun()}/{self.noun()}_{self._random.choice(VERBS)}.py"

    def sentence(self) -> str:
        """About a dozen words."""
        verb, words = self._random.choice(VERBS), [self.noun() for _ in range(4)]
        return f"To {verb} the {words[0]} we first need the {words[1]} of its {words[2]}, before the {words[3]} closes."

    def code(self, size: int) -> str:
        """Numbered source lines, about `size` bytes."""
        lines: list[str] = []
        while sum(map(len, lines)) < size:
            verb, first, second = self._random.choice(VERBS), self.noun(), self.noun()
            limit = self._random.randint(2, 9_999)
            lines += [
                f"{len(lines) + 1:5}\tdef {verb}_{first}({first}: {first.title()}, {second}: Decimal) -> Result:",
                f"{len(lines) + 2:5}\t    if {first}.{second}_count > {limit}:",
                f'{len(lines) + 3:5}\t        raise {first.title()}Error(f"{first} {{{first}.id}} exceeds {limit}")',
                f"{len(lines) + 4:5}\t    return self._{second}.{verb}({first}.{second}, limit={limit})",
            ]
        return "\n".join(lines)

    def test_log(self, size: int) -> str:
        """Output of a test run, about `size` bytes."""
        lines: list[str] = []
        while sum(map(len, lines)) < size:
            verdict = self._random.choice(["PASSED", "PASSED", "PASSED", "FAILED"])
            lines.append(f"tests/test_{self.noun()}.py::test_{self._random.choice(VERBS)}_{self.noun()} {verdict}")
        return "\n".join([*lines, f"{len(lines)} tests in {self._random.random() * 40:.2f}s"])

    def result(self) -> str:
        """What a tool answered."""
        size = self._random.randint(RESULT_BYTES // 3, RESULT_BYTES * 5 // 3)
        return self.code(size) if self._random.random() < 0.7 else self.test_log(size)

    def call(self) -> Call:
        """A call of one of the offered tools, with an id of its own."""
        identity = f"call_{self._random.getrandbits(96):024x}"
        return Call(identity, f"{self._random.choice(VERBS)}_0", json.dumps({"path": self.path(), "limit": 200}))


def tools() -> list[dict[str, Any]]:
    """The array of 15 tools every request of an agent carries, the same each time."""
    writer = Writer(15)
    parameters = {
        "path": {"type": "string", "description": "File or folder, relative to the root of the repository."},
        "limit": {"type": "integer", "minimum": 1, "description": "How many lines at most."},
    }
    schema = {"type": "object", "properties": parameters, "required": ["path"], "additionalProperties": False}
    names = [f"{verb}_0" for verb in VERBS[:TOOL_COUNT]]
    described = [
        {"name": name, "description": writer.sentence() + " " + writer.sentence(), "parameters": schema}
        for name in names
    ]
    return [{"type": "function", "function": function} for function in described]


def opening(writer: Writer) -> list[dict[str, Any]]:
    """System prompt and first wish of a conversation."""
    system = "You are a careful engineer.\n\n" + "\n".join(f"- {writer.sentence()}" for _ in range(40))
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": f"Look at {writer.path()}. {writer.sentence()}"},
    ]


def conversation(messages: int, seed: int) -> list[dict[str, Any]]:
    """A history of that many messages in which an agent reads and tests; ends with a tool's result."""
    writer = Writer(seed)
    history = opening(writer)
    while len(history) < messages:
        call = writer.call()
        function = {"name": call.name, "arguments": call.arguments}
        asked = {"role": "assistant", "content": writer.sentence()}
        history.append({**asked, "tool_calls": [{"id": call.identity, "type": "function", "function": function}]})
        history.append({"role": "tool", "tool_call_id": call.identity, "content": writer.result()})
    return history


def body(messages: list[dict[str, Any]], model: str, *, stream: bool = False, offered: bool = True) -> bytes:
    """The request as bytes. The model's name tells the benchmark's provider what to answer and stands first."""
    extra: dict[str, Any] = {"stream": True} if stream else {}
    if offered:
        extra["tools"] = tools()
    return json.dumps({"model": model, **extra, "messages": messages}, separators=(",", ":")).encode()


def request(size: str, *, seed: int = 1) -> bytes:
    """One unstreamed request: `small`, `medium` or `large`."""
    if size == "small":
        return body(
            [{"role": "user", "content": f"What is a {NOUNS[seed % len(NOUNS)]}?"}], "bench-text", offered=False
        )
    return body(conversation({"medium": MEDIUM_MESSAGES, "large": LARGE_MESSAGES}[size], seed), "bench-text")


def large_request(megabytes: int) -> bytes:
    """An unstreamed request of about that many megabytes: long histories, one behind the other."""
    histories: list[dict[str, Any]] = []
    history = conversation(LARGE_MESSAGES, 1)
    for _ in range(round(megabytes / LARGE_MB)):
        histories += history
    return body(histories, "bench-text")


def stream_request(chunks: int, gap_ms: int) -> bytes:
    """A short request answered by that many events, that far apart."""
    question = [{"role": "user", "content": "Count the parcels."}]
    return body(question, f"bench-stream-{chunks}-{gap_ms}", stream=True, offered=False)


def _function_call(identity: str, number: int) -> dict[str, Any]:
    function = {"name": f"{VERBS[0]}_0", "arguments": json.dumps({"path": f"src/part_{number}.py"})}
    return {"id": identity, "type": "function", "function": function}


def _called(identities: list[str]) -> list[dict[str, Any]]:
    """One answer that makes these calls, and their results."""
    calls = [_function_call(identity, number) for number, identity in enumerate(identities)]
    results = [{"role": "tool", "tool_call_id": identity, "content": "done"} for identity in identities]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _talk(count: int) -> list[dict[str, Any]]:
    said = [(f"Do {number}.", f"Did {number}.") for number in range(count)]
    pairs = ([{"role": "user", "content": wish}, {"role": "assistant", "content": done}] for wish, done in said)
    return [message for pair in pairs for message in pair]


HOSTILE_HISTORIES: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "calls_of_one_id": lambda count: _called(["same"] * count),
    "calls_of_own_ids": lambda count: _called([f"call_{number}" for number in range(count)]),
    "turns_of_one_id": lambda count: [message for _ in range(count) for message in _called(["same"])],
    "talk": _talk,
}
"""Histories that nobody has seen, of so many calls, turns or exchanges."""
STREAMED_CALLS = "streamed_calls"
"""An answer that streams so many calls."""
HOSTILE_SHAPES = (*HOSTILE_HISTORIES, STREAMED_CALLS)


def hostile(shape: str, count: int, seed: int) -> bytes:
    """A request of a shape whose cost must grow as it does; another conversation for each seed."""
    wish = {"role": "user", "content": f"Look at part {seed} of {count}."}
    if shape == STREAMED_CALLS:
        return body([wish], f"bench-calls-{count}-0", stream=True)
    return body([wish, *HOSTILE_HISTORIES[shape](count)], "bench-text")


def follow_up(history: list[dict[str, Any]], answer: dict[str, Any], turn: int, writer: Writer) -> list[dict[str, Any]]:
    """The history an agent sends next, having received `answer`: its calls run, and now and then a new wish."""
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": writer.result()}
        for call in answer.get("tool_calls") or []
    ]
    wish = [{"role": "user", "content": f"Now {writer.path()}. {writer.sentence()}"}] if turn % USER_EVERY == 0 else []
    return [*history, answer, *results, *wish]
