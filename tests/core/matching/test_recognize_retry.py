"""Is a request the same one again? By values."""

from proxy.core.matching import match_history as matching
from proxy.core.matching.match_result import Match, MatchKind
from proxy.core.matching.recognize_retry import RETRY_WINDOW_MS, match_retry
from tests.core.matching.book import ANSWER, ASK, MORE, Book, compacted_after, message, request


def test_an_identical_opening_joins_until_the_follow_up_or_ten_minutes(book: Book) -> None:
    fresh = Book()
    fresh.answer(fresh.arrive(request(ASK), Match(MatchKind.NEW)), ANSWER)
    assert match_retry(fresh.ledger, request(ASK), now=1000) is not None
    assert match_retry(fresh.ledger, request(ASK), now=RETRY_WINDOW_MS + 1) is None
    assert match_retry(book.ledger, request(ASK), now=1) is None


def test_a_compacted_history_is_asked_again_until_the_thread_goes_on(book: Book) -> None:
    """Codex has other bytes in each request, and no answer stands in a history it compacted."""
    summary = message("user", "This was done: nothing.")
    path = compacted_after(book, ASK, summary)
    again = matching.match_compacted(book.ledger, request(ASK, summary))
    assert again == Match(MatchKind.RETRIED, tuple(path[:-1]))
    book.answer(book.arrive(request(ASK, summary, message("assistant", "Well, then."), MORE)), ANSWER)
    tip = book.ledger.newest_tip()
    assert tip is not None
    assert matching.match_compacted(book.ledger, request(ASK, summary)) == Match(MatchKind.COMPACTED, adopts=tip.id)


def test_the_beginning_of_a_compacted_history_is_no_request_of_its_own() -> None:
    book = Book()
    book.answer(book.arrive(request(ASK), Match(MatchKind.NEW)), ANSWER)
    assert match_retry(book.ledger, request(ASK), now=1) is not None
    compacted_after(book, ASK, message("user", "This was done: nothing."))
    assert match_retry(book.ledger, request(ASK), now=1) is None
