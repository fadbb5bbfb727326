"""What the application lends to what is mounted on it. `/stack` and `/console` are for people and for other programs;
the server knows of them only what `build_app` is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from starlette.types import ASGIApp

from proxy.auth import Headers, Tenant
from proxy.exchange import AppServices
from proxy.upstream import LearnedTrait


@dataclass(frozen=True)
class RunningApp:
    """An application that has started, as what is mounted on it sees it."""

    services: AppServices
    tenant_of: Callable[[Headers], Tenant]
    """Raises Unauthorized."""
    hash_of_key: Callable[[str], str]
    """The hash of the issued key with a name, empty if there is none."""
    learned_traits: Callable[[], Sequence[LearnedTrait]]
    """What the upstreams' refusals have taught this process."""
    is_draining: Callable[[], bool]
    started: int
    """In ms since the epoch."""
    operator_token: str
    """A secret of this process that grants everything, or empty."""


class Mounted(NamedTuple):
    """What answers below `/stack`, and what answers below `/console`."""

    stack: ASGIApp
    console: ASGIApp


BuildMounted = Callable[[RunningApp], Mounted]
"""Called in a thread when the first request below one of the two comes."""
