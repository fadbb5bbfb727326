"""Forms in which the proxy asks a provider, and what was learned of those that refuse the full one.

Providers refuse what they cannot render (roles, tools, schemas) in words of their own, so every refusal that is not
about length, rate, credentials or content counts as one of the form. What helped is remembered for an hour per upstream
and model; a refusal that names no cause must be seen twice, because it may have been an outage.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from enum import StrEnum

from proxy.upstream.learned_traits import LearnedTrait, TraitKind

LEARNED_FORM_TTL_S = 3600.0
"""How long a learned form is used before the full one is tried again."""
MAX_LEARNED_FORMS = 1024
MAX_SCANNED_BYTES = 8_192
REFUSALS_TO_TRY, REFUSALS_TO_LEARN = 2, 3
"""Unexplained refusals of the full form, one after the other, from which on a milder one is tried, and remembered: one
is mostly an outage, and the client asks again."""

_OTHER_CAUSE_STATUSES = frozenset({401, 402, 403, 407, 408, 413, 425, 429, 451})
"""4xx statuses about credentials, money, time, size, rate and law."""
_OTHER_CAUSE = re.compile(
    rb"rate.?limit|too many requests|quota|billing|insufficient|credits?\b|api.?key|authenticat|authoriz|permission"
    rb"|forbidden|expired|overloaded|capacity|temporar|unavailable|try again|retry after|timed? ?out"
    rb"|content.?(policy|management|filter)|moderation|safety|model[^\"]{0,60}(not found|not exist|unknown)"
    rb"|model_not_found|no such model|unknown model",
    re.IGNORECASE,
)
# Chat templates in llama.cpp and vLLM (Devstral, Ministral, Gemma) raise where roles do not alternate, and servers tell
# that as a 500 with a word of Jinja in it: the words tell a refused form from an outage.
_FORM_WORDS = re.compile(
    rb"\broles?\b|alternat|jinja|template|\btools?\b|function|schema|messages?\[|messages?\b[^\"]{0,40}(must|should|order)"
    rb"|invalid|unsupported|not supported|unexpected|expected|parse|validat|raise_exception|render",
    re.IGNORECASE,
)
_ABOUT_TOOLS = re.compile(
    rb"\btools?\b(?!\W+(calls?|results?|messages?|role|outputs?)\b)|\bfunctions?\b|schema|\bstrict\b", re.IGNORECASE
)
_REASONING_MEMBER = rb"\breasoning(?:_content|_details)?\b"
_NOT_TAKEN = (
    rb"unsupported|not supported|not permitted|not allowed|unexpected|unknown|unrecogni[sz]ed|forbidden|\bextra\b"
)
# Groq and Cerebras answer with `reasoning`, and refuse a message that brings it back (400, "property 'reasoning' is
# unsupported", 422). Whoever echoes their answers, as clients of DeepSeek must, cannot ask a second time.
_REASONING_NOT_TAKEN = re.compile(
    rb"%b[^.\n]{0,60}?(?:%b)|(?:%b)[^\n]{0,80}?%b" % (_REASONING_MEMBER, _NOT_TAKEN, _NOT_TAKEN, _REASONING_MEMBER),
    re.IGNORECASE,
)
_ABOUT_MESSAGES = re.compile(rb"messages?\b", re.IGNORECASE)


class RequestForm(StrEnum):
    """How much of ours is in a request."""

    FULL = "full"
    # Cerebras takes `strict` for all tools of a request or for none.
    STRICT = "strict"
    """Full, with the schemas of our tools as strict as the client's: some providers take no mixture."""
    MILD = "mild"
    """No guidance, recall as the only tool, our texts joined to messages beside them."""
    BARE = "bare"
    """No tool. Where nothing can be asked for, nothing may be missing: the client's own messages, unfolded."""
    CLIENT = "own"
    """The client's request, with nothing of ours."""


FORMS_WITHOUT_RECALL = frozenset({RequestForm.BARE, RequestForm.CLIENT})
_TRAITS: dict[RequestForm, TraitKind] = {
    RequestForm.STRICT: "strict",
    RequestForm.MILD: "mild",
    RequestForm.BARE: "bare",
    RequestForm.CLIENT: "own",
}


def is_form_refusal(status: int, body: bytes, *, knows_api: bool) -> bool:
    """Whether a refusal that is not about length may be one of the request's form. An unexplained 500 of an API that
    we know (`knows_api`) is an outage: it refuses forms with a 4xx."""
    if not (400 <= status < 500 or status == 500) or status in _OTHER_CAUSE_STATUSES:
        return False
    text = body[:MAX_SCANNED_BYTES]
    if _OTHER_CAUSE.search(text):
        return False
    return is_explained(status, body) or not knows_api


def is_explained(status: int, body: bytes) -> bool:
    """Whether a refusal says that the request is at fault."""
    return status < 500 or _FORM_WORDS.search(body[:MAX_SCANNED_BYTES]) is not None


def is_about_tools(body: bytes) -> bool:
    """Whether a refusal is about the tools that are offered."""
    return _ABOUT_TOOLS.search(body[:MAX_SCANNED_BYTES]) is not None


def is_reasoning_refusal(status: int, body: bytes) -> bool:
    """Whether a refusal says that messages may not bring reasoning back. Groq and Cerebras tell it and refuse it."""
    text = body[:MAX_SCANNED_BYTES]
    told = status in (400, 422) and _ABOUT_MESSAGES.search(text) and _REASONING_NOT_TAKEN.search(text)
    return bool(told)


class LearnedForms:
    """The forms that upstreams accept, by upstream and its name for the model. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._learned: dict[tuple[str, str], tuple[RequestForm, float]] = {}
        self._unexplained: dict[tuple[str, str], int] = {}

    def form_for(self, upstream: str, model: str) -> RequestForm:
        found = self._learned.get((upstream, model))
        if found is None:
            return RequestForm.FULL
        form, since = found
        if self._clock() - since < LEARNED_FORM_TTL_S:
            return form
        del self._learned[upstream, model]
        return RequestForm.FULL

    def should_try_milder(self, upstream: str, model: str, *, explained: bool) -> bool:
        """Whether the full form, which was refused now, is to be followed by a milder one."""
        key = upstream, model
        if not explained and (len(self._unexplained) < MAX_LEARNED_FORMS or key in self._unexplained):
            self._unexplained[key] = self._unexplained.get(key, 0) + 1
        return explained or self.is_repeated(upstream, model)

    def is_repeated(self, upstream: str, model: str) -> bool:
        """Whether the full form was refused without a cause again and again."""
        return self._unexplained.get((upstream, model), 0) >= REFUSALS_TO_TRY

    def learn(self, upstream: str, model: str, form: RequestForm, *, explained: bool) -> None:
        """Remember that `form` helped where the full one was refused."""
        key = upstream, model
        if not explained and self._unexplained.get(key, 0) < REFUSALS_TO_LEARN:
            return
        self._unexplained.pop(key, None)
        if len(self._learned) < MAX_LEARNED_FORMS or key in self._learned:
            self._learned[key] = form, self._clock()

    def traits(self, now: int) -> Iterator[LearnedTrait]:
        """The forms in use. `now` is in ms since the epoch, at the time of the clock."""
        for (upstream, model), (form, since) in self._learned.items():
            age_s = self._clock() - since
            if age_s < LEARNED_FORM_TTL_S:
                began = now - round(age_s * 1000)
                yield LearnedTrait(upstream, model, _TRAITS[form], began, began + round(LEARNED_FORM_TTL_S * 1000))

    def confirm_full(self, upstream: str, model: str) -> None:
        """The full form was accepted, so an unexplained refusal before was an outage."""
        self._unexplained.pop((upstream, model), None)
