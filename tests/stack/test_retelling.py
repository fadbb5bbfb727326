"""Is this new conversation an old one, told again? When in doubt it is not."""

from __future__ import annotations

import pytest

from proxy.stack import retelling
from proxy.stack.ledger import Thread
from proxy.stack.matching import How
from proxy.stack.retelling import LEAST_TOLD, retold
from proxy.stack.transcript import Message, Request
from tests.stack.working import Watched, bash, padded, request

ASKED = "Implement a rate limiter for the public API."
NAMES = "TokenBucket take_token refill_bucket MAX_BURST REFILL_SECONDS BucketError src/limit.py src/api.py"
OTHERS = "LeaseTable grant_lease expire_leases MAX_LEASES LEASE_SECONDS LeaseError src/lease.py src/grid.py"
SUMMARY = f"The user asked: {ASKED} It is in {NAMES}. " + "The work goes on from here as it was planned. " * 25


@pytest.fixture(scope="module")
def old() -> Watched:
    """A conversation that is long enough to have been compacted."""
    watched = Watched(folds=False).user(ASKED)
    for n in range(11):
        watched.does(bash(f"cat {n}"), results=[padded(NAMES, LEAST_TOLD // 5)])
    watched.says("There is a token bucket.")
    watched.ledger.threads["main"] = Thread("main", "system", ("bash", "edit"))
    return watched


def opening(text: str, tools: tuple[str, ...] = ("bash", "edit"), system: str = "system") -> Request:
    return request(Message("user", text.encode(), "", text), tools=tools, system_hash=system)


@pytest.mark.rows("X-06")
def test_a_summary_of_it_goes_on_where_it_stood(old: Watched) -> None:
    """X-06: same tools, same system text, the user's words, and names that were all spoken of."""
    found = retold(old.ledger, opening(SUMMARY))

    assert found is not None
    assert (found.how, found.adopts) == (How.COMPACTED, old.story.tip)


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
def test_what_might_be_somebody_elses_is_new(old: Watched, other: Request) -> None:
    assert retold(old.ledger, other) is None


def test_no_client_compacts_while_there_is_room() -> None:
    watched = Watched(folds=False).user(ASKED).does(bash("cat"), results=[NAMES]).says("There.")
    watched.ledger.threads["main"] = Thread("main", "system", ("bash", "edit"))

    assert retold(watched.ledger, opening(SUMMARY)) is None


def test_a_summary_that_was_sent_before_is_no_news(old: Watched) -> None:
    watched = Watched(folds=False).user(SUMMARY)
    for n in range(11):
        watched.does(bash(f"cat {n}"), results=[padded(NAMES, LEAST_TOLD // 5)])
    watched.says("There is a token bucket.")
    watched.ledger.threads["main"] = Thread("main", "system", ("bash", "edit"))

    assert retold(watched.ledger, opening(SUMMARY)) is None
    assert len(ASKED) > retelling.LEAST_QUOTE
