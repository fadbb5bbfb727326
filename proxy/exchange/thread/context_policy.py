"""Decides when a thread wakes, and which finished work is compacted.

An asleep thread passes byte for byte. It wakes with its first request, when nothing is cached, if our tools are small
beside that (`offer`); later only where a compaction pays for waking too. A thread without tools never wakes. Returns
events; records and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import dropwhile, takewhile

import msgspec
from msgspec import structs
from msgspec.structs import replace

from proxy.accounting import Tariff, family_of
from proxy.config import Config
from proxy.config.for_core import block_format_for, forbids_user_after_result, uses_minimal_view
from proxy.core.compaction import (
    CompactionDecision,
    CompactionInput,
    CompactionPlan,
    FoldRules,
    TraceWriter,
    expected_requests,
    is_assistant,
    is_compaction_due,
    plan_compaction,
    plan_one_line_outputs,
    plan_unfolds,
    reasoning_tokens,
    tokens_removed_by_cuts,
    untouched_cost,
    within_outlay,
)
from proxy.core.context import (
    ContextForm,
    DrawMap,
    MessageComposer,
    block_of,
    guidance_text,
    refreshable_frames,
    replace_block,
    uncalled_frame,
    unsent_stale_frames,
    words_seen_by,
)
from proxy.core.frames import (
    BlockRenewed,
    Frame,
    FrameEvent,
    FrameFolded,
    FrameUnfolded,
    PathState,
    ProviderCompacted,
    ProviderEditedContext,
    ReasoningRemoved,
    ResultReplaced,
    ThreadWoken,
    reduce,
)
from proxy.core.ledger import Ledger, Request, is_edited_by_provider
from proxy.core.observers import ends_with_user_message, rounds_of
from proxy.core.policy import InferenceRules
from proxy.core.recall import RestoreOptions
from proxy.core.tools import CallGroup, ToolContext, ToolSettings
from proxy.dialects import AppendedTools, Dialect, never_holds_compaction
from proxy.exchange.thread.bound_reasoning import (
    BoundReasoning,
    binds_reasoning,
    opens_loops_with_reasoning,
    refuses_reasoning,
)
from proxy.exchange.thread.brief_tool_arrays import BriefToolArrays
from proxy.exchange.thread.fold_rules import fold_rules
from proxy.exchange.thread.gate_prices import (
    cache_is_cold,
    costs_more_for_length,
    gate_prices,
    stopped_reporting_cache,
    tariff_in_use,
    tokens_around_messages,
)
from proxy.exchange.thread.offer import FRAMES_SHARE, RECALL_SHARE, first_small_offer
from proxy.exchange.thread.placement import Headers, PolicyInput
from proxy.upstream import ContextWindow

MAX_ROOT_TOKENS = 120
"""Tokens of a root's own part of its block, at most: its criterion is the first user message."""
MAX_NOTE_BLOCK_TOKENS = 600
"""Tokens of a block behind the newest message, at most."""
MAX_COMPACTED_BLOCK_TOKENS = 300
"""Tokens of the block behind a client's own summary, at most."""
RECALL_WINDOW_DIVISOR = 4
"""Restored file contents may fill one part in so many of the window."""
MIN_RECALL_WAKE_TOKENS = 20_000
"""A smaller thread does not wake for recall alone: it saves cents there, and its client gets its own bytes."""
NO_TOOLS = "[]"
PLAN_TOOL = '"stack_frame_plan"'
"""How a JSON array of tools names it."""


class PolicyDecision(msgspec.Struct, frozen=True):
    """The events to record. `reason` says why a thread stays asleep."""

    events: tuple[FrameEvent, ...] = ()
    decisions: tuple[CompactionDecision, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class ContextPolicy:
    """Decides for one dialect. `tools` are our tool arrays as JSON, by mode; `window` returns the window in tokens by
    the client's model name and conversation, learned limits included."""

    config: Config
    dialect: Dialect
    composer: MessageComposer
    tools_by_mode: dict[str, str]
    inference_rules: InferenceRules
    settings: ToolSettings
    count_tokens: Callable[[str], int]
    count_memoized: Callable[[str], int]
    nonce_of: Callable[[str], str]
    window_of: Callable[[str, str], ContextWindow]
    plan_row: Callable[[str, Headers, Tariff], Tariff] = lambda _, __, tariff: tariff
    """By the client's model name and headers: the row by which the gate decides where a plan pays."""
    accepts_recall: Callable[[str], bool] = lambda _: True
    """By the client's model name: whether its provider takes our tools. If not, nothing may leave the context."""
    draw_map: DrawMap | None = None

    @cached_property
    def reasoning(self) -> BoundReasoning:
        return BoundReasoning(self.config, self.dialect)

    def decide(self, here: PolicyInput) -> PolicyDecision:
        noticed = self._provider_events(here)
        here = _after(here, noticed)
        can_recall = self.accepts_recall(here.request.model)
        acted = self._wake_or_compact(here) if can_recall else PolicyDecision(reason="no_recall")
        if can_recall and (here.path_state.tree.is_awake or acted.events) and not self._stays_unfolded(here):
            acted = self._renew_blocks(here, self._minimize_outputs(here, acted))
        before = (
            *noticed,
            *self.reasoning.drop_outdated(here),
            *self.reasoning.drop_rewritten(here),
            *self.reasoning.drop_unrecorded(here),
        )
        return replace(acted, events=(*before, *acted.events)) if before else acted

    def _provider_events(self, here: PolicyInput) -> list[FrameEvent]:
        """What the provider did to the context by itself."""
        tree, path_entries = here.path_state.tree, here.path_state.entries
        seals = self.dialect.holds_compaction
        noticed: list[FrameEvent] = []
        if seals is not never_holds_compaction:
            sealed = (
                p for p in path_entries if p.entry.id not in tree.provider_compactions and (m := p.message) and seals(m)
            )
            if found := tuple(dict.fromkeys(p.entry.id for p in sealed)):
                noticed.append(ProviderCompacted(found))
        if not tree.provider_edited_context and any(map(is_edited_by_provider, rounds_of(path_entries))):
            noticed.append(ProviderEditedContext())
        return noticed

    def _wake_or_compact(self, here: PolicyInput) -> PolicyDecision:
        if here.path_state.tree.is_awake:
            again = self._move_guidance_to_front(here) or self._fit_tools_to_cap(here) or self._add_core_tools(here)
            if self._stays_unfolded(here) or self.reasoning.is_needed_in_loop(here):
                return PolicyDecision(again)
            done = self._plan_compaction(here, None)
            return PolicyDecision((*again, *done.events), done.decisions)
        # on a branch the client's own bytes tell too much
        wanted = here.message_is_waiting or here.needs_parent_task or bool(here.path_state.other_branches)
        if reason := self._reason_to_sleep(here, wanted=wanted):
            return PolicyDecision(reason=reason)
        if self._tools_that_fit(here) == NO_TOOLS:
            return PolicyDecision(reason="too_many_tools")
        if self.config.wake_at_tokens is None and here.begins and not wanted:
            woken = self._offer_event(here)
            return PolicyDecision((woken,)) if woken else PolicyDecision(reason="small")
        return self._wake(here, wanted=wanted)

    # ------------------------------------------------------------------------------------------------------- offering
    @property
    def smallest_awake(self) -> int:
        """Tokens of the smallest request whose thread may be awake."""
        if self.config.wake_at_tokens is not None:
            return self.config.wake_at_tokens
        return int(self.count_memoized(self.tools_by_mode["passive"]) / RECALL_SHARE)

    def _offer_event(self, here: PolicyInput) -> ThreadWoken | None:
        """What the thread is offered with its first request; None where nothing is small beside it, less what brief
        tools save of it."""
        wakings = (self._frames_offer(here, tools) for tools in self._frame_tools(here))
        recall, saved = self._recall_offer(here), self._saved_by_brief_tools(here)
        offers = [
            *((waking, sum(map(self.count_memoized, waking.texts)) - saved, FRAMES_SHARE) for waking in wakings),
            (recall, self.count_memoized(recall.tools) - saved, RECALL_SHARE),
        ]
        return first_small_offer(here.request.tokens, (o for o in offers if self._fits_cap(here, o[0].tools)))

    def _frame_tools(self, here: PolicyInput) -> tuple[str, ...]:
        """Our tools for frames, the most wanted first: a client with a plan tool of its own gets none to plan with. A
        subagent, which is a frame itself, gets none."""
        if here.mode == "passive" or here.is_subagent:
            return ()
        planned = any(map(self.inference_rules.tool_roles.is_plan_tool, here.request.tool_names))
        names = ("frames",) if planned and self.config.guidance == "mirror" else ("active", "frames")
        return tuple(dict.fromkeys(self.tools_by_mode[name] for name in names))

    def _frames_offer(self, here: PolicyInput, tools: str) -> ThreadWoken:
        return ThreadWoken(self._guidance(here, tools), tools, brief=self._is_brief(here))

    def _recall_offer(self, here: PolicyInput) -> ThreadWoken:
        return ThreadWoken("", self.tools_by_mode["passive"], brief=self._is_brief(here))

    def _is_brief(self, here: PolicyInput) -> bool:
        """Decided where our tools come to stand in front, because the provider's cache is written anew there."""
        return self.config.is_brief_for(here.request.model)

    def _saved_by_brief_tools(self, here: PolicyInput) -> int:
        return self.brief_tools.shorten(here.request).saved_tokens if self._is_brief(here) else 0

    @cached_property
    def brief_tools(self) -> BriefToolArrays:
        return BriefToolArrays(self.inference_rules.tool_roles, self.count_memoized)

    def _add_core_tools(self, here: PolicyInput) -> tuple[FrameEvent, ...]:
        """Offer the tools for frames to a thread that has `stack_recall` alone, where its cache is cold."""
        tree, request = here.path_state.tree, here.request
        if self.config.wake_at_tokens is not None or here.mode == "passive" or tree.offers_frames:
            return ()
        if not (self._is_cold(here) and ends_with_user_message(request.messages)):
            return ()
        woken = self._offer_event(here)
        if woken is None or not woken.guidance:
            return ()
        return (structs.replace(woken, frame=tree.active), *self.reasoning.drop_all(here))

    # --------------------------------------------------------------------------------------------------------- waking
    def _reason_to_sleep(self, here: PolicyInput, *, wanted: bool) -> str:
        """Why this request cannot wake its thread, or empty. `wanted`: a small request may wake it too (a queued
        message, a branch, a parent's task), and so may one that brief tools make smaller."""
        request = here.request
        if not request.tool_names:
            return "no_tools"
        if request.tool_choice not in ("auto", "required") or request.wants_json_object:
            return "no_choice"
        if request.tokens >= self.smallest_awake or wanted:
            return ""
        may_offer = self.config.wake_at_tokens is None and here.begins and self._saved_by_brief_tools(here) > 0
        return "" if may_offer else "small"

    def _wake(self, here: PolicyInput, *, wanted: bool) -> PolicyDecision:
        """Wake, with all compactions that are due. A compaction or a cut of a new output must pay for both, unless the
        thread is `wanted` awake; with `wake_at_tokens` set, that holds inside a tool loop alone. Appended tools break
        no prefix, so then a compaction must pay by itself. Where the tools for frames do not pay, recall may."""
        in_loop = not ends_with_user_message(here.request.messages)
        must_pay = in_loop or (self.config.wake_at_tokens is None and not wanted)
        if in_loop and self.reasoning.is_needed_in_loop(here):
            return PolicyDecision(reason="in_loop")
        woken = self._wake_event(here, wanted=wanted)
        decision = self._wake_with(here, woken, in_loop=in_loop, must_pay=must_pay)
        is_small = here.request.tokens < MIN_RECALL_WAKE_TOKENS
        if decision.events or not woken.guidance or is_small or self.config.wake_at_tokens is not None:
            return decision
        recall = self._recall_offer(here)  # a fifth of the tokens
        return self._wake_with(here, recall, in_loop=in_loop, must_pay=must_pay)

    def _wake_with(self, here: PolicyInput, woken: ThreadWoken, *, in_loop: bool, must_pay: bool) -> PolicyDecision:
        appended = bool(woken.appended)
        added = None if appended and not in_loop else sum(map(self.count_memoized, woken.texts))
        done = self._plan_compaction(here, added, appended=appended)
        wakes = done.events or not must_pay
        if wakes and added is not None and woken.frame:  # its block is costly to write: only where it will be sent
            done = self._plan_compaction(here, added + self._block_tokens(here, woken.frame), appended=appended)
        decisions = done.decisions
        if must_pay and not done.events and not here.message_is_waiting:
            cut = self._wake_with_truncation(here, decisions, woken.frame)
            decisions = (cut,) if cut else decisions
            if cut is None or not cut.verdict.is_worth_it:
                return PolicyDecision((), decisions, "in_loop" if in_loop else "no_gain")
        return PolicyDecision((woken, *([] if appended else self.reasoning.drop_all(here)), *done.events), decisions)

    def _block_tokens(self, here: PolicyInput, frame: str) -> int:
        """Tokens of the block that is due behind the newest message; 0 without a frame."""
        return self.count_tokens(self.render_block(here, MAX_NOTE_BLOCK_TOKENS, frame)) if frame else 0

    def _wake_with_truncation(
        self, here: PolicyInput, decisions: Sequence[CompactionDecision], frame: str
    ) -> CompactionDecision | None:
        """Weigh waking again with the cut of new outputs that are too long; None where there are none. `frame`: its
        block is due with it."""
        most, rules = self._window(here).max_output_tokens, self.config.output_rules
        removed = tokens_removed_by_cuts(here.path_state, self.config.output_cap or most, rules, most)
        asked = next((decision for decision in decisions if decision.kind == "wake"), None)
        if not removed or asked is None or here.path_state.tree.provider_edited_context:
            return None
        compaction_input, before = self._compaction_input(here, None), asked.verdict.rewrite
        cut = structs.replace(
            before,
            removed=removed,
            compaction=0,
            behind=before.context_tokens - removed,
            added=before.added + self._block_tokens(here, frame),
        )
        verdict = compaction_input.evaluate(cut)
        if verdict.is_worth_it and compaction_input.binds_reasoning and self._appended_tools(here) is None:
            lost = reasoning_tokens(
                here.path_state.entries, here.path_state.tree.without_reasoning, self.dialect.without_reasoning
            )
            cut = structs.replace(cut, reasoning=lost)
            verdict = compaction_input.evaluate(cut)
        verdict = within_outlay(verdict, compaction_input.paid, cold=compaction_input.cold)
        return CompactionDecision("wake", (), verdict)

    def _wake_event(self, here: PolicyInput, *, wanted: bool) -> ThreadWoken:
        """Tools and guidance, as they will be replayed."""
        if self.config.wake_at_tokens is None and not wanted:
            in_front = self._offer_event(here) or self._recall_offer(here)
        else:
            in_front = self._leading_wake_event(here)
        if not in_front.guidance and here.mode != "passive":
            return in_front
        is_mid_work = here.mode != "passive" and any(map(is_assistant, here.path_state.entries))
        frame = here.path_state.tree.active if is_mid_work else ""
        if (how := self._appended_tools(here)) is None:
            return structs.replace(in_front, frame=frame)
        wire = how.encode(here.request, in_front.guidance, in_front.tools)
        return ThreadWoken("", "", wire.decode(), here.entry_id, frame)

    def _leading_wake_event(self, here: PolicyInput) -> ThreadWoken:
        """Tools and guidance for the start of the context. They hold nothing that can become false."""
        tools = self._tools_that_fit(here)
        if tools in self._frame_tools(here):
            return self._frames_offer(here, tools)
        return ThreadWoken("", tools, brief=self._is_brief(here))

    def _guidance(self, here: PolicyInput, tools: str) -> str:
        return guidance_text(
            self.config.guidance,
            here.request.tool_names,
            self.inference_rules.tool_roles,
            mirrors_plans=self.config.mirror_plans,
            offers_plan=PLAN_TOOL in tools,
        )

    def _tools_that_fit(self, here: PolicyInput) -> str:
        """Our tools within the cap on tools of the model: all of them, else those to recall, else none."""
        offers = (*self._frame_tools(here), self.tools_by_mode["passive"])
        return next((tools for tools in offers if self._fits_cap(here, tools)), NO_TOOLS)

    def _fits_cap(self, here: PolicyInput, tools: str) -> bool:
        """Whether the model's cap on tools has room for `tools` beside those of the client."""
        most = self._tariff(here).most_tools
        return not most or len(here.request.tool_names) + tool_count(tools) <= most

    def _fit_tools_to_cap(self, here: PolicyInput) -> tuple[FrameEvent, ...]:
        """Offer fewer tools for good when the client's own have become so many that ours exceed the model's cap. Where
        that left none, ours come back once there is room."""
        # OpenAI and Azure take 128 tools, and a Claude Code with MCP servers was seen to bring 107 (2.1.330).
        waking = here.path_state.tree.wake_state
        if waking is None:
            return ()
        offered = waking.tools or next(iter(self._frame_tools(here)), self.tools_by_mode["passive"])
        is_right = self._tools_that_fit(here) == NO_TOOLS if offered == NO_TOOLS else self._fits_cap(here, offered)
        if is_right:
            return ()
        event = structs.replace(self._leading_wake_event(here), at=here.entry_id)
        return (event, *self.reasoning.drop_all(here))

    def _stays_unfolded(self, here: PolicyInput) -> bool:
        """Whether nothing may leave, since recall has no room, and nothing has to: all of it fits the window."""
        return self._tools_that_fit(here) == NO_TOOLS and self._window(here).holds(here.request.tokens)

    def _appended_tools(self, here: PolicyInput) -> AppendedTools | None:
        """Tools and guidance to append behind the newest message; None where the model or client does not allow it."""
        how, model = self.dialect.appended_tools, self.config.upstream_model_of(here.request.model)
        if (
            how is None
            or family_of(model) != how.model_family
            or not {"system", "tools"} <= set(self._tariff(here).append)
        ):
            return None
        return how if how.is_supported(here.request, here.headers) else None

    def _move_guidance_to_front(self, here: PolicyInput) -> tuple[FrameEvent, ...]:
        """Move appended guidance to the front for good when a request cannot carry it inside (another model or client
        setting)."""
        waking = here.path_state.tree.wake_state
        if waking is None or not waking.appended or self._appended_tools(here):
            return ()
        due = here.path_state.tree.unannounced_frame
        moved = structs.replace(self._leading_wake_event(here), at=here.entry_id, frame=due)
        return (moved, *self.reasoning.drop_all(here))

    def render_block(
        self, here: PolicyInput, most: int | None = None, frame: str = "", said: Sequence[str] | None = None
    ) -> str:
        """The block of a frame (default: the active one); of at most `most` tokens where it stands behind the newest
        message, whose words it does not repeat. `said` as in `block_of`."""
        newest = takewhile(lambda message: message.role != "assistant", reversed(here.request.messages))
        beside = [message.text for message in newest if most is not None and message.role == "user"]
        tree, budgets = here.path_state.tree, self.settings.budgets
        described = tree.frames[frame or tree.active]
        if most is not None:
            budgets = replace(budgets, total=min(budgets.total, most))
        if not described.parent:
            budgets = replace(budgets, current=min(budgets.current, MAX_ROOT_TOKENS))
        return block_of(
            block_format_for(self.config, here.request.model, self.draw_map),
            here.path_state,
            tree,
            described.id,
            session=here.conversation,
            nonce=self.nonce_of(here.conversation),
            now=here.now,
            budgets=budgets,
            count=self.count_tokens,
            said=said,
            beside=beside[::-1],
        )

    # -------------------------------------------------------------------------------------------------------- folding
    def restore_options(self, here: PolicyInput) -> RestoreOptions:
        room = self._window(here).tokens // RECALL_WINDOW_DIVISOR
        return RestoreOptions(
            self.nonce_of(here.conversation), self.count_tokens, room, self.inference_rules.tool_roles
        )

    def _plan_compaction(self, here: PolicyInput, added: int | None, *, appended: bool = False) -> CompactionPlan:
        at_words = ends_with_user_message(here.request.messages)
        long = costs_more_for_length(self._tariff(here), here, self.count_tokens)
        rules = fold_rules(self.config, self._window(here), at_words=at_words, costs_more_for_length=long)
        if added is None and not here.path_state.tree.kept_frames and not is_compaction_due(here.path_state, rules):
            return CompactionPlan()
        if rules.newest_tokens and self.reasoning.drop_all(here):  # behind a cut steps lose their reasoning
            rules = structs.replace(rules, newest_tokens=0)
        compaction_input = self._compaction_input(here, added, appended=appended, rules=rules)
        compaction_input = structs.replace(
            compaction_input,
            voids_reasoning=compaction_input.binds_reasoning and not (added is None or appended or at_words),
        )
        pen = TraceWriter(
            self.inference_rules.tool_roles, self.count_tokens, self.nonce_of(here.conversation), self.composer
        )
        return plan_unfolds(
            here.path_state, compaction_input, plan_compaction(here.path_state, compaction_input, pen), self.composer
        )

    def _compaction_input(
        self,
        here: PolicyInput,
        added: int | None,
        *,
        appended: bool = False,
        rules: FoldRules = FoldRules(0),  # noqa: B008  a frozen value
    ) -> CompactionInput:
        window = self._window(here)
        usages = [made.spoken.usage for made in rounds_of(here.path_state.entries) if made.spoken.usage]
        tariff = tariff_in_use(self._tariff(here), usages)
        uncached = stopped_reporting_cache(usages)
        return CompactionInput(
            newest_entry=here.entry_id,
            now=here.now,
            prices=gate_prices(tariff, here, uncached=uncached),
            requests=expected_requests(len(usages)),
            cold=self._is_cold(here),
            window=window.tokens if window.is_binding else 0,
            rules=rules,
            head=tokens_around_messages(here.request),
            added_tokens=added,
            binds_reasoning=self.reasoning.is_bound(here),
            provider_edits=here.path_state.tree.provider_edited_context,
            wake_is_appended=appended,
            paid=self._paid_untouched(here) if added is not None and self.config.wake_at_tokens is None else None,
        )

    def _paid_untouched(self, here: PolicyInput) -> float:
        """What the conversation has cost so far without us."""
        tariff, request = self._tariff(here), here.request
        return untouched_cost(request.messages, tokens_around_messages(request), gate_prices(tariff, here))

    def _is_cold(self, here: PolicyInput) -> bool:
        """Whether the provider caches nothing of this thread any more."""
        usages = [made.spoken.usage for made in rounds_of(here.path_state.entries) if made.spoken.usage]
        tariff = tariff_in_use(self._tariff(here), usages)
        if not usages and self.config.wake_at_tokens is None:  # seen for the first time: others may have warmed it
            return False
        return stopped_reporting_cache(usages) or cache_is_cold(here, tariff.ttl_s)

    def _minimize_outputs(self, here: PolicyInput, acted: PolicyDecision) -> PolicyDecision:
        """With view `minimal`, shorten older results to one line each when the time is right."""
        if not uses_minimal_view(self.config, here.request.model) or self.reasoning.is_needed_in_loop(here):
            return acted
        here = _after(here, acted.events)
        if not here.path_state.tree.is_awake or here.path_state.tree.provider_edited_context:
            return acted
        breaks = any(
            isinstance(event, FrameFolded | FrameUnfolded) or (isinstance(event, ThreadWoken) and not event.appended)
            for event in acted.events
        )
        rules = self.config.output_rules
        done = plan_one_line_outputs(
            here.path_state, self._compaction_input(here, None), self.count_tokens, breaks=breaks, rules=rules
        )
        changed = {event.entry for event in done.events if isinstance(event, ResultReplaced)}
        behind = tuple(dropwhile(lambda path_entry: path_entry.entry.id not in changed, here.path_state.entries))
        voided = self.reasoning.drop(here, behind) if behind and self.reasoning.is_bound(here) else []
        return replace(
            acted, events=(*acted.events, *voided, *done.events), decisions=(*acted.decisions, *done.decisions)
        )

    def _renew_blocks(self, here: PolicyInput, acted: PolicyDecision) -> PolicyDecision:
        """Rewrite stale blocks, where no cache and no reasoning is lost."""
        if not here.path_state.tree.stale_blocks:
            return acted
        unsent = tuple(self._renew_block(here, frame) for frame in unsent_stale_frames(here.path_state))
        acted = replace(acted, events=(*acted.events, *unsent))
        if here.mode == "passive" or self.reasoning.is_needed_in_loop(here):
            return acted
        story, cold, here = here.path_state, self._is_cold(here), _after(here, acted.events)
        tree = here.path_state.tree
        if not tree.is_awake or tree.provider_edited_context:
            return acted
        in_front = any(isinstance(event, ThreadWoken) and not event.appended for event in acted.events)
        frames = refreshable_frames(story, tree, cold=cold, in_front=in_front)
        voided = self.reasoning.drop_all(here) if frames else []
        if voided and not any(isinstance(event, FrameFolded | ReasoningRemoved) for event in acted.events):
            return acted
        return replace(acted, events=(*acted.events, *voided, *(self._renew_block(here, frame) for frame in frames)))

    def _renew_block(self, here: PolicyInput, frame: Frame) -> BlockRenewed:
        if frame.opening is not None:
            said = words_seen_by(here.path_state.tree, frame)
            block = self.render_block(here, frame=frame.id, said=said)
            return BlockRenewed(frame.id, replace_block(frame.opening.block, block))
        how, in_front = self._appended_tools(here), self._leading_wake_event(here)
        active = here.path_state.tree.active
        due = active if uncalled_frame(here.path_state.tree).id == active else ""  # a pushed frame has its own block
        waking = here.path_state.tree.wake_state
        if how is None or waking is None or not waking.appended:
            return BlockRenewed(frame.id, guidance=in_front.guidance, due=due)
        wire = how.encode(here.request, in_front.guidance, in_front.tools)
        return BlockRenewed(frame.id, appended=wire.decode(), due=due)

    def own_tool_context(self, path_state: PathState, ledger: Ledger, now: int, turn: str = "") -> ToolContext:
        """For a frame tool that the proxy itself uses at the end of `turn`, beside no calls of the client."""
        group = CallGroup(has_only_stack_calls=True, home_frame=path_state.tree.active)
        nonce = self.nonce_of(ledger.conversation.id)
        return ToolContext(path_state, ledger, group, turn, "", 0, now, nonce, self.count_tokens, self.settings)

    def _tariff(self, here: PolicyInput) -> Tariff:
        """By the upstream's model name: an alias hides prices and reasoning rules."""
        tariff = self.config.tariff_of(self.config.upstream_model_of(here.request.model))
        return self.plan_row(here.request.model, here.headers, tariff)

    def _window(self, here: PolicyInput) -> ContextWindow:
        return self.window_of(here.request.model, here.conversation)


def _after(here: PolicyInput, events: Iterable[FrameEvent]) -> PolicyInput:
    tree = here.path_state.tree
    for event in events:
        tree = reduce(tree, event, here.now)
    return replace(here, path_state=replace(here.path_state, tree=tree))


def context_form_for(config: Config, dialect: Dialect, request: Request) -> ContextForm:
    """What the model of this request accepts."""
    model = config.upstream_model_of(request.model)
    return ContextForm(
        suffixed=forbids_user_after_result(config, request.model),
        alternate=config.tariff_of(model).roles == "alternate",
        bound=binds_reasoning(config, dialect, model),
        strips_all=refuses_reasoning(config, model),
        loops_open_with_reasoning=opens_loops_with_reasoning(config, dialect, request, model),
    )


@lru_cache(maxsize=64)
def tool_count(tools: str) -> int:
    """How many tools are in a JSON array of them."""
    return len(msgspec.json.decode(tools)) if tools else 0
