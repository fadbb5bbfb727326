"""Chooses the conversations that are held out: they pass untouched, as in shadow mode, so that the others can be
compared with them (`holdout`).

A keyed hash of the conversation's key decides, so nobody can guess or steer which ones. The key is the session that the
client names, so what a session opens stays in one group; a subagent or fork follows its parent. A conversation keeps
its group for good: it is stored as its mode.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256

from proxy.accounting import FOLDED, HELD_OUT
from proxy.core.ledger import Conversation

HELD_OUT_MODE = HELD_OUT
"""Of a stored conversation, beside the modes that a person may set."""
HELD_OUT_STATUS, HELD_OUT_REASON = "shadow", HELD_OUT
_DIGEST_BYTES = 8
_DIGESTS = 1 << 8 * _DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class Holdout:
    """`share` of the conversations are held out, by `secret`, which only this store knows."""

    share: float = 0.0
    secret: bytes = b""

    def is_chosen(self, tenant: str, key: str) -> bool:
        """Whether the conversations of this key are held out. The groups of a smaller share lie within those of a
        larger one."""
        if not self.share:
            return False
        digest = hmac.new(self.secret, f"holdout\0{tenant}\0{key}".encode(), sha256).digest()
        return int.from_bytes(digest[:_DIGEST_BYTES], "big") < self.share * _DIGESTS

    def group_of(self, conversation: Conversation, mode: str, *, acts: bool, asked: str) -> str:
        """The group in which a request counts; empty for none: where nothing is compared, or where the mode was not
        left to the proxy. `acts`: requests of the mode may be changed; `asked`: the mode that the request names."""
        if not self.share or asked:
            return ""
        if mode == HELD_OUT_MODE:
            return HELD_OUT
        return FOLDED if acts and not conversation.chosen_mode else ""


NO_HOLDOUT = Holdout()
