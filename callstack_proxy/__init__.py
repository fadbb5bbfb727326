"""The engine of the proxy as a library: a program that asks its model itself gets its context rewritten, and the
model's stack calls answered, without HTTP. `Session` shows the loop."""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from callstack_proxy.session import AsyncSession, Engine, Session
    from callstack_proxy.values import Figures, Refused, Step

__all__ = ["AsyncSession", "Engine", "Figures", "Refused", "Session", "Step"]

_MODULES = {
    "AsyncSession": "callstack_proxy.session",
    "Engine": "callstack_proxy.session",
    "Figures": "callstack_proxy.values",
    "Refused": "callstack_proxy.values",
    "Session": "callstack_proxy.session",
    "Step": "callstack_proxy.values",
}


def __getattr__(name: str) -> object:
    """Imported once it is asked for: the status line, below the same package, has 50 ms for everything."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
