"""When the proxy acts on a thread: waking it, and folding what is finished.

Asleep, a thread passes byte for byte. It wakes at a request that is large enough and ends with the user's words, or
inside a tool loop where a fold or a cut is due that pays for the waking too. Awake, finished work is folded where it
ends. The laws: **a warm prefix is broken only where that pays** (`stack.economics`), but for the one time a thread
wakes at the user's words; and a thread without tools never wakes (L7). Reasoning that its provider binds to what stood
before it leaves with the prefix, once and for good (L8).

What this module does not do: it records nothing and sends nothing; it answers with events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import dropwhile

import msgspec
from msgspec import structs
from msgspec.structs import replace

from proxy.accounting.pricing import HOUR, Tariff, family_of
from proxy.config.model import Config
from proxy.core.compaction.compaction_plan import Decision, Folding, Moment, Pen, folding, is_due
from proxy.core.compaction.cost_gate import Prices, expected_requests, weighed
from proxy.core.compaction.one_line_outputs import minimized
from proxy.core.compaction.segments import thoughts_of
from proxy.core.compaction.truncate_outputs import removed_by_cuts
from proxy.core.compaction.unfold import unfolding
from proxy.core.context.block_format import block_of
from proxy.core.context.block_refresh import at_waking, due, rewritten_block
from proxy.core.context.guidance import guidance
from proxy.core.context.message_list import Scribe, rewritten
from proxy.core.frames.events import (
    HEAD,
    BlockRenewed,
    Folded,
    FrameEvent,
    ProviderTrimmed,
    ReasoningRemoved,
    Replaced,
    Sealed,
    Unfolded,
    Woken,
)
from proxy.core.frames.path_state import Placed, Story
from proxy.core.frames.reducer import apply
from proxy.core.frames.tree import Frame
from proxy.core.ledger.ledger import Thread, is_edited
from proxy.core.ledger.messages import Message, Request, Usage
from proxy.core.observers.step import rounds_of, said_by
from proxy.core.observers.turns import user_spoke_last
from proxy.core.policy.infer_frames import Watch
from proxy.core.recall.unchanged_notes import Means
from proxy.core.tools.base import Settings
from proxy.dialects import Dialect
from proxy.dialects.dialect import Appending, Headers, seals_nothing
from proxy.exchange.thread.block_format import form_of, is_minimal
from proxy.upstream.context_windows import Window

ROOT_TOKENS = 120
"""What a root's own part of its block may cost: its criterion is the first user message."""
BORDER = 0.4
"""Of `frame_max_tokens`: so much work is cut where the user speaks, for that is a border anyway."""
COMPACTED_TOKENS = 300
"""What the block behind a client's own summary may cost: that tells itself where the work stands."""
RECALL_PART = 4
"""Of the window, one part of so many may be filled by what is told again at once (S0-09)."""
TOLD_TWICE = 2
"""So many rounds in a row without a cached token, from a provider that told of some, and nothing is taken to be
cached."""


class Here(msgspec.Struct, frozen=True):
    """A request where it stands: the path up to its last entry `node`, at `now` (ms), in the conversation. `mode` is
    active or passive; `since` is how the thread looked with the request before, None where that is as now; `headers`
    are those of the request; `spoken_to`: what a person said from beside the client waits for its thread; `delegated`:
    it is a subagent's, who is to be told what it works for; `outdated` are, in a thread that is awake, answers
    that lost their reasoning to a change of the client's on a path beside this one."""

    story: Story
    request: Request
    conversation: str
    node: str
    now: int
    mode: str
    since: Thread | None = None
    headers: Headers = ()
    spoken_to: bool = False
    delegated: bool = False
    outdated: frozenset[str] = frozenset()


class Acted(msgspec.Struct, frozen=True):
    """What is done with it. An asleep thread stays so for a `reason`."""

    events: tuple[FrameEvent, ...] = ()
    decisions: tuple[Decision, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Actor:
    """Decides for one dialect. `tools` are the arrays of ours as JSON, by mode; `count` counts tokens; `window` tells
    how much fits, by the client's name for the model and the conversation, learned limits included."""

    config: Config
    dialect: Dialect
    scribe: Scribe
    tools: dict[str, str]
    watch: Watch
    settings: Settings
    count: Callable[[str], int]
    weigh: Callable[[str], int]
    nonce: Callable[[str], str]
    window: Callable[[str, str], Window]

    def act(self, here: Here) -> Acted:
        """What happens at this request."""
        noticed = self._noticed(here)
        tree = here.story.tree
        for event in noticed:
            tree = apply(tree, event, here.now)
        here = replace(here, story=replace(here.story, tree=tree)) if noticed else here
        acted = self._acted(here)
        if tree.awake or acted.events:
            acted = self._renewed(here, self._minimized(here, acted))
        before = (*noticed, *self._outdated(here), *self._rewritten(here), *self._answered_past_us(here))
        return replace(acted, events=(*before, *acted.events)) if before else acted

    def _noticed(self, here: Here) -> list[FrameEvent]:
        """What the provider did to the context by itself."""
        tree, placed = here.story.tree, here.story.placed
        seals = self.dialect.seals
        noticed: list[FrameEvent] = []
        if seals is not seals_nothing:
            sealed = (p for p in placed if p.entry.id not in tree.sealed and (m := said_by(p)) and seals(m))
            if found := tuple(dict.fromkeys(p.entry.id for p in sealed)):
                noticed.append(Sealed(found))
        if not tree.provider_trimmed and any(map(is_edited, rounds_of(placed))):
            noticed.append(ProviderTrimmed())
        return noticed

    def _acted(self, here: Here) -> Acted:
        if here.story.tree.awake:
            again = self._given_in_front(here)
            if self._must_wait(here):
                return Acted(again)
            done = self._folding(here, None)
            return Acted((*again, *done.events), done.decisions)
        # on a branch the client's own bytes tell too much
        wanted = here.spoken_to or here.delegated or bool(here.story.aside)
        if reason := self._stays_asleep(here.request, wanted=wanted):
            return Acted(reason=reason)
        return self._woken(here)

    # --------------------------------------------------------------------------------------------------------- waking
    def _stays_asleep(self, request: Request, *, wanted: bool) -> str:
        """Why this request cannot wake its thread, whatever there is to fold; empty where it can. A thread that a
        person speaks to, or branches, may be small, and a subagent's that is to be told what it works for."""
        if not request.tool_names:
            return "no_tools"
        if request.choice not in ("auto", "required") or request.structured:
            return "no_choice"
        return "small" if request.tokens < self.config.wake_at_tokens and not wanted else ""

    def _woken(self, here: Here) -> Acted:
        """Wake, with all folds that are due. At the user's words that is done whatever it costs now; inside a tool loop
        only with a fold, or a cut of a new output, that pays for both. What is appended breaks no prefix and voids no
        reasoning, so a fold has to pay by itself then."""
        in_loop = not user_spoke_last(here.request.messages)
        if in_loop and self._must_wait(here):
            return Acted(reason="in_loop")
        woken = self.waking(here)
        added = sum(map(self.weigh, woken.texts))
        appended = bool(woken.appended)
        done = self._folding(here, None if appended and not in_loop else added, appended=appended)
        decisions = done.decisions
        if in_loop and not done.events and not here.spoken_to:
            cut = self._cutting(here, decisions)
            decisions = (cut,) if cut else decisions
            if cut is None or not cut.verdict.worth:
                return Acted((), decisions, "in_loop")
        return Acted((woken, *([] if appended else self._voided(here)), *done.events), decisions)

    def _cutting(self, here: Here, decisions: Sequence[Decision]) -> Decision | None:
        """Waking weighed again, with what a cut takes off new outputs that alone are too long (S4-64); None where none
        is."""
        most, rules = self._window(here).longest_output, self.config.output_rules
        removed = removed_by_cuts(here.story, self.config.output_cap or most, rules, most)
        asked = next((decision for decision in decisions if decision.kind == "wake"), None)
        if not removed or asked is None or here.story.tree.provider_trimmed:
            return None
        moment, before = self._moment(here, None), asked.verdict.rewrite
        cut = structs.replace(before, removed=removed, compaction=0, behind=before.line - removed)
        verdict = weighed(cut, moment.prices, moment.requests, cold=moment.cold, window=moment.window)
        if verdict.worth and moment.binds and self._appending(here) is None:
            lost = thoughts_of(here.story.placed, here.story.tree.mute, self.dialect.without_reasoning)
            cut = structs.replace(cut, reasoning=lost)
            verdict = weighed(cut, moment.prices, moment.requests, cold=moment.cold, window=moment.window)
        return Decision("wake", (), verdict)

    def waking(self, here: Here) -> Woken:
        """Tools and guidance, as they will be replayed."""
        in_front = self._in_front(here)
        if (how := self._appending(here)) is None:
            return in_front
        wire = how.written(here.request, in_front.guidance, in_front.tools)
        return Woken("", "", wire.decode(), here.node)

    def _in_front(self, here: Here, frame: str = "") -> Woken:
        if here.mode == "passive":
            return Woken("", self.tools["passive"])
        told = guidance(self.config.guidance, here.request.tool_names, self.watch.names)
        return Woken(told + "\n\n" + self.block(here, frame=frame), self.tools["active"])

    def _appending(self, here: Here) -> Appending | None:
        """How tools and guidance are told behind this request's newest message; None where they cannot be."""
        how, model = self.dialect.appending, self.config.sent_as(here.request.model)
        if how is None or family_of(model) != how.family or not {"system", "tools"} <= set(self._tariff(here).append):
            return None
        return how if how.offered(here.request, here.headers) else None

    def _given_in_front(self, here: Here) -> tuple[FrameEvent, ...]:
        """What was appended is told in front of all from now on, where a request comes that cannot have it inside:
        another model, or a client that no longer asks for it."""
        waking = here.story.tree.waking
        if waking is None or not waking.appended or self._appending(here):
            return ()
        return (structs.replace(self._in_front(here), at=here.node), *self._voided(here))

    def block(self, here: Here, most: int | None = None, frame: str = "") -> str:
        """The block of a frame, the active one by default, of at most so many tokens. What a root is for stands on its
        line already, so a short form will do."""
        tree, budgets = here.story.tree, self.settings.budgets
        told = tree.frames[frame or tree.active]
        if most is not None:
            budgets = replace(budgets, total=min(budgets.total, most))
        if not told.parent:
            budgets = replace(budgets, current=min(budgets.current, ROOT_TOKENS))
        return block_of(
            form_of(self.config, here.request.model),
            here.story,
            tree,
            told.id,
            session=here.conversation,
            nonce=self.nonce(here.conversation),
            now=here.now,
            budgets=budgets,
            count=self.count,
        )

    def _voided(self, here: Here) -> list[FrameEvent]:
        """L8: where the model binds reasoning to its prefix, all of it so far is left out, once and for good."""
        return self._without_reasoning(here) if self._binds(here) else []

    def _outdated(self, here: Here) -> list[FrameEvent]:
        """L8, where the client changed what stands before everything: its system text or tools, which signed reasoning
        does not outlive (it leaves out its own then, and what only we have is left out too), or the model, which reads
        none of another vendor's. A path from before the change was made behind what stood there then."""
        since, request, awake = here.since, here.request, here.story.tree.awake
        if since is not None:
            if since.model and family_of(since.model) != family_of(self.config.sent_as(request.model)):
                return self._without_reasoning(here, why=HEAD)
            same = (since.system_hash, since.tools_hash) == (request.system_hash, request.tools_hash)
            if not same and awake:
                return self._without_reasoning(here, why=HEAD) if self._binds(here) else []
        if not here.outdated or not awake:
            return []
        before = [placed for placed in here.story.placed if placed.entry.id in here.outdated]
        return self._without_reasoning(here, before, why=HEAD) if before else []

    def _rewritten(self, here: Here) -> list[FrameEvent]:
        """L8, where the client changed its own history: it leaves out of it what it thought behind the change, and what
        we have of that no longer fits either."""
        if not here.story.adopted or not self._binds(here):
            return []
        return self._without_reasoning(here, rewritten(here.story))

    def _answered_past_us(self, here: Here) -> list[FrameEvent]:
        """L8: what the client was answered without a line of ours since the thread woke, and nobody kept as a turn, was
        made behind another prefix. Behind the newest turn that left on a line there can be more of it. Where the
        client has such reasoning dropped, that is between it and its provider."""
        waking = here.story.tree.waking
        if waking is None or not self._binds(here) or self.dialect.has_dropped(here.request):
            return []
        found: list[str] = []
        for placed in reversed(here.story.placed):
            if placed.entry.id in here.story.tree.mute:
                continue
            if placed.round is not None or waking.at in (placed.at, placed.entry.id):
                break
            if _is_answer(placed) and self._reasons(placed):
                found.append(placed.entry.id)
        return [ReasoningRemoved(tuple(reversed(found)))] if found else []

    def _without_reasoning(
        self, here: Here, placed: Sequence[Placed] | None = None, *, why: str = ""
    ) -> list[FrameEvent]:
        """All reasoning so far is left out, or that of `placed`, but what must stand in front of the calls that are
        being answered."""
        kept = newest_answer(here.story.placed) if self._must_wait(here) else None
        answers = (p for p in (here.story.placed if placed is None else placed) if p is not kept and _is_answer(p))
        bound = tuple(dict.fromkeys(p.entry.id for p in answers if self._reasons(p)))
        return [ReasoningRemoved(bound, why)] if set(bound) - here.story.tree.mute else []

    # -------------------------------------------------------------------------------------------------------- folding
    def means(self, here: Here) -> Means:
        """What telling a file's content again takes: a part of the window at most."""
        room = self._window(here).tokens // RECALL_PART
        return Means(self.nonce(here.conversation), self.count, room, self.watch.names)

    def _folding(self, here: Here, added: int | None, *, appended: bool = False) -> Folding:
        at_words = user_spoke_last(here.request.messages)
        frame_max = int(self.config.frame_max_tokens * (BORDER if at_words else 1))
        if added is None and not here.story.tree.kept and not is_due(here.story, frame_max):
            return Folding()
        moment = self._moment(here, added, appended=appended, frame_max=frame_max)
        moment = structs.replace(moment, voids=moment.binds and not (added is None or appended or at_words))
        pen = Pen(self.watch.names, self.count, self.nonce(here.conversation), self.scribe)
        return unfolding(here.story, moment, folding(here.story, moment, pen), self.scribe)

    def _moment(self, here: Here, added: int | None, *, appended: bool = False, frame_max: int = 0) -> Moment:
        window = self._window(here)
        usages = [made.spoken.usage for made in rounds_of(here.story.placed) if made.spoken.usage]
        tariff = _as_kept(self._tariff(here), usages)
        uncached = _tells_of_none(usages)
        return Moment(
            node=here.node,
            now=here.now,
            prices=Prices(1.0, 1.0) if uncached else Prices(tariff.read, tariff.write),
            requests=expected_requests(len(usages)),
            cold=uncached or _is_cold(here, tariff.ttl_s),
            window=window.tokens if window.binds else 0,
            frame_max=frame_max,
            head=sum(m.tokens for m in here.request.head) + here.request.tools_tokens,
            added=added,
            binds=self._binds(here),
            edited=here.story.tree.provider_trimmed,
            appended=appended,
        )

    def _minimized(self, here: Here, acted: Acted) -> Acted:
        """With view `minimal` older results are told in a line each, at a moment for it."""
        if not is_minimal(self.config, here.request.model) or self._must_wait(here):
            return acted
        tree = here.story.tree
        for event in acted.events:
            tree = apply(tree, event, here.now)
        if not tree.awake or tree.provider_trimmed:
            return acted
        here = replace(here, story=replace(here.story, tree=tree))
        breaks = any(_breaks(event) for event in acted.events)
        rules = self.config.output_rules
        done = minimized(here.story, self._moment(here, None), self.count, breaks=breaks, rules=rules)
        changed = {event.entry for event in done.events if isinstance(event, Replaced)}
        behind = tuple(dropwhile(lambda placed: placed.entry.id not in changed, here.story.placed))
        voided = self._without_reasoning(here, behind) if behind and self._binds(here) else []
        return replace(
            acted, events=(*acted.events, *voided, *done.events), decisions=(*acted.decisions, *done.decisions)
        )

    def _renewed(self, here: Here, acted: Acted) -> Acted:
        """Blocks that somebody wants written anew are, where nothing is lost by it, no reasoning either."""
        if not here.story.tree.stale or here.mode == "passive" or self._must_wait(here):
            return acted
        story, tree = here.story, here.story.tree
        for event in acted.events:
            tree = apply(tree, event, here.now)
        if not tree.awake or tree.provider_trimmed:
            return acted
        in_front = any(isinstance(event, Woken) and not event.appended for event in acted.events)
        frames = due(story, tree, cold=self._moment(here, None).cold, in_front=in_front)
        here = replace(here, story=replace(story, tree=tree))
        voided = self._voided(here) if frames else []
        if voided and not any(isinstance(event, Folded | ReasoningRemoved) for event in acted.events):
            return acted
        return replace(acted, events=(*acted.events, *voided, *(self._told_anew(here, frame) for frame in frames)))

    def _told_anew(self, here: Here, frame: Frame) -> BlockRenewed:
        if frame.opening is not None:
            return BlockRenewed(frame.id, rewritten_block(frame.opening.block, self.block(here, frame=frame.id)))
        how, in_front = self._appending(here), self._in_front(here, at_waking(here.story.tree).id)
        waking = here.story.tree.waking
        if how is None or waking is None or not waking.appended:
            return BlockRenewed(frame.id, guidance=in_front.guidance)
        wire = how.written(here.request, in_front.guidance, in_front.tools)
        return BlockRenewed(frame.id, appended=wire.decode())

    def _binds(self, here: Here) -> bool:
        return binds_by_name(self.config, self.dialect, here.request.model)

    def _tariff(self, here: Here) -> Tariff:
        """By the name the upstream knows the model by: an alias hides what it costs and binds."""
        return self.config.tariff_of(self.config.sent_as(here.request.model))

    def _window(self, here: Here) -> Window:
        return self.window(here.request.model, here.conversation)

    def _must_wait(self, here: Here) -> bool:
        """Inside a tool loop that must open with its reasoning nothing is cut. Where it holds none there is none to
        keep."""
        if not must_open(self.config, self.dialect, here.request, self.config.sent_as(here.request.model)):
            return False
        newest = newest_answer(here.story.placed)
        return newest is not None and self._reasons(newest)

    def _reasons(self, placed: Placed) -> bool:
        message = said_by(placed)
        return message is not None and self.dialect.without_reasoning(message) is not message


def binds(config: Config, dialect: Dialect, model: str) -> bool:
    """Whether reasoning that this model (by the upstream's name) made must be left out once its prefix has changed.
    Signed reasoning always is: which models check it is told of few, and one that does refuses the request."""
    return dialect.signs or config.tariff_of(model).binding != "none"


def binds_by_name(config: Config, dialect: Dialect, model: str) -> bool:
    """The same by the client's name for the model."""
    return binds(config, dialect, config.sent_as(model))


def suffixed(config: Config, model: str) -> bool:
    """Whether this model, by the client's name for it, takes no user message behind a result."""
    return config.tariff_of(config.sent_as(model)).after_tool == "suffix"


def must_open(config: Config, dialect: Dialect, request: Request, model: str) -> bool:
    """Whether `request` stands inside a tool loop whose last answer must open with its reasoning: where the request
    itself does not say so, the model (by the upstream's name) does."""
    if user_spoke_last(request.messages):
        return False
    told = dialect.manual(request)
    return config.tariff_of(model).thinking_in_loop == "required" if told is None else told


def _breaks(event: FrameEvent) -> bool:
    """Whether what the provider has cached ends with this."""
    return isinstance(event, Folded | Unfolded) or (isinstance(event, Woken) and not event.appended)


def _is_answer(placed: Placed) -> bool:
    message = said_by(placed)
    return message is not None and message.role == "assistant"


def newest_answer(placed: Sequence[Placed]) -> Placed | None:
    return next((p for p in reversed(placed) if _is_answer(p)), None)


def without_bound(
    config: Config, dialect: Dialect, request: Request, model: str, messages: Sequence[Message]
) -> tuple[Message, ...]:
    """The last of the client's own messages less their reasoning, but what the loop they end with must open with."""
    last = next((m for m in reversed(messages) if m.role == "assistant"), None)
    opening = last if must_open(config, dialect, request, model) else None
    return tuple(m if m is opening else dialect.without_reasoning(m) for m in messages)


def _is_cold(here: Here, ttl_s: int) -> bool:
    """Whether nothing of the path can be in the provider's cache any more: it was used too long ago, or never."""
    last = next((p.round.created for p in reversed(here.story.placed) if p.round), 0)
    return here.now - last > ttl_s * 1000


def _as_kept(tariff: Tariff, usages: list[Usage]) -> Tariff:
    """The tariff of a line as its end is kept: where the provider wrote all that it wrote last for an hour, because the
    client asks for that, writing is dearer and the cache stays warm for longer."""
    newest = next((usage for usage in reversed(usages) if usage.written), None)
    if newest is None or newest.written_long < newest.written:
        return tariff
    return replace(tariff, write=tariff.write_long, ttl_s=max(tariff.ttl_s, HOUR))


def _tells_of_none(usages: list[Usage]) -> bool:
    """A provider that told of cached tokens and tells of none any more."""
    newest = usages[-TOLD_TWICE:]
    return any(u.cached for u in usages) and len(newest) == TOLD_TWICE and not any(u.cached for u in newest)
