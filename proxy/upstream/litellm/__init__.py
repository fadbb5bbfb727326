"""Providers with other APIs, asked through litellm: Gemini, Bedrock, Claude for a client that speaks chat completions.

`LitellmUpstream` behaves as any other upstream. A client decides what is asked, but never where, with which key, or how
litellm works. litellm's retries, fallbacks, logs and reports are off. Importing it takes seconds and 190 MB, so it is
imported only if such an upstream is configured.
"""

from proxy.upstream.litellm.client import LitellmUpstream
from proxy.upstream.litellm.loader import unavailable_reason
