"""Renders the templates of the console, and reads its forms. All text is escaped."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from callstack_proxy.management.api import ApiContext
from callstack_proxy.management.console.page_memory import PageMemory
from callstack_proxy.management.console.parts.static_files import static_address
from callstack_proxy.management.reports import outcome_meaning, shown_key
from callstack_proxy.management.views import BROKEN_OFF, LENGTH_REASONS
from proxy import __version__
from proxy.auth import Tenant
from proxy.core.text import dollar_decimals
from proxy.errors import Forbidden

TEMPLATES = Path(__file__).with_name("templates")
MAX_FORM_FIELDS = 50


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks for a page. `tenant` is None for somebody who is not signed in; `form_token` goes into every form, and
    `memory` is of all visitors."""

    context: ApiContext
    tenant: Tenant | None
    form_token: str
    memory: PageMemory

    @property
    def scope(self) -> str | None:
        """The tenant for the store, None for an operator."""
        if self.tenant is None:
            raise Forbidden("Sign in first: open the link that `callstack console` prints.")
        return None if self.tenant.admin else self.tenant.id

    @property
    def is_operator(self) -> bool:
        return self.tenant is not None and self.tenant.admin


def visitor_of(request: Request) -> Visitor:
    visitor: Visitor = request.state.visitor
    return visitor


async def read_form(request: Request, *, check_token: bool = True) -> dict[str, str]:
    """The fields of a posted form. Raises Forbidden if it was not made by a page of this session."""
    body = await request.body()
    pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    fields = dict(pairs)
    token = fields.pop("token", "") or request.headers.get("x-form-token", "")
    expected = visitor_of(request).form_token
    if check_token and not (expected and hmac.compare_digest(token.encode(), expected.encode())):
        raise Forbidden("This form is of another session. Load the page again, then send it.")
    return fields


def render(request: Request, template: str, *, status: int = 200, **values: object) -> Response:
    """A page, or with `block` only that block of it."""
    return Response(
        render_text(request, template, **values).encode("utf-8", "backslashreplace"),
        status,
        media_type="text/html; charset=utf-8",
    )


def render_text(request: Request, template: str, **values: object) -> str:
    common: Mapping[str, object] = {
        "visitor": visitor_of(request),
        "version": __version__,
        "newest_event": request.state.newest_event,
        "path": request.url.path,
        "static": static_address,
        "address": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "origin": str(request.base_url).rstrip("/"),
    }
    return _ENVIRONMENT.get_template(template).render(**common, **values)


# ------------------------------------------------------------------------------------------------------------ filters
def format_tokens(tokens: float) -> str:
    """Thin groups of thousands: 12 345."""
    return f"{round(tokens):,}".replace(",", "\u202f")


def format_short_tokens(tokens: float) -> str:
    """For a figure that stands alone: 840, 12.4k, 310.0k, 1.2M. A column has whole numbers (`format_tokens`)."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if abs(tokens) >= size:
            return f"{tokens / size:.1f}{unit}"
    return f"{tokens:.0f}"


def format_usd(amount: float, beside: Iterable[float] = ()) -> str:
    """With a real minus sign, and as many decimals as the amounts `beside` it, which are its column or its row."""
    digits = dollar_decimals((amount, *beside))
    sign = "\u2212" if amount < 0 and round(-amount, digits) > 0 else ""
    return f"{sign}${abs(amount):,.{digits}f}"


def format_percent(share: float | None) -> str:
    """`share` in percent; a dash for None."""
    if share is None:
        return "\u2013"
    return f"{share:.0f}\u202f%".replace("-", "\u2212")


def format_ms(ms: float) -> str:
    return f"{ms / 1000:.1f}\u202fs" if ms >= 1000 else f"{ms:.0f}\u202fms"


def format_bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f}\u202f{unit}" if unit == "B" else f"{size:.1f}\u202f{unit}"
        size /= 1000
    return f"{size:.1f}\u202fGB"


def time_element(at_ms: int) -> Markup:
    """A time that the script of the page turns into the reader's own time zone."""
    iso = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
    return Markup('<time datetime="{}">{} UTC</time>').format(iso, iso[:16].replace("T", " "))


def one_line(text: str, most: int = 120) -> str:
    """At most `most` characters; a cut ends with `…`, behind a word unless that would take a third of the line."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    border = line.rfind(" ", 0, most)
    return f"{line[: border if border >= most * 2 / 3 else most - 1].rstrip(' ,;:')}…"


def counted(count: int, noun: str) -> str:
    """`1 frame`, `2 frames`."""
    return f"{format_tokens(count)} {noun}{'' if count == 1 else 's'}"


STATUS_WORDS = {
    "full": "helped",
    "passive": "helped, without tools",
    "asleep": "too short to help yet",
    "side": "a side question",
    "off": "switched off",
    "shadow": "only measured",
    "stateless": "cut to fit",
    "answered": "answered by us",
    "bypass": "passed on",
    "error": "failed",
    "summary": "our summary",
    "keep_alive": "our cache ping",
}
"""The statuses of requests from the user's side; docs/console.md has the same table."""


FRAME_STATUS_WORDS = {"in_progress": "in progress", "completed": "done", "invalidated": "given up"}


def status_words(status: str, reason: str = "") -> str:
    """A later version's word stands for itself. Not all that sleeps is short: a client may offer no tools. And not all
    that ended early failed: somebody may have wanted it."""
    if status == "error" and reason in BROKEN_OFF:
        return "broken off"
    if status == "asleep" and reason not in LENGTH_REASONS:
        return "passed on"
    return STATUS_WORDS.get(status, status)


def status_of_frame(status: str) -> str:
    return FRAME_STATUS_WORDS.get(status, status)


def as_sentence(words: str) -> str:
    """With a capital and a full stop."""
    return f"{words[:1].upper()}{words[1:]}."


def bar(value: float, largest: float, kind: str = "") -> Markup:
    """A bar as wide as its cell; `kind` is its class."""
    width = 0.0 if largest <= 0 else max(0.0, min(100.0, 100 * value / largest))
    return Markup(
        '<svg class="bar {}" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="6"/><rect class="fill" width="{}" height="6"/></svg>'
    ).format(escape(kind), f"{width:.1f}")


def split_bar(part: float, whole: float, largest: float) -> Markup:
    """A bar of `whole`, the first `part` of it in colour and the rest in grey."""
    scale = 100 / largest if largest > 0 else 0.0
    return Markup(
        '<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="6"/><rect class="folded" width="{}" height="6"/>'
        '<rect class="fill" width="{}" height="6"/></svg>'
    ).format(f"{min(100.0, whole * scale):.1f}", f"{min(100.0, part * scale):.1f}")


_VISIBLE: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"},
    **{code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}
"""Control characters, and those that turn the direction of text: as what they are called."""
_HAS_HIDDEN = re.compile(f"[{re.escape(''.join(map(chr, _VISIBLE)))}]").search
"""Far quicker than a translation, which the rows of a tree would get anew on each level above them."""


def _visible(value: object) -> object:
    return value.translate(_VISIBLE) if isinstance(value, str) and _HAS_HIDDEN(value) else value


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "tokens": format_tokens,
        "short": format_short_tokens,
        "usd": format_usd,
        "percent": format_percent,
        "ms": format_ms,
        "bytes": format_bytes,
        "time": time_element,
        "line": one_line,
        "counted": counted,
        "sentence": as_sentence,
        "named": shown_key,
    }
    environment.globals |= {
        "bar": bar,
        "split_bar": split_bar,
        "meaning": outcome_meaning,
        "status_words": status_words,
        "status_of_frame": status_of_frame,
        "length_reasons": LENGTH_REASONS,
    }
    return environment


_ENVIRONMENT = _environment()
