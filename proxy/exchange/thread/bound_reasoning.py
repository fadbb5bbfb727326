"""Reasoning that a provider binds to the prefix behind which it was made: which of it leaves a thread, and when.

Such a provider refuses reasoning that comes back behind another prefix. What was removed never comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.accounting import family_of
from proxy.config import Config
from proxy.core.compaction import is_assistant
from proxy.core.context import entries_after_client_rewrite
from proxy.core.frames import HEAD_CHANGED, FrameEvent, PathEntry, ReasoningRemoved
from proxy.core.ledger import Message, Request
from proxy.core.observers import ends_with_user_message
from proxy.dialects import Dialect
from proxy.exchange.thread.placement import PolicyInput

UNKNOWN_REASONING = "(not kept)"
"""What stands for the reasoning of an answer that another model gave, for a provider that refuses one without."""
UNPAIRED_FAMILIES = ("claude", "gemini")
"""Families of models for which no item needs the reasoning that it was made with, whoever serves them in which API."""
RETURNED = "reasoning_content"
"""The required field (`Tariff.required`) of models whose providers bind no reasoning to a prefix, whatever API writes
it, and refuse an answer with calls that comes back without."""


@dataclass(frozen=True)
class BoundReasoning:
    """For one dialect: the events that remove reasoning."""

    config: Config
    dialect: Dialect

    def is_bound(self, here: PolicyInput) -> bool:
        return binds_reasoning(self.config, self.dialect, self.config.upstream_model_of(here.request.model))

    def drop_all(self, here: PolicyInput) -> list[FrameEvent]:
        """Drop all reasoning so far, once, where the model binds it to its prefix."""
        return self.drop(here) if self.is_bound(here) else []

    def drop_outdated(self, here: PolicyInput) -> list[FrameEvent]:
        """Drop reasoning after the client changed its system text, its tools (signed reasoning is bound to them) or its
        model. Paths from before the change are affected too."""
        # Claude Code changes its system text between two processes (2.1.197), Cline and handoffs of agent frameworks
        # their tools in mid-conversation. Newer Claude models answer reasoning made before that with a 400 (since
        # 2026-08-31).
        since, request, awake = here.previous_thread, here.request, here.path_state.tree.is_awake
        if since is not None:
            if since.model and family_of(since.model) != family_of(self.config.upstream_model_of(request.model)):
                return self.drop(here, why=HEAD_CHANGED)
            same = (since.system_hash, since.tools_hash) == (request.system_hash, request.tools_hash)
            if not same and awake:
                return self.drop(here, why=HEAD_CHANGED) if self.is_bound(here) else []
        if not here.outdated_answers or not awake:
            return []
        before = [path_entry for path_entry in here.path_state.entries if path_entry.entry.id in here.outdated_answers]
        return self.drop(here, before, why=HEAD_CHANGED) if before else []

    def drop_rewritten(self, here: PolicyInput) -> list[FrameEvent]:
        """Drop our reasoning behind a point where the client rewrote its own history."""
        if not here.path_state.adopted or not self.is_bound(here):
            return []
        return self.drop(here, entries_after_client_rewrite(here.path_state))

    def drop_unrecorded(self, here: PolicyInput) -> list[FrameEvent]:
        """Drop reasoning of answers that were sent without our context since the thread woke and not kept as a turn:
        they were made behind another prefix."""
        waking = here.path_state.tree.wake_state
        if waking is None or not self.is_bound(here) or self.dialect.asks_to_drop_reasoning(here.request):
            return []
        found: list[str] = []
        for path_entry in reversed(here.path_state.entries):
            if path_entry.entry.id in here.path_state.tree.without_reasoning:
                continue
            if path_entry.round is not None or waking.at in (path_entry.path_id, path_entry.entry.id):
                break
            if is_assistant(path_entry) and self._has_reasoning(path_entry):
                found.append(path_entry.entry.id)
        return [ReasoningRemoved(tuple(reversed(found)))] if found else []

    def drop(
        self, here: PolicyInput, path_entries: Sequence[PathEntry] | None = None, *, why: str = ""
    ) -> list[FrameEvent]:
        """Drop the reasoning of `path_entries` (default: all so far), except what must precede the calls being
        answered."""
        kept_answer = newest_assistant_entry(here.path_state.entries) if self.is_needed_in_loop(here) else None
        answers = (
            p
            for p in (here.path_state.entries if path_entries is None else path_entries)
            if p is not kept_answer and is_assistant(p)
        )
        bound = tuple(dict.fromkeys(p.entry.id for p in answers if self._has_reasoning(p)))
        return [ReasoningRemoved(bound, why)] if set(bound) - here.path_state.tree.without_reasoning else []

    def is_needed_in_loop(self, here: PolicyInput) -> bool:
        if not must_open_with_reasoning(
            self.config, self.dialect, here.request, self.config.upstream_model_of(here.request.model)
        ):
            return False
        newest = newest_assistant_entry(here.path_state.entries)
        return newest is not None and self._has_reasoning(newest)

    def _has_reasoning(self, path_entry: PathEntry) -> bool:
        message = path_entry.message
        return message is not None and self.dialect.without_reasoning(message) is not message


def binds_reasoning(config: Config, dialect: Dialect, model: str) -> bool:
    """Whether this model's reasoning (by the upstream's name) must be dropped once its prefix changed. Signed reasoning
    is, unless its provider wants it back whole: we do not know every model that checks it, and one that does refuses
    the request."""
    signed = dialect.has_signed_reasoning and not wants_reasoning_back(config, model)
    return signed or config.tariff_of(model).binding != "none"


def wants_reasoning_back(config: Config, model: str) -> bool:
    """Whether this model's provider (by the upstream's name) refuses an answer with calls that lacks its reasoning."""
    # DeepSeek V4 and Kimi refuse calls without the `reasoning_content` that they were made with, in all later requests.
    return RETURNED in config.tariff_of(model).required


def with_reasoning_back(dialect: Dialect, messages: Sequence[Message], known: Iterable[Message]) -> tuple[Message, ...]:
    """`messages` of which each answer with calls has the reasoning that the same message of `known` has, the last one
    counting. Another model may have stood between: its answers have what the client makes up for them, and those that
    the client never saw what we do. Where nothing has any, the model does not think."""
    if not any(_lacks_reasoning(dialect, m) for m in messages):
        return tuple(messages)
    whole = {m.identity: m for m in known if m.calls and not _lacks_reasoning(dialect, m)}
    if not whole:
        return tuple(messages)
    stand_in = dialect.with_reasoning or (lambda message, _: message)
    return tuple(
        m if not _lacks_reasoning(dialect, m) else whole.get(m.identity) or stand_in(m, UNKNOWN_REASONING)
        for m in messages
    )


def _lacks_reasoning(dialect: Dialect, message: Message) -> bool:
    if message.role != "assistant" or not message.calls:
        return False
    add = dialect.with_reasoning
    return add(message, "") is not message if add else dialect.without_reasoning(message) is message


def refuses_reasoning(config: Config, model: str) -> bool:
    """Whether this model's provider (by the upstream's name) refuses reasoning that is out of place, or is not the one
    that made it with items of its own: then no item needs it there."""
    return config.tariff_of(model).binding == "error" or family_of(model) in UNPAIRED_FAMILIES


def must_open_with_reasoning(config: Config, dialect: Dialect, request: Request, model: str) -> bool:
    """Whether `request` is in a tool loop whose last answer must open with its reasoning, by the request or else by the
    upstream's model name."""
    return not ends_with_user_message(request.messages) and opens_loops_with_reasoning(config, dialect, request, model)


def opens_loops_with_reasoning(config: Config, dialect: Dialect, request: Request, model: str) -> bool:
    """Whether the last answer of any tool loop of `request` must open with its reasoning, as `must_open_with_reasoning`
    says of one loop."""
    # Claude with a fixed thinking budget: 400 "expected thinking, but found tool_use". With adaptive thinking it
    # may go.
    must_open = dialect.must_open_with_reasoning(request)
    return config.tariff_of(model).thinking_in_loop == "required" if must_open is None else must_open


def newest_assistant_entry(path_entries: Sequence[PathEntry]) -> PathEntry | None:
    return next((p for p in reversed(path_entries) if is_assistant(p)), None)


def strip_client_reasoning(
    config: Config, dialect: Dialect, request: Request, model: str, messages: Sequence[Message]
) -> tuple[Message, ...]:
    """The last `messages` of the client without reasoning, except what their loop must open with or an item needs."""
    last = next((m for m in reversed(messages) if m.role == "assistant"), None)
    opening = last if must_open_with_reasoning(config, dialect, request, model) else None
    keeps_needed = not refuses_reasoning(config, model)
    strip = (keeps_needed and dialect.without_unneeded_reasoning) or dialect.without_reasoning
    return tuple(m if m is opening else strip(m) for m in messages)
