"""The engine of the proxy as a library: a program that asks its model itself gets its context rewritten, and the
model's stack calls answered, without HTTP. `Session` shows the loop."""

from callstack_proxy.session import AsyncSession, Engine, Session
from callstack_proxy.values import Figures, Refused, Step

__all__ = ["AsyncSession", "Engine", "Figures", "Refused", "Session", "Step"]
