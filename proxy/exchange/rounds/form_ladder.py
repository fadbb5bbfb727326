"""The ladder of request forms: in which form a provider that refused one is asked next, and what is learned of that.

Each step takes the rung on which a request was refused, and the refusal, and returns the form of the next one or
nothing. The first step that returns one decides. Below the last rung is the client's own request, which the caller
sends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import msgspec

from proxy.core.ledger import Request
from proxy.dialects import common_strictness, list_in, with_strictness
from proxy.exchange.background.recorder import RequestRecordBuilder
from proxy.exchange.rounds.client_request import Services
from proxy.exchange.thread.brief_tool_arrays import BriefRequest
from proxy.exchange.thread.context_policy import NO_TOOLS
from proxy.exchange.turn import Turn
from proxy.upstream import RequestForm, Route, overflow_errors, request_forms

MAX_RETRY_DELAY_S = 10.0
"""A provider that wants to be left alone for longer is not asked again: the client is told."""


class Refusal(msgspec.Struct, frozen=True):
    """A provider's refusal of a request of so many tokens. `told_wait_s`: seconds until it wants to be asked again,
    None where it names no time, or means this request alone."""

    status: int
    body: bytes
    sent_tokens: int
    told_wait_s: float | None = None

    @property
    def is_put_off(self) -> bool:
        return self.told_wait_s is not None and self.told_wait_s > MAX_RETRY_DELAY_S

    @property
    def is_too_long(self) -> bool:
        return overflow_errors.is_overflow(self.status, self.body, self.sent_tokens)

    @property
    def is_explained(self) -> bool:
        return request_forms.is_explained(self.status, self.body)


class Rung(msgspec.Struct, frozen=True):
    """How a request was asked. `tools` are ours as JSON, `recall_tools` those of the mild form; `strictness` is what
    all tools of the client say of "strict", None where they differ or say nothing."""

    form: RequestForm
    tools: str
    recall_tools: str
    strictness: bool | None

    @property
    def has_tools(self) -> bool:
        return self.tools not in ("", NO_TOOLS)


Step = Callable[[Rung, bytes], RequestForm | None]


def _as_strict_as_the_clients(rung: Rung, refusal: bytes) -> RequestForm | None:
    """Some providers take no mixture of strict tools and others."""
    if rung.form is not RequestForm.FULL or not rung.has_tools or not request_forms.is_about_tools(refusal):
        return None
    strict = rung.strictness
    differs = strict is not None and with_strictness(rung.tools, strict=strict) != rung.tools
    return RequestForm.STRICT if differs else None


def _with_recall_alone(rung: Rung, refusal: bytes) -> RequestForm | None:
    """Where the tools are not at fault, roles and texts of ours may be."""
    if rung.form is not RequestForm.FULL or not rung.has_tools or request_forms.is_about_tools(refusal):
        return None
    return RequestForm.MILD if rung.tools != rung.recall_tools else None


def _without_our_tools(rung: Rung, refusal: bytes) -> RequestForm | None:
    """What is refused in the mild form for its one tool may be taken without; for anything else, only the client's own
    request is left."""
    if rung.form in request_forms.FORMS_WITHOUT_RECALL:
        return None
    if rung.form is RequestForm.MILD and not request_forms.is_about_tools(refusal):
        return None
    return RequestForm.BARE


STEPS: tuple[Step, ...] = (_as_strict_as_the_clients, _with_recall_alone, _without_our_tools)
"""In the order in which they are tried."""


def next_form(rung: Rung, refusal: bytes) -> RequestForm | None:
    """The form of the next rung; None where only the client's own request is left."""
    return next((form for step in STEPS if (form := step(rung, refusal)) is not None), None)


class FormLadder:
    """The ladder of one request. `request` has the upstream's name for the model."""

    def __init__(self, services: Services, route: Route, request: Request, record: RequestRecordBuilder) -> None:
        self._services = services
        self._key = (route.upstream.name, route.model)
        self._request = request
        self._record = record
        self._is_explained: bool | None = None
        """Whether a refusal of the full form named its cause; None where there was none."""

    @cached_property
    def client_strictness(self) -> bool | None:
        """What all tools of the client say of `strict`; None where they differ, or say nothing."""
        return common_strictness(list_in(self._request.fields, "tools"))

    @property
    def _recall_tools(self) -> str:
        return self._services.resolver.policy.tools_by_mode["passive"]

    def offer(self, turn: Turn) -> tuple[str, str]:
        """Our tools as JSON and our guidance, as the form of the turn has them."""
        waking = turn.path_state.tree.wake_state
        if waking is None or turn.form is RequestForm.BARE:
            return "", ""
        if turn.form is RequestForm.FULL or waking.tools == NO_TOOLS:
            return waking.tools, waking.guidance
        recall = self._recall_tools if waking.tools or waking.appended else ""
        if turn.form is RequestForm.STRICT and self.client_strictness is not None:
            return with_strictness(waking.tools or recall, strict=self.client_strictness), waking.guidance
        return recall, ""

    def offers_recall(self, turn: Turn) -> bool:
        """Whether what is left out of a request of the turn can be asked for."""
        waking = turn.path_state.tree.wake_state
        return bool(waking and waking.appended) or self.offer(turn)[0] not in ("", NO_TOOLS)

    def with_offered_tools(self, turn: Turn, request: Request) -> BriefRequest:
        """The client's request with its tools as the thread began to send them: brief, or as they came."""
        waking = turn.path_state.tree.wake_state
        if waking is None or not waking.brief or turn.form is RequestForm.BARE:
            return BriefRequest(request)
        return self._services.resolver.policy.brief_tools.shorten(request)

    # -------------------------------------------------------------------------------------------------------- choosing
    def learned_form(self) -> RequestForm:
        """The form that this provider is known to take, as far as it applies to this request."""
        form = self._services.learned_forms.form_for(*self._key)
        if form is RequestForm.STRICT and self.client_strictness is None:
            return RequestForm.FULL  # the client's tools are another mixture now
        if form is RequestForm.CLIENT and self._services.config.fail_policy == "closed":
            return RequestForm.FULL
        return form

    def form_after(self, turn: Turn, refused: Refusal) -> RequestForm | None:
        """The form to ask in after a refusal; None where it was not for the form, or none is left."""
        tools, _ = self.offer(turn)
        form = next_form(Rung(turn.form, tools, self._recall_tools, self.client_strictness), refused.body)
        if form is None or not self._is_form_refusal(refused):
            return None
        explained = refused.is_explained
        if not self._services.learned_forms.should_try_milder(*self._key, explained=explained):
            return None
        self._is_explained = explained
        return form

    def _is_form_refusal(self, refused: Refusal) -> bool:
        knows_api = self._services.config.tariff_of(self._key[1]).roles == "any"
        return not refused.is_too_long and request_forms.is_form_refusal(
            refused.status, refused.body, knows_api=knows_api
        )

    def client_form_remains(self, refused: Refusal) -> bool:
        """Whether the client's own request may be accepted where every form of ours was refused."""
        may_send = self._services.config.fail_policy != "closed"
        is_repeated = self._services.learned_forms.is_repeated(*self._key)
        return may_send and (is_repeated or refused.is_explained) and self._is_form_refusal(refused)

    # -------------------------------------------------------------------------------------------------------- learning
    def learn(self, *, complete: bool) -> None:
        """Remember the form that was answered."""
        forms = self._services.learned_forms
        if complete and not self._record.form:
            forms.confirm_full(*self._key)
        elif complete and self._is_explained is not None:
            forms.learn(*self._key, RequestForm(self._record.form), explained=self._is_explained)
            self._is_explained = None
