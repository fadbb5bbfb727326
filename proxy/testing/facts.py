"""What the request and the provider decide about an answer, for whichever dialect writes it down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.testing.answer import Usage


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything an answer needs to know beside its own words."""

    number: int
    """Running number of the answer, from 1."""
    model: str
    created: int
    """Seconds since 1970."""
    usage: Usage
    request: Mapping[str, Any] = field(default_factory=dict)
    """The body that is answered; some dialects repeat parts of it."""
    readable: str = ""
    """The answer's reasoning as far as this request gets to read it."""
    token: str = ""
    """What makes the answer's reasoning a sealed item; empty where it has none."""
    transformations: tuple[Mapping[str, str], ...] = ()
    """What the provider left out of the request, as `binding.Verdict` tells it."""

    @property
    def answer_id(self) -> str:
        """What the ids of this answer's parts end with."""
        return f"scripted_{self.number}"
