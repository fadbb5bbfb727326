"""What a client sees of an answer, by values alone (DESIGN 7, X-11, X-21, S7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.ledger import NAMESPACE_PREFIXES
from proxy.core.ledger.hold_back_streamed_calls import (
    MAX_WAITING_CHUNKS,
    CallAssembler,
    CallDelta,
    CallOwner,
    Chunk,
    ChunkEvent,
    Finish,
    Interceptor,
    OutgoingChunk,
    PartialCall,
    ReasoningDelta,
    ResponseStart,
    ShouldRefuse,
    StreamEnd,
    StreamError,
    TextDelta,
    UnknownEvent,
    UsageReport,
)


class Play:
    """One answer: says events of a round piece by piece and keeps what leaves."""

    def __init__(self, *, wants_usage: bool = True) -> None:
        self.show = Interceptor(wants_usage=wants_usage)
        self.left: list[OutgoingChunk] = []
        self.count = 0
        self.round()

    def round(self) -> None:
        self.calls = CallAssembler()
        self.show.begin_round(self.calls)

    def say(self, *events: ChunkEvent) -> list[OutgoingChunk]:
        self.count += 1
        now = self.show.process(Chunk(events, self.count))
        self.left += now
        return now

    def call(self, name: str, arguments: str = "", index: int | None = 0, id_: str = "") -> list[OutgoingChunk]:
        return self.say(CallDelta(0, self.calls.add_part(index, id_, name, arguments), index))

    def end(self) -> list[OutgoingChunk]:
        now = self.show.end_round()
        self.left += now
        return now

    @property
    def sources(self) -> list[object]:
        return [shown.chunk.source for shown in self.left]

    @property
    def text(self) -> str:
        return "".join(e.text for shown in self.left for e in shown.events if isinstance(e, TextDelta))


def test_a_round_without_calls_of_ours_leaves_whole_and_in_order() -> None:
    play = Play()
    play.say(ResponseStart())
    play.say(TextDelta("a"))
    play.call("", id_="x")
    play.say(TextDelta("behind a call without a name"))
    assert play.sources == [1, 2]
    play.call("bash", "{}")
    play.say(Finish("tool_calls"))
    play.say(UsageReport())
    play.say(StreamEnd())
    assert play.sources == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(shown.is_unchanged for shown in play.left)


@pytest.mark.rows("X-11")
def test_x11_nothing_of_a_call_of_ours_leaves_and_the_ending_is_held() -> None:
    play = Play()
    play.say(TextDelta("a"))
    assert play.call("stack_recall") == []
    assert play.call("", '{"ref"') == []
    assert play.say(Finish("tool_calls")) == []
    assert play.say(UsageReport()) == []
    assert play.say(StreamEnd()) == []
    assert play.end() == []
    assert play.show.held_finish
    assert play.show.held_end
    assert not play.show.finish_sent


def test_no_answer_waits_for_a_name_without_end() -> None:
    play = Play()
    play.call("", "{}")
    for _ in range(MAX_WAITING_CHUNKS):
        play.say(TextDelta("a"))
    assert len(play.left) == MAX_WAITING_CHUNKS + 1
    assert play.calls.calls[0].owner is CallOwner.CLIENT


def test_h5_a_long_signed_thought_of_a_hidden_round_does_not_leave() -> None:
    play = Play()
    for _ in range(MAX_WAITING_CHUNKS + 9):
        play.say(ReasoningDelta(signed=True))
    play.call("stack_status", "{}")
    play.end()
    assert play.left == []


def test_the_bare_dispatcher_is_ours_and_a_longer_word_is_the_clients() -> None:
    play = Play()
    assert play.call("stack") == []
    assert play.call("", "{}") == []
    assert play.show.has_stack_call
    other = Play()
    assert other.call("stack") == []
    assert len(other.call("overflow")) == 2
    assert not other.show.has_stack_call


def test_client_calls_are_counted_on_over_hidden_ones_and_rounds() -> None:
    play = Play()
    play.call("bash", "{}", index=0)
    play.call("stack_recall", "{}", index=1)
    play.call("read", "{}", index=2)
    play.round()
    play.call("edit", "{}", index=0)
    shown = [e.index for s in play.left for e in s.events if isinstance(e, CallDelta)]
    assert shown == [0, 1, 2]
    assert play.show.client_call_count == 3


def test_a_number_is_never_given_twice_where_a_provider_counts_from_1() -> None:
    play = Play()
    play.call("bash", "{}", index=1)
    play.call("stack_recall", "{}", index=2)
    play.call("read", "{}", index=3)
    assert [e.index for s in play.left for e in s.events if isinstance(e, CallDelta)] == [1, 2]


@pytest.mark.rows("X-21")
def test_x21_signed_reasoning_is_dropped_with_its_hidden_round_and_readable_is_not() -> None:
    play = Play()
    play.say(ReasoningDelta())
    play.say(ReasoningDelta(signed=True))
    play.say(ReasoningDelta())
    assert play.sources == [1]
    play.call("stack_recall", "{}")
    play.say(Finish("tool_calls"))
    play.end()
    assert play.sources == [1, 3]


@pytest.mark.rows("X-21")
def test_x21_signed_reasoning_leaves_with_the_first_word_or_call_of_its_round() -> None:
    for visible in (TextDelta("a"), None):
        play = Play()
        play.say(ReasoningDelta(signed=True))
        play.say(TextDelta(" "))
        assert play.sources == []
        play.say(visible) if visible else play.call("bash")
        assert play.sources == [1, 2, 3]


def test_texts_of_rounds_are_joined_by_a_blank_line_once_there_are_words() -> None:
    play = Play()
    for said in ("A", "\n", "B"):
        play.say(ResponseStart())
        play.say(TextDelta(said))
        play.call("stack_recall", "{}")
        play.end()
        play.round()
    play.say(TextDelta("\n"))
    play.say(TextDelta("C"))
    assert play.text == "A\n\nB\n\n\nC"


def test_usage_that_the_client_did_not_ask_for_never_leaves() -> None:
    play = Play(wants_usage=False)
    play.say(Finish("stop"), UsageReport())
    play.say(UsageReport())
    play.say(StreamEnd())
    assert [s.events for s in play.left] == [(Finish("stop"),), (StreamEnd(),)]


def test_one_ending_is_told_over_all_rounds() -> None:
    play = Play()
    play.call("stack_recall", "{}")
    play.say(Finish("tool_calls"))
    play.end()
    play.round()
    play.say(Finish("stop"))
    play.say(Finish("stop"))
    assert [s.events for s in play.end()] == [(Finish("stop"),)]


def test_a_call_of_ours_behind_the_ending_is_late() -> None:
    play = Play()
    play.say(Finish("stop"), StreamEnd())
    assert play.call("stack_recall", "{}") == []
    assert play.calls.calls[0].is_too_late


def test_a_call_of_ours_between_the_ending_and_the_terminator_holds_both() -> None:
    play = Play()
    play.show.should_continue = lambda reason: True
    assert play.say(Finish("stop")) == []
    play.call("stack_recall", "{}")
    play.say(StreamEnd())
    assert play.end() == []
    assert (play.show.finish_sent, play.show.continues, play.calls.calls[0].is_too_late) == (False, False, False)


def test_a_call_of_the_clients_between_the_ending_and_the_terminator_leaves_as_it_came() -> None:
    play = Play()
    play.say(Finish("tool_calls"))
    play.call("bash", "{}")
    assert play.left == []
    assert not play.show.can_pass_calls
    play.say(StreamEnd())
    assert play.sources == [1, 2, 3]
    assert all(shown.is_unchanged for shown in play.left)


def test_an_ending_leaves_where_its_terminator_does_not_come() -> None:
    play = Play()
    assert play.show.stop_waiting_for_terminator() == []
    play.say(Finish("stop"))
    assert [s.events for s in play.show.stop_waiting_for_terminator()] == [(Finish("stop"),)]
    assert play.show.finish_sent
    assert len(play.say(StreamEnd())) == 1


def test_a_fault_leaves_as_it_came_in_any_round() -> None:
    play = Play()
    play.call("stack_recall", "{}")
    play.end()
    play.round()
    assert [s.is_unchanged for s in play.say(StreamError())] == [True]


def test_parts_without_an_index_go_on_with_the_newest_call() -> None:
    calls = CallAssembler()
    first = calls.add_part(None, "a", "bash", "")
    assert calls.add_part(None, "", "", "{") is first
    second = calls.add_part(None, "b", "read", "")
    assert calls.add_part(None, "", "", "{") is second
    assert calls.add_part(None, "a", "", "}") is first
    assert first.arguments == "{}"


def test_a_name_that_is_repeated_is_not_doubled() -> None:
    calls = CallAssembler()
    for _ in range(3):
        call = calls.add_part(0, "a", "stack_recall", "x")
    assert (call.name, call.arguments, len(calls.calls)) == ("stack_recall", "xxx", 1)
    assert call.owner is CallOwner.OURS


SAID: dict[str, ChunkEvent] = {
    "text": TextDelta("a"),
    "blank": TextDelta(" "),
    "signed": ReasoningDelta(signed=True),
    "readable": ReasoningDelta(),
    "usage": UsageReport(),
}
EVENTS = st.sampled_from(["text", "blank", "ours", "client", "unnamed", "signed", "readable", "other", "usage"])


@given(st.lists(st.lists(EVENTS, max_size=8), min_size=1, max_size=3))
def test_whatever_is_said_pieces_leave_once_in_order_and_no_call_of_ours_does(rounds: list[list[str]]) -> None:
    play = Play()
    for number, said in enumerate(rounds):
        if number:
            play.round()
        for index, word in enumerate(said):
            match word:
                case "ours" | "client" | "unnamed":
                    play.call({"ours": "stack_x", "client": "bash"}.get(word, ""), "{}", index, f"{number}-{index}")
                case _:
                    play.say(SAID.get(word, UnknownEvent()))
        play.end()
    order = [s for s in play.sources if isinstance(s, int)]
    assert order == sorted(set(order))
    parts = [e for s in play.left for e in s.events if isinstance(e, CallDelta)]
    assert all(p.call.owner is CallOwner.CLIENT for p in parts)
    assert len(parts) == sum(w in ("client", "unnamed") for r in rounds for w in r)
    assert len({p.index for p in parts}) == len(parts)


# ----------------------------------------------------------------------------------------------------- calls by place
@pytest.mark.rows("X-30")
@pytest.mark.parametrize("index", [0, None], ids=["one index", "no index"])
def test_x30_a_second_call_under_the_same_id_is_a_call_of_its_own(index: int | None) -> None:
    calls = CallAssembler()
    for name in ("stack_recall", "bash", "bash"):
        calls.add_part(index, "X", name, '{"a": ')
        calls.add_part(index, "X", name, "1}")
        calls.add_part(index, "X", "", "")
    assert [(call.name, call.arguments) for call in calls.calls] == [
        (name, '{"a": 1}') for name in ("stack_recall", "bash", "bash")
    ]


@pytest.mark.rows("X-30")
def test_x30_only_calls_of_ours_get_an_id_of_their_own_and_only_where_theirs_is_no_sign() -> None:
    calls = CallAssembler()
    for index, (id_, name) in enumerate(
        [("X", "stack_a"), ("X", "bash"), ("", "stack_b"), ("", "read"), ("Y", "stack_c")]
    ):
        calls.add_part(index, id_, name, "{}")
    calls.decide_owners(over=True)
    calls.assign_provider_ids(lambda at, name, arguments: f"{at} {name} {arguments}")
    assert [call.provider_id for call in calls.calls] == ["0 stack_a {}", "X", "2 stack_b {}", "", "Y"]


class CountingAssembler(CallAssembler):
    """Counts how often the owner of a call is asked for."""

    decided = 0

    def _decide_owner(self, call: PartialCall, *, over: bool = False) -> None:
        self.decided += 1
        super()._decide_owner(call, over=over)


@pytest.mark.parametrize("should_refuse", [None, lambda *_: False], ids=["owners by name", "owners by arguments"])
def test_what_a_call_costs_does_not_depend_on_how_many_there_are(should_refuse: ShouldRefuse | None) -> None:
    decided = []
    for count in (250, 500):
        calls = CountingAssembler()
        calls.should_refuse = should_refuse
        for at in range(count):
            calls.add_part(at, f"c{at}", "bash", "{")
            calls.decide_owners(over=at % 2 == 1)
        decided.append(calls.decided)
    assert decided[1] <= 2 * decided[0] + 2


# ------------------------------------------------------------------------------------------------- one document alone
def hiding_text() -> Play:
    play = Play()
    play.show.hides_text = True
    return play


@pytest.mark.rows("X-36")
def test_x36_text_of_a_round_that_another_follows_is_not_shown() -> None:
    play = hiding_text()
    play.say(TextDelta("Let me "))
    play.say(TextDelta("see."))
    assert play.left == []
    play.call("stack_recall", "{}")
    play.say(Finish("tool_calls"))
    play.end()
    assert (play.left, play.show.has_unshown_text) == ([], True)
    play.round()
    play.say(TextDelta('{"a": '))
    assert play.left == []
    play.say(TextDelta("1}"))
    play.say(Finish("stop"), StreamEnd())
    assert (play.text, play.show.has_unshown_text) == ('{"a": 1}', False)


@pytest.mark.rows("X-36")
def test_x36_text_beside_a_call_of_the_clients_is_shown_as_soon_as_that_is_known() -> None:
    play = hiding_text()
    play.say(TextDelta("Let me see."))
    play.call("stack_recall", "{}", index=0)
    assert play.left == []
    play.call("bash", "{}", index=1)
    assert play.text == "Let me see."
    assert not play.show.has_unshown_text


# ------------------------------------------------------------------------------------------------------------ prefixes
@pytest.mark.rows("X-49")
@pytest.mark.parametrize("prefix", NAMESPACE_PREFIXES)
def test_a_name_of_ours_under_a_prefix_is_ours_however_it_is_cut(prefix: str) -> None:
    name = f"{prefix}stack_recall"
    for cut in range(1, len(name)):
        calls = CallAssembler()
        call = calls.add_part(0, "c1", name[:cut], "")
        assert call.owner is not CallOwner.CLIENT
        calls.add_part(0, "", name[cut:], "")
        calls.add_part(0, "", "", "{}")

        assert (call.owner, call.provider_name) == (CallOwner.OURS, "stack_recall")


@pytest.mark.rows("X-49")
@pytest.mark.parametrize("name", ["functional_test", "default_apis.x", "functions.bash", "default_api:stats", "dig"])
def test_a_name_that_only_begins_like_a_prefix_is_the_clients(name: str) -> None:
    call = CallAssembler().add_part(0, "c1", name, "")

    assert (call.owner, call.provider_name) == (CallOwner.CLIENT, name)
