"""What the page of a conversation says of its length, of where a frame's work is, and of a call, by values alone."""

from __future__ import annotations

import pytest
from msgspec import structs

from callstack_proxy.management.api import now_ms
from callstack_proxy.management.console.conversation_list_page import STATES, standings_of, state_of
from callstack_proxy.management.console.parts.body_diff import WordChange, word_changes
from callstack_proxy.management.console.parts.call_markup import MAX_TEXT, shown_call
from callstack_proxy.management.console.parts.frame_tree import long_title, mark_of, tree_rows
from callstack_proxy.management.console.parts.request_sentence import SentenceFacts, request_sentence
from callstack_proxy.management.console.rendering import status_words
from callstack_proxy.management.console.running import call_words
from callstack_proxy.management.views import help_begins
from callstack_proxy.management.views.conversations import task_title_of
from callstack_proxy.management.views.too_short import QUIET_MS
from proxy.accounting import GateDecision, Receipt
from proxy.accounting.prompt_cache import CacheUse
from proxy.core.frames import Frame, PathState, Status, Tree
from proxy.core.ledger import Conversation, Ledger, Message, Usage


def asleep(tokens: int, reason: str, *decisions: GateDecision, status: str = "asleep") -> Receipt:
    none = CacheUse()
    return Receipt(
        id="r", status=status, reason=reason, decisions=decisions, rounds=1, tokens_in=tokens, tokens_sent=tokens,
        tokens_last=tokens, tokens_saved=0, fixed_in=0, fixed_sent=0, own_tools=0, own_texts=0, own_rounds=0, sent=none,
        untouched=none, usage=Usage(), usage_by_round=(), cost=0.0, cost_untouched=0.0, saved=0.0, basis="estimated",
        priced=True, output_priced=True,
    )  # fmt: skip


def wake(removed: int, cost: float, gain: float) -> GateDecision:
    return GateDecision("wake", "", done=False, reason="not_yet", removed=removed, compaction=100, cost=cost, gain=gain)


@pytest.mark.parametrize(
    ("receipt", "wake_at", "told"),
    [
        (asleep(903, "small"), None, "begins at about 4k tokens; 903 now"),
        (asleep(9_000, "small"), 16_000, "begins at about 16k tokens; 9k now"),
        (asleep(20_000, "in_loop"), 16_000, "begins with your next message; 20k now"),
        (asleep(8_308, "in_loop", wake(740, 4_309, 2_720)), None, "begins at about 8.7k tokens; 8.3k now"),
        (asleep(22_797, "in_loop", wake(14_666, 7_428, 65_390)), None, "begins with your next message; 23k now"),
        (asleep(24_131, "no_gain", wake(0, 21_738, -380)), None,
         "begins once a first part of the work is finished; 24k now"),
        (asleep(9_000, "no_tools"), None, ""),
        (asleep(9_000, "", status="full"), None, ""),
        (None, None, ""),
    ],
)  # fmt: skip
def test_a_conversation_that_is_too_short_says_when_help_begins(
    receipt: Receipt | None, wake_at: int | None, told: str
) -> None:
    assert help_begins(receipt, wake_at) == told


PAYS = GateDecision("fold", "f1", done=True, reason="gate", removed=9_000, requests=50, cost=4_000, gain=104_000)
COLD = GateDecision("trim", "", done=True, reason="pressure", removed=9_000)
LATER = GateDecision("fold", "f1", done=False, reason="not_yet", removed=220, cost=1_000, gain=300)
FACTS = SentenceFacts({"f1": "Read the modules", "f2": "Fix it"}, {"f1": 35}, frozenset({"f2"}), 1e-6)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"events": ("woken", "folded f1"), "decisions": (PAYS,)},
         "Put away 35 messages of “Read the modules”: saves about $0.10 over the next 50 requests."),
        ({"events": ("folded f2",), "decisions": (PAYS,), "saved": -0.004, "rounds": 3},
         "Put away 9.0k tokens of “Fix it”: saves about $0.10 over the next 50 requests; "
         "this request cost $0.0040 more than without us, since the model called us, which took 2 more rounds."),
        ({"decisions": (COLD,)}, "Put away 9.0k tokens, because the window is nearly full."),
        ({"events": ("popped f2", "popped f1")},
         "“Fix it” ended: the result stays, and the work behind it was put away."),
        ({"events": ("unfolded f1",), "recalls": 1},
         "Brought back “Read the modules”, because a person asked for it; "
         "the model asked for 1 text that had been put away, and got it."),
        ({"tokens_last": 2_000, "own_texts": 500}, "Sent without 7.5k tokens put away earlier."),
        ({"tokens_last": 2_000, "decisions": (LATER,)},
         "Sent without 7.0k tokens put away earlier; "
         "220 more could leave, but that would cost more than it saves now."),
        ({"decisions": (LATER,)}, "220 tokens could leave, but that would cost more than it saves now."),
        ({}, "Nothing was put away: no finished work is in it that could leave."),
        ({"status": "asleep", "reason": "small"},
         "Passed on unchanged, since the proxy does not act here yet: the conversation is still small, so there is "
         "nothing to gain."),
        ({"status": "error", "reason": "cancelled"}, "Broken off: a person stopped it."),
        ({"status": "error", "reason": "upstream_timeout"}, "Failed: the provider did not answer in time."),
    ],
)  # fmt: skip
def test_a_request_says_in_a_sentence_what_we_did_and_why(changes: dict[str, object], told: str) -> None:
    receipt = structs.replace(asleep(9_000, "", status="full"), **changes)
    assert request_sentence(receipt, FACTS) == told


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tokens_last": 2_000, "own_texts": 500}, ""),
        ({}, ""),
        ({"tokens_last": 2_000, "decisions": (LATER,)},
         "220 more could leave, but that would cost more than it saves now."),
        ({"tokens_last": 2_000, "saved": -0.004}, "This request cost $0.0040 more than without us."),
        ({"decisions": (COLD,)}, "Put away 9.0k tokens, because the window is nearly full."),
    ],
)  # fmt: skip
def test_a_row_does_not_repeat_what_was_put_away_before_it(changes: dict[str, object], sentence: str) -> None:
    receipt = structs.replace(asleep(9_000, "", status="full"), **changes)
    assert request_sentence(receipt, FACTS, in_list=True) == sentence


@pytest.mark.parametrize(
    ("tokens", "returns", "mark"),
    [
        ({"sent": 5}, False, "in context"),
        ({"hidden": 5}, False, "in context"),
        ({"folded": 5}, False, "put away"),
        ({"folded": 5, "sent": 1}, False, "partly put away"),
        ({"folded": 5}, True, "coming back"),
        ({"recalled": 5}, True, "brought back"),
        ({}, False, ""),
    ],
)
def test_a_frame_has_one_mark_for_where_its_work_is(tokens: dict[str, int], returns: bool, mark: str) -> None:
    assert mark_of(tokens, returns=returns) == mark


def frame(name: str, parent: str, order: int, status: Status = Status.COMPLETED, criteria: str = "") -> Frame:
    return Frame(name, parent, f"title of {name}", criteria, "", status, order, "model", 0, 0)


@pytest.mark.parametrize("old", [3, 40])
def test_finished_branches_are_closed_in_a_large_tree_but_for_the_newest(old: int) -> None:
    frames = [frame("root", "", 0, Status.IN_PROGRESS)]
    for at in range(old):
        frames += [frame(f"b{at}", "root", 2 * at + 1), frame(f"c{at}", f"b{at}", 2 * at + 2)]
    frames += [frame("open", "b0", 99, Status.PLANNED)]
    tree = Tree({each.id: each for each in frames}, "root")

    [root] = tree_rows(
        Ledger(Conversation("c", "t")), PathState(tree), {"c1": {"sent": 5, "folded": 7}}, {"c1": 0.5, "c2": 0.1}
    )
    shown = [row.frame.id for row in root.children if row.is_open]
    assert root.is_open
    assert shown == ([f"b{at}" for at in range(old)] if old == 3 else ["b0", f"b{old - 1}"])
    [inner] = root.children[1].children
    assert (inner.mark, inner.tokens, inner.own_tokens, inner.cost) == ("partly put away", 5, 12, 0.5)
    assert (root.children[1].mark, root.children[2].mark) == ("partly put away", "empty")
    [worked] = root.children[2].children
    assert worked.mark == "in another frame"


def test_the_title_of_a_conversation_has_no_marks_of_headings() -> None:
    asked = Message("user", b"", "identity", text="Follow the plan:\n\n# Export of items\n\n## Summary\nAdd it.")
    assert task_title_of([asked]) == "Follow the plan: Export of items Summary Add it."


def test_the_title_of_a_request_is_the_task_and_not_its_cut_beginning() -> None:
    asked = structs.replace(frame("f", "", 0, criteria="Hi! Mend the export\nof open items."), title="Mend the…")
    assert long_title(asked) == "Mend the export of open items."
    assert long_title(frame("f", "", 0, criteria="Other words")) == "title of f"


def test_what_sleeps_for_another_reason_than_its_length_is_not_called_short() -> None:
    assert status_words("asleep", "in_loop") == "too short to help yet"
    assert status_words("asleep", "no_tools") == "passed on"
    assert [status_words("error", reason) for reason in ("cancelled", "upstream_timeout")] == ["broken off", "failed"]
    assert status_words("of a later version") == "of a later version"


@pytest.mark.parametrize(
    ("receipts", "state"),
    [
        ([], "waiting"),
        ([asleep(9, "", status="full")], "waiting"),
        ([asleep(9, "too_slow", status="bypass")], "passed on"),
        ([asleep(9, "window", status="stateless")], "passed on"),
        ([asleep(9, "upstream_timeout", status="error")], "failed"),
        ([asleep(9, "small"), asleep(9, "", status="keep_alive")], "too short"),
        ([asleep(9, "small"), asleep(9, "", status="summary"), asleep(9, "", status="side")], "too short"),
        ([asleep(9, "", status="full"), asleep(9, "client_left", status="error")], "waiting"),
        ([asleep(9, "", status="side")], "passed on"),
        ([asleep(9, "stopped", status="error")], "waiting"),
    ],
)
def test_a_conversation_stands_as_its_newest_request_tells(receipts: list[Receipt], state: str) -> None:
    standings = standings_of(structs.replace(each, conversation="c") for each in receipts)
    assert state in STATES
    conversation, newest = Conversation("c", "t"), standings["c"].newest if receipts else None
    assert state_of(conversation, newest, now_ms(), is_working=False) == state
    old = {"waiting": "quiet"}.get(state, state)
    assert state_of(conversation, newest, now_ms() - QUIET_MS, is_working=False) == old


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"timeout": 5, "command": "pytest -q"}', "bash pytest -q"),
        ('{"command": ["ls", "-l"]}', "bash ls -l"),
        ('{"todos": [{"content": "x"}], "why": "later"}', "bash later"),
        ('{"file_path": "/workspace/shop/cmd/cli/hooks.go"}', "bash …/cmd/cli/hooks.go"),
        ('{"file_path": "/cmd/cli/hooks.go"}', "bash /cmd/cli/hooks.go"),
        ('{"path": "/workspace/shop", "pattern": "totals?"}', "bash totals?"),
        ('{"comm', "bash"),
        ("[1]", "bash"),
        ("[" * 100_000, "bash"),
    ],
)
def test_a_call_is_told_in_a_few_words(arguments: str, told: str) -> None:
    assert call_words("bash", arguments) == told


def test_a_call_that_is_nested_too_deep_is_shown_as_it_came() -> None:
    assert shown_call("bash", "[" * 100_000).endswith(f"<bdi>bash {'[' * MAX_TEXT}</bdi></pre>")
    for depth in range(1, 1_200):  # what is just read may be too deep to be written
        assert "bash" in shown_call("bash", f'{{"a": {"[" * depth}{"]" * depth}}}')


def test_a_note_in_a_long_text_is_all_that_changed_in_it() -> None:
    """Longer than what is compared word by word, as the system texts of agents are."""
    rule = "Look before you edit, and run the tests. "

    assert word_changes(rule * 1_000, rule * 600 + "Recall it. " + rule * 400) == [
        WordChange("same", rule * 600),
        WordChange("ins", "Recall it. "),
        WordChange("same", rule * 400),
    ]
    assert word_changes("one two", "one two") == [WordChange("same", "one two")]
    assert word_changes("a a", "a") == [WordChange("same", "a"), WordChange("del", " a")]
