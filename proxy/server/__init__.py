"""To be written."""

from proxy.server.app import build_app
from proxy.server.runner import bind, serve

__all__ = ["bind", "build_app", "serve"]
