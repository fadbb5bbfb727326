"""A conversation that tests write by hand, and the messages and requests of its client."""

from proxy.core.ledger.ledger import Conversation, Entry, EntryKind, Ledger, Round, Thread, turn_id
from proxy.core.ledger.messages import Call, Message, ModelResponse, Request, identity_of
from proxy.core.matching import match_history as matching
from proxy.core.matching.match_result import Match, MatchKind

READ = Call("call_1", "read", '{"path":"a.py"}')


def message(role: str, text: str = "", calls: tuple[Call, ...] = (), answers: str = "") -> Message:
    return Message(role, text.encode() or b"-", identity_of(role, text, calls, answers), text, calls, answers, 1)


def request(
    *messages: Message, tools: tuple[str, ...] = ("read", "write"), system: str = "s", body: bytes = b"{}"
) -> Request:
    return Request(body, {}, "m", False, False, (), messages, tools, 0, "auto", False, 1, system)


ASK = message("user", "please read the file and tell me what is in it")
CALLED = message("assistant", "", (READ,))
RESULT = message("tool", "print('hello')\n" * 40, answers="call_1")
ANSWER = message("assistant", "It prints a greeting, forty times over.")
MORE = message("user", "and now?")


class Book:
    """A ledger under construction: what clients sent and what was answered."""

    def __init__(self) -> None:
        self.ledger = Ledger(Conversation("c" * 32, "t"))
        self.ledger.threads["main"] = Thread("main", "s", ("read", "write"))
        self.now = 0

    def arrive(self, asked: Request, found: Match | None = None) -> str:
        """Record a request; the id of its last entry."""
        found = found or matching.match(self.ledger, asked)
        entries = matching.new_entries(self.ledger, asked, found, "main", self.now)
        for entry in entries:
            self.ledger.add_entry(entry)
        return entries[-1].id if entries else found.path[-1].id

    def answer(self, node: str, *said: Message, complete: bool = True) -> str:
        """Record a turn of these rounds; its id."""
        self.now += 1
        turn = turn_id(node, len(self.ledger.turns_by_parent.get(node, ())))
        self.ledger.add_entry(Entry(turn, node, self.ledger.next_seq, EntryKind.TURN, "main", created=self.now))
        for number, spoken in enumerate(said):
            last = number == len(said) - 1
            self.ledger.add_round(
                Round(turn, number, ModelResponse(spoken, "stop", complete=complete), last=last, created=self.now)
            )
        return turn


def compacted_after(book: Book, *messages: Message) -> list[Entry]:
    """The client compacts its history to these messages and is answered; the path of that."""
    asked = request(*messages)
    found = matching.match(book.ledger, asked)
    if found.kind is MatchKind.NEW:
        found = matching.match_compacted(book.ledger, asked) or found
    assert found.kind is MatchKind.COMPACTED
    return list(book.ledger.path(book.answer(book.arrive(asked, found), message("assistant", "Well, then."))))
