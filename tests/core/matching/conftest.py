"""A conversation that is known here."""

import pytest

from proxy.core.matching.match_result import Match, MatchKind
from tests.core.matching.book import ANSWER, ASK, CALLED, RESULT, Book, request


@pytest.fixture
def book() -> Book:
    """user, call, result, answer: two turns of ours."""
    book = Book()
    first = book.answer(book.arrive(request(ASK), Match(MatchKind.NEW)), CALLED)
    assert first
    book.answer(book.arrive(request(ASK, CALLED, RESULT)), ANSWER)
    return book
