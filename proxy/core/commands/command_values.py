"""The commands that change the frame tree, as values. A frame is named by its id, a unique prefix of it, or its title;
an empty name means the active frame."""

from __future__ import annotations

import msgspec


class FrameSpec(msgspec.Struct, frozen=True):
    """A frame to create. Without criteria, its title serves as one."""

    title: str
    criteria: str = ""
    children: tuple[FrameSpec, ...] = ()


class PushCommand(msgspec.Struct, frozen=True):
    """Begin a frame under the active one, or under `parent`."""

    step: FrameSpec
    parent: str = ""


class PlanCommand(msgspec.Struct, frozen=True):
    """Plan frames under the active one, or under `parent`: all or none."""

    steps: tuple[FrameSpec, ...]
    parent: str = ""


class ActivateCommand(msgspec.Struct, frozen=True):
    """Begin a planned frame, resume a blocked one, or retry a failed one."""

    frame: str


class PopCommand(msgspec.Struct, frozen=True):
    """End the active frame or an ancestor. Without results, its last assistant text is used."""

    frame: str = ""
    status: str = ""
    results: str = ""


class InvalidateCommand(msgspec.Struct, frozen=True):
    frame: str
    reason: str


class RenameCommand(msgspec.Struct, frozen=True):
    frame: str
    title: str = ""
    criteria: str = ""


FrameCommand = PushCommand | PlanCommand | ActivateCommand | PopCommand | InvalidateCommand | RenameCommand
