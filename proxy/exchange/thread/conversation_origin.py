"""Finds where a new conversation comes from: nowhere, a delegating call of another one, or a fork.

Answers made behind our context keep reasoning that is bound to it, also where their history is taken over into another
conversation.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import structs

from proxy.config import Config
from proxy.config.runtime import LiveSettings
from proxy.core.frames import MAX_CRITERION_CHARACTERS
from proxy.core.ledger import Call, Entry, Ledger, Request, visible_calls
from proxy.core.matching import Match, guess_subagent_parent, lookup_keys, opening_messages, walk_history
from proxy.core.observers import first_user_text, without_client_elements
from proxy.dialects import Dialect
from proxy.exchange.thread import attach_subagent, session_headers
from proxy.exchange.thread.bound_reasoning import binds_reasoning
from proxy.exchange.thread.placement import ParsedRequest, Placement, positions_made_behind_ours
from proxy.store import CachedConversation, ConversationCache, StoredCandidates

MAX_OPENING_PROMPTS = 4
"""User messages at the beginning that may be the delegated prompt."""
_NO_POSITIONS: Set[int] = frozenset()


class Origin(NamedTuple):
    """The conversation it was forked from or delegated by, the entry there, and the delegated prompt. Empty without an
    origin. A fork's `directive` are the words for which it left its parent, told at this position of its messages."""

    conversation: str = ""
    turn: str = ""
    prompt: str = ""
    directive: str = ""
    directive_at: int = 0


@dataclass(frozen=True)
class OriginFinder:
    """Finds the origins of conversations and updates the parents."""

    config: Config
    live_settings: LiveSettings
    conversation_cache: ConversationCache
    dialect: Dialect

    async def find(self, parsed: ParsedRequest, known: StoredCandidates) -> Origin:
        """Who delegated this conversation: by the session it names, else by the call whose prompt it begins with, else
        by its title."""
        if named := session_headers.parent_hint(parsed.headers):
            for conversation in await self.conversation_cache.conversations_in_session(parsed.tenant, named):
                cached = await self.conversation_cache.get(parsed.tenant, conversation)
                if cached and any(t.tool_names for t in cached.ledger.threads.values()):
                    prompts = opening_prompts(parsed.request)
                    turns = ((p, lookup_keys.delegating_turn(cached.ledger, p)) for p in prompts)
                    by_prompt = (Origin(conversation, turn, p) for p, turn in turns if turn)
                    return next(by_prompt, None) or self._guess_origin(parsed, conversation)
        for prompt in opening_prompts(parsed.request):
            if found := await self.conversation_cache.find_delegating(parsed.tenant, prompt, known):
                return Origin(found[0].ledger.conversation.id, found[1], prompt)
        return self._guess_origin(parsed)

    async def positions_bound_elsewhere(self, parsed: ParsedRequest, origin: Origin) -> Set[int]:
        """Positions of answers that a new conversation took over from another, and whose reasoning the provider binds
        to that one's context."""
        request = parsed.request
        model = self.config.upstream_model_of(request.model)
        if not origin.conversation or not binds_reasoning(self.config, self.dialect, model):
            return _NO_POSITIONS
        parent = await self.conversation_cache.get(parsed.tenant, origin.conversation)
        path = walk_history.walk(parent.ledger, request.messages) if parent else ()
        if parent is None or not path:
            return _NO_POSITIONS
        behind = positions_made_behind_ours(parent.ledger, parent.path_state(path[-1].id), len(path))
        return frozenset(at for at in behind if request.messages[at].role == "assistant")

    def with_parents_reasoning(self, request: Request, cached: CachedConversation, match: Match) -> Request:
        """A fork's request with the reasoning that its client left out of the answers taken over: some providers demand
        it back with each call. Nothing is added where it is bound to the parent's context."""
        if binds_reasoning(self.config, self.dialect, self.config.upstream_model_of(request.model)):
            return request
        messages, bare = list(request.messages), self.dialect.without_reasoning
        for at, entry in enumerate(match.path):
            rounds, theirs = cached.ledger.rounds.get(entry.id), messages[at]
            if not rounds or not theirs.calls or bare(theirs) is not theirs:
                continue
            given = rounds[-1].spoken.message
            if hidden := {call.id for call in given.calls if call.is_stack_call}:
                given = self.dialect.without_calls(given, hidden)
            if [c.id for c in given.calls] == [c.id for c in theirs.calls] and bare(given) is not given:
                messages[at] = structs.replace(theirs, wire=given.wire, tokens=given.tokens or theirs.tokens)
        return structs.replace(request, messages=tuple(messages))

    async def begin_subagent(self, placement: Placement, origin: Origin) -> None:
        """Open the subagent's frame in its parent."""
        parsed, where = placement.parsed_request, (origin.conversation, origin.turn)
        if origin.turn and origin.prompt:
            await attach_subagent.begin_subagent(
                self.conversation_cache, parsed.tenant, where, placement.conversation, origin.prompt, parsed.now
            )

    async def end_returned_subagents(self, placement: Placement) -> None:
        """End the conversations of subagents whose results arrived."""
        tree, now = placement.path_state.tree, placement.parsed_request.now
        if any(f.origin == "subagent" for f in tree.frames.values()):
            await attach_subagent.end_returned_subagents(
                self.conversation_cache, placement.ledger, tree, placement.entry_id, now
            )

    def _guess_origin(self, parsed: ParsedRequest, named: str = "") -> Origin:
        """The likely parent of a conversation that only its title shows to be a subagent's: the one with the newest
        pending call. `named` is the parent in any case where it is given."""
        subagent = self.live_settings.subagent
        patterns = subagent.patterns if subagent.enabled else ()
        if not (patterns and guess_subagent_parent.has_subagent_title(parsed.request, patterns)):
            return Origin(named)
        since = parsed.now - subagent.idle_delay
        conversation, turn = attach_subagent.guess_parent(self.conversation_cache, parsed.tenant, since, named)
        return Origin(conversation or named, turn, guess_subagent_parent.delegated_task(parsed.request) if turn else "")


def fork_point(cached: CachedConversation, match: Match, request: Request) -> Origin:
    """The conversation that a fork left, and the last entry they share. Its directive is the prompt of the call that
    began it, if it was told that, else the first words that the user has for it alone."""
    ledger = cached.ledger
    leaves = Origin(ledger.conversation.id, match.newest_known)
    new = enumerate(request.messages[match.depth :], match.depth)
    user_texts = {at: m.text for at, m in new if m.role == "user" and m.text.strip()}
    if not user_texts:
        return leaves
    prompt = prompt_of_fork(ledger, match, request)
    words = prompt or first_user_text(user_texts.values(), MAX_CRITERION_CHARACTERS)
    return leaves._replace(directive=words, directive_at=next(at for at, text in user_texts.items() if prompt in text))


def prompt_of_fork(ledger: Ledger, match: Match, request: Request) -> str:
    """What a call of the newest known answer delegates, if the user's words behind the known history hold it."""
    spoken = next((calls for entry in reversed(match.path) if (calls := _calls_of(ledger, entry)) is not None), ())
    prompt = lookup_keys.delegated_text(spoken, [m.text for m in request.messages[match.depth :] if m.role == "user"])
    return prompt if len(prompt) >= lookup_keys.MIN_IDENTIFYING_CHARACTERS else ""


def _calls_of(ledger: Ledger, entry: Entry) -> Sequence[Call] | None:
    """The calls of an answer; None for any other entry."""
    if rounds := ledger.rounds.get(entry.id, ()):
        return visible_calls(rounds)
    return entry.message.calls if entry.message and entry.message.role == "assistant" else None


def opening_prompts(request: Request) -> tuple[str, ...]:
    """User messages before the first call, as they are and without the client's wrapping."""
    texts = [m.text for m in opening_messages(request.messages) if m.role == "user"][:MAX_OPENING_PROMPTS]
    return tuple(
        dict.fromkeys(
            said for text in texts for said in (text, without_client_elements(text, MAX_CRITERION_CHARACTERS)) if said
        )
    )
