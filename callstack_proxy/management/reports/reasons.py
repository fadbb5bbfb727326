"""What the words in a receipt mean, one plain sentence for each: its status, the reason beside it, and the reason of a
decision of the cost gate. Terminal and console take them from here."""

from __future__ import annotations

STATUS_MEANINGS = {
    "full": "the proxy helps here: finished work is put away where that pays, and can be recalled",
    "passive": "rewritten, without tools of the proxy",
    "asleep": "passed on unchanged, since the proxy does not act here yet",
    "side": "passed on unchanged, as a small question beside the work, such as a title",
    "off": "passed on unchanged, since the proxy is switched off",
    "shadow": "passed on unchanged, since shadow mode only measures",
    "stateless": "the client's own request, less what did not fit; nothing of it is kept",
    "answered": "answered by the proxy itself",
    "bypass": "passed on unchanged, since the proxy could not follow it",
    "error": "ended with an error",
    "summary": "asked by the proxy, for a summary",
    "keep_alive": "sent by the proxy, so that the provider keeps its prompt cache through a pause",
}

REASON_MEANINGS = {
    # asleep, side
    "small": "the conversation is still small, so there is nothing to gain",
    "no_gain": "what could leave is worth less than the tools and texts that the proxy would add",
    "in_loop": "it continues tool calls that began without the proxy; to begin amid them would cost more than it saves",
    "no_tools": "the client offers no tools, so the model could not ask for what left",
    "no_choice": "the client demands a certain tool, none, or JSON, so the model could not call ours",
    "no_recall": "the provider takes none of the proxy's tools, so the model could not ask for what left",
    "too_many_tools": "the client offers so many tools that ours do not fit beside them",
    "legacy_functions": "the client offers tools in the old form (`functions`), beside which ours cannot stand",
    "name_clash": "a tool of the client has the name of one of ours",
    "several_answers": "the client asks for several answers at once",
    # shadow
    "holdout": "it was chosen to be compared with what the proxy acts on (`holdout`)",
    # bypass, stateless
    "window": "what would have been sent does not fit the model's window",
    "form": "the provider takes no form of the request but the client's own",
    "compaction": "the client compacts its own history with it",
    "no_messages": "there is no message in it",
    "too_many_messages": "it has more messages than the proxy follows",
    "too_long": "it holds more text than any model reads, so the proxy does not follow it",
    "law_pairing": "a tool call would have been sent without its result",
    "unreadable": "the body is no request that the proxy can read",
    "too_slow": "the proxy was not ready in time (`assembly_budget_ms`)",
    "internal": "the proxy itself failed; its log says where",
    "previous_response": "it goes on from an answer that only the provider keeps",
    "item_reference": "it names parts that only the provider keeps",
    "conversation": "the provider keeps this conversation",
    "background": "the provider answers it in the background",
    "store_locked": "another program holds the lock of the store",
    "store_full": "the disk of the store is full",
    "store_readonly": "the store may not be written",
    "store_corrupt": "the file of the store is damaged",
    "store_unreachable": "the store cannot be reached",
    "store_busy": "the store has too much to do",
    "store_failed": "the store does not take records",
    # error
    "upstream_error": "the provider answered with an error",
    "upstream_failed": "the provider could not be asked",
    "upstream_unreachable": "no connection to the provider was made",
    "upstream_closed": "the provider's connection ended before the answer did",
    "upstream_unreadable": "the provider's answer cannot be read",
    "upstream_timeout": "the provider did not answer in time",
    "client_left": "the client closed the connection, or read nothing more of its answer",
    "cancelled": "a person stopped it",
    "stopped": "a person has stopped the agent, and nothing is asked for it until it is resumed",
    "shutdown": "the proxy was stopped before the answer was whole",
    "bad_request": "the proxy cannot accept the request as it is",
    "unauthorized": "the client key is missing or unknown",
    "forbidden": "the client key does not allow it",
    "too_large": "the request is larger than the proxy takes",
    "too_often": "the client key has sent too many requests",
    "budget_spent": "the money of the client key is spent",
    "budget_reserved": "the money of the client key is reserved for other requests that run now",
    "not_counted": "what it would cost cannot be counted, and the client key has a budget",
    "other_user": "it comes from a program of another user, for whom the proxy spends no key of its own",
    "overloaded": "too many bodies or headers were being read at once",
    "budget_unknown": "what the client key has spent cannot be found out now",
    "model_not_allowed": "the client key does not allow this model",
    "model_not_found": "no upstream serves this model",
    "unreadable_coding": "its body is packed in a way that the proxy cannot read",
    "no_web_sockets": "the proxy speaks no web sockets",
    "other_api": "no upstream takes requests to this address",
    "loop_detected": "an upstream leads back to this proxy",
}

DECISION_REASONS = {
    "gate": "it pays, by the prices of the model and its cache",
    "band": "it keeps the request below the length from which all of it costs more",
    "cold": "the provider's cache is cold, so changing the start costs nothing",
    "pressure": "the window is nearly full",
    "bound": "the most that may be spent on it is reached",
    "asked": "a person or the model asked for it",
    "not_yet": "it would cost more than it saves",
    "provider_trimmed": "the provider shortens the context itself, so the cost of a cut is unknown",
}


def outcome_meaning(status: str, reason: str = "") -> str:
    """What became of a request and why, as one sentence without a capital and a full stop. A word that is not known,
    such as one that a later version wrote, stands for itself."""
    words = STATUS_MEANINGS.get(status, status)
    return f"{words}: {reason_meaning(reason)}" if reason else words


def reason_meaning(reason: str) -> str:
    """The same for the reason alone."""
    return REASON_MEANINGS.get(reason, reason.replace("_", " "))


def decision_meaning(reason: str) -> str:
    """Why the cost gate decided as it did."""
    return DECISION_REASONS.get(reason, reason.replace("_", " "))
