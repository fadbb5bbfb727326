"""Is this new conversation an old one, told again? When in doubt it is not."""

from __future__ import annotations

import pytest

from proxy.core.ledger.ledger import Thread
from proxy.core.ledger.messages import Message, Request
from proxy.core.matching import restarted_conversation as retelling
from proxy.core.matching.match_result import MatchKind
from proxy.core.matching.restarted_conversation import MIN_CONVERSATION_TOKENS, match_restarted
from tests.core.working import GrowingConversation, bash, padded, request
from tests.pace import within

ASKED = "Implement a rate limiter for the public API."
NAMES = "TokenBucket take_token refill_bucket MAX_BURST REFILL_SECONDS BucketError src/limit.py src/api.py"
OTHERS = "LeaseTable grant_lease expire_leases MAX_LEASES LEASE_SECONDS LeaseError src/lease.py src/grid.py"
SUMMARY = f"The user asked: {ASKED} It is in {NAMES}. " + "The work goes on from here as it was planned. " * 25


@pytest.fixture(scope="module")
def old() -> GrowingConversation:
    """A conversation that is long enough to have been compacted."""
    watched = GrowingConversation(folds=False).user(ASKED)
    for n in range(11):
        watched.does(bash(f"cat {n}"), results=[padded(NAMES, MIN_CONVERSATION_TOKENS // 5)])
    watched.says("There is a token bucket.")
    watched.ledger.threads["main"] = Thread("main", "system", ("bash", "edit"))
    return watched


def opening(text: str, tools: tuple[str, ...] = ("bash", "edit"), system: str = "system") -> Request:
    return request(Message("user", text.encode(), "", text), tools=tools, system_hash=system)


@pytest.mark.rows("X-06")
def test_a_summary_of_it_goes_on_where_it_stood(old: GrowingConversation) -> None:
    """X-06: same tools, same system text, the user's words, and names that were all spoken of."""
    found = match_restarted(old.ledger, opening(SUMMARY))

    assert found is not None
    assert (found.kind, found.adopts) == (MatchKind.COMPACTED, old.story.tip)


@pytest.mark.parametrize(
    "other",
    [
        opening(SUMMARY, tools=("bash",)),
        opening(SUMMARY, tools=()),
        opening(SUMMARY, system="another"),
        opening(SUMMARY.replace("limiter", "limit")),
        opening(SUMMARY[:900]),
        opening(ASKED),
        opening(SUMMARY.replace(NAMES, OTHERS)),
        opening(SUMMARY.replace(NAMES, "some files")),
    ],
    ids=["fewer tools", "no tools", "another system text", "no word of the user's", "short", "a prompt", "other names",
         "no names"],
)  # fmt: skip
def test_what_might_be_somebody_elses_is_new(old: GrowingConversation, other: Request) -> None:
    assert match_restarted(old.ledger, other) is None


def test_no_client_compacts_while_there_is_room() -> None:
    watched = GrowingConversation(folds=False).user(ASKED).does(bash("cat"), results=[NAMES]).says("There.")
    watched.ledger.threads["main"] = Thread("main", "system", ("bash", "edit"))

    assert match_restarted(watched.ledger, opening(SUMMARY)) is None


TOLD = "The bucket stands in src/limit.py, and nothing calls it yet."
ASKS = "Please summarize our conversation so far."


def asked_for(summary: str = TOLD, order: str = ASKS) -> GrowingConversation:
    """A short conversation whose last answer is `summary`."""
    watched = GrowingConversation(folds=False).user(ASKED).does(bash("cat"), results=[NAMES]).says("There.").user(order)
    watched.says(summary)
    watched.ledger.threads["main"] = Thread("main", "system", ("bash", "edit"))
    return watched


@pytest.mark.rows("X-06", "S1-70b")
@pytest.mark.parametrize("opens", [TOLD, f"Where we are:\n\n{TOLD}\n\nGo on."])
@pytest.mark.parametrize("answer", [TOLD, f"<analysis>It was read.</analysis>\n<summary>\n{TOLD}\n</summary>"])
def test_the_summary_that_was_asked_for_begins_a_history_of_any_length(opens: str, answer: str) -> None:
    """X-06: the words of the answer, in the first message of the user's. Clients leave out its tags (Claude Code), and
    write the time or git status into their system text."""
    watched = asked_for(answer)
    found = match_restarted(watched.ledger, opening(opens, system="of another day"))

    assert found is not None
    assert (found.kind, found.adopts) == (MatchKind.COMPACTED, watched.story.tip)


@pytest.mark.parametrize(
    ("old", "other"),
    [
        (asked_for(order="Please explain the bucket."), opening(TOLD)),
        (asked_for(summary="It is a bucket."), opening("It is a bucket.")),
        (asked_for().user("go on").says("Done with the first part of it."), opening(TOLD)),
        (asked_for(), opening(TOLD[:-1])),
        (asked_for(), opening(TOLD, tools=("bash",))),
    ],
    ids=["no summary", "too short", "not the last answer", "not all of it", "fewer tools"],
)
def test_an_answer_that_is_quoted_elsewhere_begins_a_conversation(old: GrowingConversation, other: Request) -> None:
    assert match_restarted(old.ledger, other) is None


def test_a_summary_that_was_sent_before_is_no_news(old: GrowingConversation) -> None:
    watched = GrowingConversation(folds=False).user(SUMMARY)
    for n in range(11):
        watched.does(bash(f"cat {n}"), results=[padded(NAMES, MIN_CONVERSATION_TOKENS // 5)])
    watched.says("There is a token bucket.")
    watched.ledger.threads["main"] = Thread("main", "system", ("bash", "edit"))

    assert match_restarted(watched.ledger, opening(SUMMARY)) is None
    assert len(ASKED) > retelling.MIN_QUOTE_CHARACTERS


def test_a_paste_of_megabytes_that_quotes_a_long_conversation_is_told_apart_soon() -> None:
    """One conversation of 600 KB, and a first message of thrice that holds every word of it: 13 s, where each name of
    the one is looked for in the other."""
    text = "\n".join(f"- line {n} of src/file_{n}.py: Error{n} failed at {n * 7}" for n in range(10_000))
    pasted = GrowingConversation(folds=False).user(text).says("Noted.")
    pasted.ledger.threads["main"] = Thread("main", "system", ("bash", "edit"))
    again = opening(text + text.replace("src/", "lib/") + text.replace("Error", "Warning"))

    with within(1):
        match_restarted(pasted.ledger, again)


def test_of_many_names_those_from_all_over_it_decide(monkeypatch: pytest.MonkeyPatch, old: GrowingConversation) -> None:
    monkeypatch.setattr(retelling, "MAX_SUMMARY_NAMES", 8)
    unknown = " ".join(f"zz_name_{n}" for n in range(40))

    assert match_restarted(old.ledger, opening(SUMMARY)) is not None
    assert match_restarted(old.ledger, opening(f"{SUMMARY} {unknown}")) is None
