"""All notes to the model, in the order in which they are applied to a request."""

from __future__ import annotations

from proxy.config import Config
from proxy.exchange.notes.base import IntroductionNote, Note, NoteWriter
from proxy.exchange.notes.people_messages import MessageDelivery
from proxy.exchange.notes.reread_counts import RereadCounter
from proxy.exchange.notes.situation import (
    BlockNote,
    BranchNote,
    CompactionNote,
    InjectionNote,
    ParentsNote,
    UserCommandNote,
)
from proxy.exchange.notes.suggestions import SuggestionNote
from proxy.exchange.notes.tool_descriptions import ToolDescriptionNote
from proxy.exchange.notes.warnings import FailingFrameBlocker, LoopWarning, PressureWarning
from proxy.exchange.thread.context_policy import ContextPolicy
from proxy.telemetry import Metrics


def build_notes(
    note_writer: NoteWriter, policy: ContextPolicy, config: Config, metrics: Metrics, message_delivery: MessageDelivery
) -> tuple[Note, ...]:
    """The notes in the order in which they are asked; messages from people come last."""
    return (
        IntroductionNote(note_writer, policy),
        BlockNote(note_writer, policy),
        ParentsNote(note_writer, policy),
        CompactionNote(note_writer, policy),
        UserCommandNote(note_writer, policy),
        BranchNote(note_writer, policy),
        InjectionNote(note_writer, policy),
        ToolDescriptionNote(note_writer, policy),
        LoopWarning(note_writer, policy, config),
        FailingFrameBlocker(note_writer, policy, config),
        PressureWarning(note_writer, policy, config),
        RereadCounter(metrics, config.output_rules),
        SuggestionNote(note_writer, policy, config),
        message_delivery,
    )
