"""The ASGI application, the guard in front of it, and the server that runs it on a socket."""

from proxy.server.app import build_app
from proxy.server.runner import bind, serve

__all__ = ["bind", "build_app", "serve"]
