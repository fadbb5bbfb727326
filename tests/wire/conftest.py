"""One proxy and one provider a module."""

from tests.wire.stage import _provider, journal, provider, proxy, start

__all__ = ["_provider", "journal", "provider", "proxy", "start"]
