"""Tells the whole description of a tool that was offered with a brief one, beside the result of its first call.

It stands once in the context: a tool whose description left with a fold gets it again at its next call. A request that
forces such a tool has it too, because the model cannot do without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from proxy.core.context import context_entries
from proxy.core.ledger import EntryKind
from proxy.core.text import element, escape_attribute, escape_own_tags
from proxy.dialects import object_in
from proxy.exchange.notes.base import NoteWriter
from proxy.exchange.thread.context_policy import ContextPolicy
from proxy.exchange.thread.placement import Placement

NOTE = "tool-descriptions"
NOTE_START = f'<stack-context note="{NOTE}"'
INTRODUCTION = "Of these tools you were offered the first line of the description. This is all of it:"
_DESCRIBED_TOOL = re.compile(r'^<tool name="([^"]*)">$', re.MULTILINE)
_TOOL_TAG = re.compile(r"<(?=\s*/?\s*tool(?![\w-]))", re.IGNORECASE)


@dataclass(frozen=True)
class ToolDescriptionNote:
    """A note in every mode in which a thread has brief tools: without it the model would never read the rest."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        waking = placement.path_state.tree.wake_state
        if waking is None or not waking.brief:
            return placement
        whole = self.policy.brief_tools.descriptions_cut(placement.request).descriptions
        wanted = [name for name in dict.fromkeys(_names_in_use(placement)) if name in whole]
        if not wanted:
            return placement
        described = _described_tools(placement)
        # None can end its element, or look like the one of another tool.
        escaped = {name: _TOOL_TAG.sub("&lt;", escape_own_tags(whole[name].strip())) for name in wanted}
        paragraphs = [
            f'<tool name="{escape_attribute(name)}">\n{escaped[name]}\n</tool>'
            for name in wanted
            if escape_attribute(name) not in described
        ]
        if not paragraphs:
            return placement
        attributes = {"note": NOTE, "nonce": self.policy.nonce_of(placement.conversation)}
        return self.note_writer.add_note(placement, element("stack-context", attributes, INTRODUCTION, *paragraphs))


def _names_in_use(placement: Placement) -> Iterator[str]:
    """The tools whose results have just come, and the one that the request forces."""
    results: set[str] = set()
    for path_entry in reversed(placement.path_state.entries):
        message = path_entry.message
        if message is not None and message.role == "assistant":
            yield from (call.name for call in message.calls if call.id in results)
            break
        if message is not None and message.answers:
            results.add(message.answers)
    if placement.request.tool_choice == "forced":
        choice = object_in(placement.request.fields, "tool_choice")
        inner = choice.get("function") or choice.get("custom")
        name = (inner if isinstance(inner, dict) else choice).get("name")
        if isinstance(name, str):
            yield name


def _described_tools(placement: Placement) -> set[str]:
    """Names of tools whose description stands in the context, as they are written there."""
    overlays = (
        path_entry.entry.message.text
        for path_entry in context_entries(placement.path_state)
        if path_entry.entry.kind is EntryKind.OVERLAY and path_entry.entry.message
    )
    return {name for text in overlays if text.startswith(NOTE_START) for name in _DESCRIBED_TOOL.findall(text)}
