"""What is made from the token of a running proxy: the code in the console's link, and the proof that it is that proxy.
Commands that only ask one import this, so it needs the standard library alone."""

from __future__ import annotations

import base64
import hmac

_IPV4_IN_IPV6 = "::ffff:"
"""How a socket for both kinds of addresses names one of the older kind."""


def console_code(operator_token: str) -> str:
    """The code in the console's link, made from the token of this process; empty without one."""
    if not operator_token:
        return ""
    digest = hmac.digest(operator_token.encode(), b"console link", "sha256")
    return base64.urlsafe_b64encode(digest[:15]).decode()


def proof_of(operator_token: str, challenge: str, host: str, port: int) -> str:
    """What a process that has this token answers to a challenge at this address, to which the connection leads. Nobody
    can use the answer of another address or port, nor learn the token from it."""
    said = f"proof of a running proxy\n{host.removeprefix(_IPV4_IN_IPV6)}\n{port}\n{challenge}"
    return hmac.digest(operator_token.encode(), said.encode(), "sha256").hex()
