"""When the proxy acts on a thread, by value: waking, folding, and what is taken to be cached (DESIGN 8, 9)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from callstack_proxy.config_sources import load_config
from proxy.core.compaction.fold_cost import GateReason
from proxy.core.frames.events import FrameFolded, ReasoningRemoved, ThreadWoken
from proxy.core.frames.path_state import PathState
from proxy.core.ledger.ledger import Round
from proxy.core.ledger.messages import ModelResponse, Usage
from proxy.core.tools.base import ToolSettings
from proxy.exchange.thread.context_policy import ContextPolicy, PolicyDecision
from proxy.exchange.thread.placement import PolicyInput
from proxy.upstream.context_windows import ContextWindow
from tests.core.working import CONVERSATION, DIALECT, SCRIBE, WATCH, GrowingConversation, bash, padded, request, todo

ELSEWHERE = "Unrelated: translate the onboarding email into French."
TOOLS = {"active": "[1, 2, 3]", "frames": "[1, 2]", "passive": "[1]"}


def actor(window: int = 0, **flags: Any) -> ContextPolicy:
    """One that wakes at 1,000 tokens and folds items of plans unless `flags` say otherwise; dots are written `__`.
    `window` 0: nobody knows."""
    settings = {"wake_at_tokens": "1000", "folding": "full", "upstreams.default.url": "http://127.0.0.1:1/v1"}
    tokens = window or 128_000
    settings |= {key.replace("__", "."): str(value) for key, value in flags.items()}
    return ContextPolicy(
        config=load_config(settings),
        dialect=DIALECT,
        composer=SCRIBE,
        tools_by_mode=TOOLS,
        inference_rules=WATCH,
        settings=ToolSettings(),
        count_tokens=lambda text: len(text) // 4,
        count_memoized=lambda text: len(text) // 4,
        nonce_of=lambda _: "n0nce",
        window_of=lambda _model, _conversation: ContextWindow(tokens, tokens, "table" if window else "assumed"),
    )


def at(watched: GrowingConversation, mode: str = "active", *, later: int = 0, **more: Any) -> PolicyInput:
    """The request that stands at the end of `watched`, `later` ms after its newest entry."""
    said = [p.round.spoken.message if p.round else p.entry.message for p in watched.story.entries]
    messages = tuple(m for m in said if m)
    return PolicyInput(
        watched.story, request(*messages, **more), CONVERSATION, watched.story.tip, watched.now + later, mode
    )


def loop(groups: int = 6, tokens: int = 800) -> GrowingConversation:
    """Inside a tool loop: the first item of a plan was done in so many groups, the second has begun."""
    watched = (
        GrowingConversation(folds=False)
        .user("Build the formatter.")
        .does(todo("[>] Lexer | [ ] Parser"), results=["ok"])
    )
    for n in range(groups):
        watched.does(bash(f"lex {n}"), results=[padded(f"lexed {n}", tokens)])
    watched.does(todo("[x] Lexer | [>] Parser"), results=["ok"])
    watched.arrives()
    return watched


def spoken(groups: int = 6, tokens: int = 800) -> GrowingConversation:
    """At the user's words, with a request finished."""
    watched = GrowingConversation(folds=False).user("Build the formatter.")
    for n in range(groups):
        watched.does(bash(f"lex {n}"), results=[padded(f"lexed {n}", tokens)])
    watched.says("It is built.").user(ELSEWHERE)
    watched.arrives()
    return watched


def kinds(acted: PolicyDecision) -> list[type]:
    return [type(event) for event in acted.events]


# --------------------------------------------------------------------------------------------------------------- waking
@pytest.mark.rows("X-23")
@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"tools": ()}, "no_tools"),
        ({"tool_choice": "none"}, "no_choice"),
        ({"tool_choice": "forced"}, "no_choice"),
    ],
)
def test_a_request_that_may_not_use_tools_wakes_nobody(more: dict[str, Any], reason: str) -> None:
    """L7, X-23."""
    assert actor().decide(at(spoken(), **more)) == PolicyDecision(reason=reason)


def test_a_small_request_sleeps() -> None:
    assert actor(wake_at_tokens=1_000_000).decide(at(spoken())) == PolicyDecision(reason="small")


def test_the_users_words_wake_with_all_folds_that_are_due() -> None:
    """The prefix breaks anyway; in the mode that is asked for."""
    active, passive = (actor().decide(at(spoken(), mode)) for mode in ("active", "passive"))

    assert kinds(active) == kinds(passive) == [ThreadWoken, FrameFolded]
    assert [d.kind for d in active.decisions] == ["wake"]
    woken = [act.events[0] for act in (active, passive)]
    assert [(bool(w.guidance), w.tools) for w in woken if isinstance(w, ThreadWoken)] == [
        (True, TOOLS["frames"]),
        (False, TOOLS["passive"]),
    ]


def test_inside_a_loop_only_a_fold_that_pays_wakes() -> None:
    """And where it does not, the receipt says by which figures."""
    due, early = actor().decide(at(loop())), actor().decide(at(loop(groups=2, tokens=100), tools_tokens=5_000))

    assert kinds(due) == [ThreadWoken, FrameFolded]
    assert (early.events, early.reason) == ((), "in_loop")
    assert [d.verdict.reason for d in early.decisions] == [GateReason.NOT_YET]


def test_waking_leaves_out_reasoning_that_is_bound() -> None:
    """L8: once and for good, and only where the model binds it."""
    watched = spoken()
    thoughtful(watched)

    assert ReasoningRemoved in kinds(actor().decide(at(watched, model="claude-opus-5.5")))
    assert ReasoningRemoved not in kinds(actor().decide(at(watched)))


def thoughtful(watched: GrowingConversation) -> None:
    """Every answer gets a thought."""
    for turn, rounds in watched.ledger.rounds.items():
        watched.ledger.rounds[turn] = tuple(map(thought_of, rounds))
    watched.story = watched.again


def thought_of(done: Round) -> Round:
    message = done.spoken.message
    wire = message.wire[:-1] + b', "reasoning_content": "hm"}'
    return replace(done, spoken=replace(done.spoken, message=replace(message, wire=wire)))


def test_a_model_that_wants_its_reasoning_in_the_loop_waits() -> None:
    """L8: asleep or awake; a loop that holds no reasoning has none to keep."""
    strict = actor(tariffs__strict__thinking_in_loop="required")
    plain, thinking = loop(), loop()
    thoughtful(thinking)

    assert strict.decide(at(thinking, model="strict")) == PolicyDecision(reason="in_loop")
    assert kinds(strict.decide(at(plain, model="strict"))) == [ThreadWoken, FrameFolded]
    assert kinds(strict.decide(at(awake(plain), model="strict"))) == [FrameFolded]
    assert strict.decide(at(awake(thinking), model="strict")) == PolicyDecision()


def awake(watched: GrowingConversation) -> GrowingConversation:
    """The same, woken at its beginning."""
    tree = replace(watched.story.tree, wake_state=actor().decide(at(spoken())).events[0])
    watched.story = replace(watched.story, tree=tree)
    return watched


def thinking(watched: GrowingConversation, characters: int) -> PathState:
    """The story with a thought of so many characters in front of every answer."""
    thought = b',"reasoning_content":"%s"}' % (b"x" * characters)
    path_entries = []
    for p in watched.story.entries:
        if p.round:
            message = p.round.spoken.message
            spoken = replace(p.round.spoken, message=replace(message, wire=message.wire[:-1] + thought))
            p = replace(p, round=replace(p.round, spoken=spoken))
        path_entries.append(p)
    return replace(watched.story, entries=tuple(path_entries))


@pytest.mark.parametrize(("model", "bound"), [("claude-opus-5.5", True), ("gpt-x", False)])
def test_thoughts_that_waking_inside_a_loop_would_void_count_against_it(model: str, bound: bool) -> None:
    """L8, DESIGN 9: lost reasoning is a cost. Of a model that binds none, none is lost."""
    watched = loop()
    few, many = (replace(at(watched, model=model), path_state=thinking(watched, n)) for n in (100, 80_000))

    awake, asleep = actor().decide(few), actor().decide(many)

    assert ThreadWoken in kinds(awake)
    assert (ThreadWoken in kinds(asleep)) is not bound
    assert (asleep.decisions[0].verdict.rewrite.reasoning > 10_000) is bound
    assert asleep.reason == ("in_loop" if bound else "")


# --------------------------------------------------------------------------------------------------------- what is
# cached
def reason(watched: GrowingConversation, *, later: int = 0, window: int = 0, **flags: Any) -> GateReason:
    (decision,) = actor(window, **flags).decide(at(awake(watched), later=later)).decisions
    return decision.verdict.reason


@pytest.mark.rows("S3-39")
def test_a_prefix_that_was_used_too_long_ago_is_cold() -> None:
    """By the lifetime of the model's tariff; here an hour."""
    ttl = {"default_tariff__ttl_s": 3_600}

    assert reason(loop(), later=60_000, **ttl) is GateReason.GATE
    assert reason(loop(), later=3_600_000, **ttl) is GateReason.COLD


@pytest.mark.parametrize(
    ("written", "long", "after_10_minutes", "price"),
    [(900, 900, GateReason.GATE, 2.0), (900, 300, GateReason.COLD, 1.25), (900, 0, GateReason.COLD, 1.25)],
    ids=["all", "a part", "nothing"],
)
def test_what_is_kept_for_an_hour_is_warm_for_an_hour(
    written: int, long: int, after_10_minutes: GateReason, price: float
) -> None:
    """As the provider told what it wrote last: a client asks for it with its markers. By the row it is five minutes."""
    row: dict[str, Any] = {"default_tariff__ttl_s": 300, "default_tariff__write": 1.25}
    watched = loop()
    first, *_, turn, newest = watched.ledger.rounds
    used(
        watched, first, Usage(input=1_000, written=900, written_long=900 - long)
    )  # what was written before says nothing
    used(watched, turn, Usage(input=1_000, written=written, written_long=long))
    used(watched, newest, Usage(input=1_000, cached=1_000))

    (decision,) = actor(**row).decide(at(awake(watched), later=600_000)).decisions
    assert (decision.verdict.reason, decision.verdict.prices.write) == (after_10_minutes, price)
    assert reason(watched, later=3_700_000, **row) is GateReason.COLD
    assert reason(watched, later=60_000, **row) is GateReason.GATE


def used(watched: GrowingConversation, turn: str, usage: Usage) -> None:
    """The provider told this of a turn."""
    (done,) = watched.ledger.rounds[turn]
    watched.ledger.rounds[turn] = (replace(done, spoken=ModelResponse(done.spoken.message, usage=usage)),)
    watched.story = watched.again


@pytest.mark.parametrize(
    ("cached", "cold"), [((500, 500, 500), False), ((500, 500, 0), False), ((500, 0, 0), True), ((0, 0, 0), False)]
)
def test_a_provider_that_tells_of_no_cached_token_twice_has_none(cached: tuple[int, ...], *, cold: bool) -> None:
    """After it told of some; one that never tells says nothing by it."""
    watched = loop()
    newest = list(watched.ledger.rounds)[-3:]
    for turn, count in zip(newest, cached, strict=True):
        used(watched, turn, Usage(input=1_000, cached=count))

    assert reason(watched, default_tariff__ttl_s=3_600) is (GateReason.COLD if cold else GateReason.GATE)


@pytest.mark.rows("S4-20")
def test_a_window_that_is_nearly_full_folds() -> None:
    """S4-20: above 60 % of it, if anybody knows it."""
    assert reason(loop(), window=6_000, default_tariff__ttl_s=3_600) is GateReason.PRESSURE
    assert reason(loop(), window=600_000, default_tariff__ttl_s=3_600) is GateReason.GATE


def test_the_block_of_a_root_says_in_short_what_it_is_for() -> None:
    """Its criterion stands on the line already."""
    long = GrowingConversation(folds=False).user("Build the formatter. " + "It must be fast. " * 400)
    long.arrives()

    assert len(actor().render_block(at(long))) < 2_000
