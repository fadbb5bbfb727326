"""Providers of other shapes, asked through litellm: Gemini, Bedrock, Claude for a client that speaks chat completions.

    upstream.py    `LitellmUpstream`: an upstream like any other to the rest of the proxy
    arguments.py   a request's body as arguments of a litellm call
    told.py        what litellm hands back, as bytes of the dialect
    refusals.py    its exceptions, as the provider's answer or as a lost connection
    library.py     whether litellm is here, and its import

The law: **a client says what is asked, never where, with whose key, or how litellm works.** Only the members that the
API itself has become arguments; litellm takes addresses, keys and mock answers by the same door.

What this package does not do: it retries nothing, falls back to nothing, and has litellm log, count and report nothing.
Nothing here imports litellm before such an upstream is there: that takes seconds and 190 MB.
"""

from proxy.upstream.litellm.client import LitellmUpstream
from proxy.upstream.litellm.loader import unavailable_reason

__all__ = ["LitellmUpstream", "unavailable_reason"]
