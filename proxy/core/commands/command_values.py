"""What a person may do to the tree by hand, as values: push, plan, activate, pop, invalidate, rename.

A frame is named by its id, a beginning of it, or a title, where that is unique; empty where the active one is meant.

What this module does not do: what comes of a deed is `by_hand`'s to say, how it is typed `typed`'s.
"""

from __future__ import annotations

import msgspec


class FrameSpec(msgspec.Struct, frozen=True):
    """A frame to be. Without criteria its title says when it is done."""

    title: str
    criteria: str = ""
    children: tuple[FrameSpec, ...] = ()


class PushCommand(msgspec.Struct, frozen=True):
    """Begin a frame under the active one, which `parent` may name."""

    step: FrameSpec
    parent: str = ""


class PlanCommand(msgspec.Struct, frozen=True):
    """Plan frames under the active one, or under `parent`: all or none."""

    steps: tuple[FrameSpec, ...]
    parent: str = ""


class ActivateCommand(msgspec.Struct, frozen=True):
    """Begin a planned frame, resume a blocked one, try a failed one again."""

    frame: str


class PopCommand(msgspec.Struct, frozen=True):
    """End the active frame, or one above it. Without results its last words stand for them."""

    frame: str = ""
    status: str = ""
    results: str = ""


class InvalidateCommand(msgspec.Struct, frozen=True):
    frame: str
    reason: str


class RenameCommand(msgspec.Struct, frozen=True):
    """Other words for a planned frame."""

    frame: str
    title: str = ""
    criteria: str = ""


FrameCommand = PushCommand | PlanCommand | ActivateCommand | PopCommand | InvalidateCommand | RenameCommand
