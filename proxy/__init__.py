"""An OpenAI-compatible proxy that keeps an agent's context as a call stack of task frames.

Read `proxy.exchange` first: it follows one client turn from the request to the answer. This package module holds the
version and nothing else, so that importing it costs nothing.
"""

__version__ = "0.1.0"
