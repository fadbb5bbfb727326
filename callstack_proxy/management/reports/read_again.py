"""What folds cause that no bill shows as theirs: files that are read again because their text had left.

The untouched bill stays what it is: it holds such a request too, since the client made it. Beside it stands what came
of text that had left, above the rate at which agents read files again where nothing left. Hidden rounds and recalls are
not in here: they stand in the cost already, and in no untouched bill.
"""

from __future__ import annotations

import msgspec

USUAL_RATE = 159 / 3023
"""Files read again for one request where nothing left: 36 recorded sessions."""
MIN_REQUESTS = 300
"""So many requests that passed untouched tell a rate of their own."""
ACTING_STATUS, PASSED_STATUS = "full", "shadow"


class ReadAgain(msgspec.Struct, kw_only=True, gc=False):
    """Sums over receipts; money is USD."""

    requests: int = 0
    """In which the proxy acted."""
    rereads: int = 0
    """Files that were read again in them."""
    gone: int = 0
    """Of `rereads`, those of text that had left."""
    cost: float = 0.0
    """What these took of the untouched bill."""
    passed: int = 0
    """Requests of sessions that passed untouched: mode `shadow`, and what is held out."""
    passed_rereads: int = 0

    def add(self, status: str, rereads: int, gone: int, cost: float) -> None:
        """One receipt."""
        if status == ACTING_STATUS:
            self.requests += 1
            self.rereads += rereads
            self.gone += gone
            self.cost += cost
        elif status == PASSED_STATUS:
            self.passed += 1
            self.passed_rereads += rereads

    @property
    def usual_rate(self) -> float:
        """Files read again for one request where nothing left."""
        return self.passed_rereads / self.passed if self.passed >= MIN_REQUESTS else USUAL_RATE

    @property
    def caused(self) -> float:
        """Of `gone`, what is above that rate."""
        return min(self.gone, max(0.0, self.rereads - self.usual_rate * self.requests))

    @property
    def cost_caused(self) -> float:
        """The price of these, at the mean of all."""
        return self.cost * self.caused / self.gone if self.gone else 0.0
