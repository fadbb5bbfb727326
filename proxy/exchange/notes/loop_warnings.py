"""The note that tells a model of its loops, and the refusing of their calls where that is configured (S3-24).

The law: **only `loops: block` refuses**, and only calls that are part of the pattern.

What this module does not do: it finds no loop and words no warning (`stack.loops`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from proxy.config.model import Config
from proxy.core.frames.events import Looped
from proxy.core.frames.path_state import Story
from proxy.core.ledger.interceptor import Refusing
from proxy.core.ledger.messages import Call
from proxy.core.observers.tool_roles import Names
from proxy.core.policy.loops import Rules, arisen, refused, signature
from proxy.core.policy.warning import note
from proxy.exchange.notes.base import Teller
from proxy.exchange.thread.placement import Standing
from proxy.exchange.thread.policy import Actor


@dataclass(frozen=True)
class LoopWarning:
    """A loop that closes with this request is told of behind it."""

    teller: Teller
    actor: Actor
    config: Config

    def __call__(self, standing: Standing) -> Standing:
        takes = self.config.loops != "off" and self.teller.takes_words(standing.request.model)
        if standing.mode != "active" or not takes:
            return standing
        names = self.actor.watch.names
        loop = arisen(standing.story, names, self._rules)
        if loop is not None:
            words = note(loop, self.actor.nonce(standing.conversation))
            looped = Looped(standing.frame, replace(loop, at=standing.node))
            standing = self.teller.told(self.teller.recorded(standing, [looped]), words)
        if self.config.loops == "block":
            standing = replace(standing, refused=refused(standing.story, names, self.config.loop_window))
        return standing

    @cached_property
    def _rules(self) -> Rules:
        return loop_rules(self.config)


def loop_rules(config: Config) -> Rules:
    """What counts as a loop."""
    return Rules(config.loop_repeats, config.loop_window, config.loop_period)


def refuses(standing: Standing, story: Story, names: Names, window: int) -> Refusing | None:
    """Which calls of the client's tools are answered here, as the work stands in `story`: what the model did with stack
    calls since the request came may have ended a loop. None where none are."""
    signatures = standing.refused & refused(story, names, window)
    return (lambda name, arguments: signature(Call("", name, arguments), names) in signatures) if signatures else None
