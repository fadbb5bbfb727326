"""An OpenAI-compatible proxy that keeps an agent's context as a call stack of task frames: all that a
request passes. Start reading at `proxy.exchange`."""

__version__ = "0.2.0"
