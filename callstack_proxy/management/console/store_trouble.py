"""A store that fails, in words for whoever looks at a page: what happened, why, what to do, and what becomes of the
agents meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable

from callstack_proxy.management.api import ApiContext
from proxy.errors import StoreError

HINTS = {
    "store_locked": "Another program holds its lock, such as a backup or a second proxy; wait until that has ended.",
    "store_full": "Free some space on its disk.",
    "store_readonly": "Let the user of the proxy write its file and its folder.",
    "store_corrupt": "The operation page says what became of the damaged file.",
    "store_unreachable": "Look whether its file and folder are there, or whether its database server runs.",
    "store_busy": "It has too much to do at the moment; wait.",
}
"""What to do, by the code of the failure."""
LOST_FORM_WORDS = (
    "What you sent may not have been done. When the store is back, look at the page before you send it again."
)


def unread_words(error: StoreError) -> str:
    """Why a page cannot be shown."""
    return f"The store cannot be read: {error}. {_hint(error)}"


def unwritten_words(error: StoreError) -> str:
    """Why nothing new is kept."""
    return f"The store takes nothing new: {error}. {_hint(error)}"


def slow_words(seconds: float) -> str:
    """Why a page was given up."""
    return (
        f"The page was not ready after {seconds:.0f} s. The disk or the database server of the store may hang, or the "
        "store has too much to add up; look at them, or wait."
    )


def _hint(error: StoreError) -> str:
    return HINTS.get(error.code, "The proxy's log says more.")


def agents_meanwhile(context: ApiContext) -> str:
    """What becomes of requests while the store fails."""
    if context.config.fail_policy == "closed":
        return "Requests of agents are refused until it is back, because fail_policy is closed."
    return "Agents go on meanwhile: their requests pass to the provider unchanged."


def store_news(context: ApiContext) -> Callable[[], bytes]:
    """A function that returns a server-sent event when the store begins to fail, fails for another reason, or is well
    again; else nothing. It looks at memory only."""
    told = ""

    def news() -> bytes:
        nonlocal told
        error = context.store.write_error()
        problem = f"{unwritten_words(error)} {agents_meanwhile(context)}" if error is not None else ""
        if problem == told:
            return b""
        told = problem
        return b"event: store\ndata: " + json.dumps({"problem": problem}).encode("ascii") + b"\n\n"

    return news
