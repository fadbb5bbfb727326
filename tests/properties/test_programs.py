"""Random programs against the real application over HTTP: a client and a model do what real ones do, in any order.

After every step: all laws hold on everything that ever went upstream, the tree on the client's path is the oracle's,
and the client got what the script said and nothing else. A program that fails is shrunk to the shortest one that does.
"""

from __future__ import annotations

import json
import tempfile
import unittest
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from llm_test_provider import Model, ReceivedRequest, ScriptedProvider, cut
from llm_test_provider import ScriptedAnswer as Scripted
from llm_test_provider.strict_profiles import PROFILES
from tests import laws
from tests.clocks import HOUR_MS, set_clock
from tests.harness import Answer, ClientHabits, Conversation, Stage
from tests.properties import disk
from tests.properties.depth import searched
from tests.properties.oracle import ROOT, Oracle, named
from tests.properties.plays import Play, Round, Words, as_answer, played

CLEARED = "[Old tool result content cleared]"
SPELLINGS: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":")},
    "sorted": {"sort_keys": True},
    "spaced": {"indent": 1},
}
STACK_ROUNDS = 4
NO_USER_BEHIND_RESULTS = ("mistral", "strict-template")
"""Profiles that refuse a client's own words behind results."""
BARS = (0, 0, 0, 400)
"""Tokens at which a thread wakes."""


class Player:
    """The model's side: plays the rounds of a turn, or the plain answer where it has no stack tools."""

    def __init__(self) -> None:
        self.play = Play((), Round())
        self.next = 0

    def begin(self, play: Play) -> None:
        self.play, self.next = play, 0

    def __call__(self, received: ReceivedRequest) -> Scripted:
        if "stack_frame_push" not in received.tool_names:
            return as_answer(self.play.plain, self.play.wire)
        number, self.next = self.next, self.next + 1
        answer = as_answer(self.play.rounds[number], self.play.wire)
        if self.play.break_at and self.play.break_at[0] == number:
            return cut(answer, after_bytes=self.play.break_at[1])
        return answer


class Programs(RuleBasedStateMachine):
    """`points` are the places in the client's history a turn can begin at, with the tree there. `strict` is the profile
    of the provider."""

    strict = ""

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.words = Words()
        self.model = Player()
        self.points: dict[int, Oracle] = {0: Oracle()}
        self.retried: tuple[int, dict[str, Any]] | None = None
        self.stage: Stage | None = None
        self.provider: ScriptedProvider | None = None
        self.conversation = ""
        self.outputs: dict[str, str] = {}

    @initialize(
        bar=st.sampled_from(BARS),
        required=st.booleans(),
        view=st.sampled_from(("fork", "fork", "isolate", "last:2")),
        habits=st.builds(
            ClientHabits,
            arguments=st.sampled_from(("kept", "respelled", "defaulted")),
            nothing=st.sampled_from(("null", "empty", "absent")),
            drops_text=st.booleans(),
            keeps_reasoning=st.booleans(),
            parts=st.booleans(),
        ),
    )
    def begin(self, bar: int, required: bool, view: str, habits: ClientHabits) -> None:
        profile = PROFILES.get(self.strict)
        self.required = required = bool(profile.required) if profile else required
        models = [Model("gpt-x", required=("reasoning_content",))] if required and not profile else []
        folder = self.resources.enter_context(tempfile.TemporaryDirectory())
        self.clock = self.resources.enter_context(set_clock())
        self.provider = self.resources.enter_context(ScriptedProvider(models=models, strict=self.strict or None))
        self.provider.when(lambda _: True, self.model, loop=True)
        self.stage = Stage(self.provider, Path(folder), streamed=False, looks_into_store=False)
        self.resources.callback(self.stage.stop)
        proxy = self.stage.proxy(
            wake_at_tokens=0 if required else bar,
            child_view=view,
            stack_rounds=STACK_ROUNDS,
            tools="full" if self.strict else "core",  # no model there calls what is not offered
        )
        model = profile.model if profile else "gpt-x"
        self.chat = Conversation(proxy, streamed=False, habits=habits, model=model)

    # ----------------------------------------------------------------------------------------------------- the client
    @rule(draw=st.data(), streamed=st.booleans())
    def speak(self, draw: st.DataObject, streamed: bool) -> None:
        """The client's next request: results of the calls it was given, or words of the user, or both."""
        self.turn(draw, self.tail(draw), streamed=streamed)

    @precondition(lambda self: not self.required and len(self.points) > 1)
    @rule(draw=st.data(), mode=st.sampled_from(("off", "shadow")))
    def speak_past_the_proxy(self, draw: st.DataObject, mode: str) -> None:
        """X-13: one request in another mode; the thread stays as it is."""
        self.turn(draw, self.tail(draw), streamed=False, headers={"x-stack-mode": mode})

    @precondition(lambda self: self.strict not in ("strict-template", *NO_USER_BEHIND_RESULTS))
    @rule(draw=st.data(), at=st.integers(0, 3), size=st.integers(0, 3000))
    def break_off(self, draw: st.DataObject, at: int, size: int) -> None:
        """The provider dies in mid-stream. The client keeps what it got, or forgets it: then its own words follow each
        other, which a strict template does not take."""
        self.turn(draw, self.tail(draw), streamed=True, break_at=(at, size))

    @precondition(lambda self: self.retried is not None)
    @rule(draw=st.data())
    def retry(self, draw: st.DataObject) -> None:
        """The last request again, byte for byte: another answer to the same question."""
        assert self.retried is not None
        assert self.stage is not None
        length, options = self.retried
        self.forget_behind(length)
        self.stage.excuse()
        self.ask(draw, length, **options)

    @precondition(lambda self: len(self.points) > 2)
    @rule(draw=st.data())
    def rewind(self, draw: st.DataObject) -> None:
        """The user edits an old message: everything behind is gone, and what follows is another path. A strict template
        takes no user behind a user, of whatever client."""
        places = sorted(self.points)[1:-1]
        if self.strict == "strict-template":
            places = [at for at in places if self.chat.history[at - 1]["role"] == "assistant"] or [0]
        self.forget_behind(draw.draw(st.sampled_from(places), label="back to"))
        self.retried = None

    @precondition(lambda self: any(m["role"] == "tool" for m in self.chat.history))
    @rule(kept=st.integers(0, 2))
    def clear_old_results(self, kept: int) -> None:
        """As clients save tokens: results before the newest ones get a word that stands for them. One that nobody has
        answered is none of these; it would be the client's own edit."""
        answered = max(at for at, m in enumerate(self.chat.history) if m["role"] == "assistant")
        results = [m for m in self.chat.history[:answered] if m["role"] == "tool"]
        for message in results[: len(results) - kept]:
            message["content"] = CLEARED

    @precondition(lambda self: any(m.get("tool_calls") for m in self.chat.history))
    @rule(how=st.sampled_from(sorted(SPELLINGS)))
    def spell_arguments_anew(self, how: str) -> None:
        spelling = SPELLINGS[how]
        for message in self.chat.history:
            for each in message.get("tool_calls") or []:
                values = json.loads(each["function"]["arguments"])
                each["function"] = {**each["function"], "arguments": json.dumps(values, **spelling)}

    @precondition(lambda self: any(m.get("tool_calls") for m in self.chat.history))
    @rule()
    def drop_text_beside_calls(self) -> None:
        for message in self.chat.history:
            if message.get("tool_calls"):
                message["content"] = None

    @rule()
    def restart(self) -> None:
        """S3-29: another process on the same store."""
        self.chat.proxy.restart()

    @rule(hours=st.sampled_from((-25, -1, 1, 25)))
    def set_the_clock(self, hours: int) -> None:
        """A12: of the machine the proxy runs on."""
        self.clock.set_by += hours * HOUR_MS

    # -------------------------------------------------------------------------------------------------------- a turn
    def tail(self, draw: st.DataObject) -> list[dict[str, Any]]:
        waiting = (self.chat.history[-1].get("tool_calls") or []) if self.chat.history else []
        self.outputs |= {c["id"]: self.words.result() for c in waiting}
        results = [{"role": "tool", "tool_call_id": c["id"], "content": self.outputs[c["id"]]} for c in waiting]
        if waiting and self.strict in NO_USER_BEHIND_RESULTS:
            return results
        if waiting and not draw.draw(st.sampled_from((False, False, False, True)), label="the user speaks too"):
            return results
        unanswered = bool(results) and not self.strict and draw.draw(st.booleans(), label="a call stays unanswered")
        return [*(results[1:] if unanswered else results), {"role": "user", "content": self.words.user()}]

    def turn(self, draw: st.DataObject, tail: list[dict[str, Any]], **options: Any) -> None:
        length = len(self.chat.history)
        self.chat.history += tail
        tree = self.points[max(p for p in self.points if p <= length)].copy()
        if any(m["role"] == "user" for m in tail):
            tree.user_speaks()
        self.points[len(self.chat.history)] = tree
        self.ask(draw, len(self.chat.history), **options)

    def forget_behind(self, length: int) -> None:
        del self.chat.history[length:]
        self.points = {at: tree for at, tree in self.points.items() if at <= length}
        for message in reversed(self.chat.history):  # what nobody has answered any more is not old
            if message["role"] == "assistant":
                break
            if message["role"] == "tool":
                message["content"] = self.outputs[message["tool_call_id"]]

    def ask(
        self,
        draw: st.DataObject,
        length: int,
        *,
        streamed: bool,
        headers: dict[str, str] | None = None,
        break_at: tuple[int, int] | None = None,
    ) -> None:
        """Send the history, and hold the answer and the tree against what was played."""
        assert self.stage is not None
        tree = self.points[length].copy()
        play = replace(played(draw, tree, self.words, most_hidden=STACK_ROUNDS - 1), break_at=break_at)
        self.model.begin(play)
        self.retried = (length, {"streamed": streamed, "headers": headers})
        options: dict[str, Any] = {"stream": True} if streamed else {}
        answer = self.chat.tries(headers=headers or {}, **options)
        awake = answer.stack_status == "full"
        assert answer.status == 200, answer.raw
        self.is_the_same_conversation(answer, length)
        assert answer.stack_status in ("full", "asleep", "off", "shadow")
        rounds = play.rounds if awake else (play.plain,)
        if not answer.ended:
            rounds = rounds[: self.model.next]
            self.holds_what_was_heard(answer, rounds)
            rounds = rounds[:-1]
        else:
            self.holds_all(answer, rounds)
        for number, done in enumerate(rounds):
            if number + 1 < STACK_ROUNDS:
                tree.group(done.ops, alone=not done.client)
        if answer.ended or (answer.text and play.keeps_parts):
            self.keep(answer, tree)
        elif self.model.next > 1:
            self.stage.excuse()  # the client goes on as if nothing had been done, and so does the line
        self.has_the_tree(answer, tree)

    def keep(self, answer: Answer, tree: Oracle) -> None:
        heard = answer.message
        if not answer.ended:
            heard.pop("tool_calls", None)  # a call that broke off is of no use to anyone
        self.chat.history.append(self.chat.habits.echo(heard))
        self.points[len(self.chat.history)] = tree

    # -------------------------------------------------------------------------------------------------- what must hold
    def holds_all(self, answer: Answer, rounds: tuple[Round, ...]) -> None:
        assert answer.text == "\n\n".join(r.text for r in rounds if r.text)
        steps = [json.loads(arguments)["command"] for _, arguments in answer.calls]
        assert steps == [f"step {number}" for number in range(rounds[-1].client)]
        assert answer.finishes == (["tool_calls"] if rounds[-1].client else ["stop"])
        assert self.model.next in (0, len(rounds))

    def holds_what_was_heard(self, answer: Answer, rounds: tuple[Round, ...]) -> None:
        """S4: no end is made up. One that was heard is the provider's own, and then all before it was heard too."""
        said = "\n\n".join(r.text for r in rounds if r.text)
        assert said.startswith(answer.text)
        assert answer.text == said or not (answer.finishes or b"[DONE]" in answer.raw)

    def is_the_same_conversation(self, answer: Answer, length: int) -> None:
        """Only a request in which nobody has answered yet opens one; X-03, H10."""
        if any(m["role"] == "assistant" for m in self.chat.history[:length]):
            assert answer.headers["x-stack-conversation"] == self.conversation
        self.conversation = answer.headers["x-stack-conversation"]

    def has_the_tree(self, answer: Answer, tree: Oracle) -> None:
        conversation, thread = answer.headers["x-stack-conversation"], answer.headers["x-stack-thread"]
        state = self.chat.proxy.get(f"/stack/conversations/{conversation}/state?thread={thread}")
        titles = named({i: f["title"] if "parentSessionID" in f else ROOT for i, f in state["frames"].items()})
        above = {titles[i]: titles.get(f.get("parentSessionID", ""), "") for i, f in state["frames"].items()}
        found = {titles[i]: (above[titles[i]], f["status"]) for i, f in state["frames"].items()}
        assert found == tree.frames, f"in one only: {set(found.items()) ^ set(tree.frames.items())}"
        assert titles[state["activeFrameID"]] == tree.active

    @invariant()
    def nothing_is_refused(self) -> None:
        """Whatever a strict provider gets it takes; nothing hangs on a milder form."""
        refused = [r.number for r in self.provider.asked if r.status != 200] if self.strict and self.provider else []
        assert not refused

    @invariant()
    def all_laws_hold(self) -> None:
        if self.stage is not None:
            found = laws.breaches(self.evidence())
            assert not found, "\n".join(found)

    def evidence(self) -> laws.Evidence:
        """What travelled, with what the receipts tell of it: work of a tree that has ended is folded."""
        assert self.stage is not None
        seen = self.stage.evidence()
        told = {receipt["id"]: tuple(receipt["events"]) for receipt in self.chat.proxy.receipts() if receipt}
        answers = (note.answer for note in self.stage.notes if note.answer)
        ids = (answer.headers.get("x-stack-request-id", "") for answer in answers)
        asked = [replace(each, events=told.get(name, ())) for each, name in zip(seen.asked, ids, strict=True)]
        return replace(seen, asked=asked)

    def teardown(self) -> None:
        try:
            if self.stage is not None:
                seen = self.evidence()
                self.chat.proxy.stop()
                kept = disk.texts(self.chat.proxy.config.data)
                found = laws.breaches(replace(seen, kept=kept))
                assert not found, "\n".join(found)
        finally:
            self.resources.close()


TestPrograms = Programs.TestCase
TestPrograms.settings = searched(examples=25, steps=14)
TestPrograms = pytest.mark.long(TestPrograms)


def against(name: str, *, examples: int, steps: int) -> type[unittest.TestCase]:
    """The same programs against the strict provider of this name."""
    programs: Any = type(f"Programs {name}", (Programs,), {"strict": name})
    case: type[unittest.TestCase] = programs.TestCase
    case.settings = searched(examples=examples, steps=steps)  # type: ignore[attr-defined]
    return case


CHAT_PROFILES = [name for name, profile in PROFILES.items() if "chat" in profile.checks]


@pytest.mark.rows("X-27")
@pytest.mark.parametrize("name", CHAT_PROFILES)
@pytest.mark.parametrize(
    ("examples", "steps"), [(1, 6), pytest.param(10, 14, marks=pytest.mark.long)], ids=["few", "more"]
)
def test_a_strict_provider_refuses_no_program(name: str, examples: int, steps: int) -> None:
    against(name, examples=examples, steps=steps)("runTest").debug()
