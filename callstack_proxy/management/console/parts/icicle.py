"""Lays out a path of messages as an icicle: from left to right in order of arrival, as wide as they have tokens, as
deep as the frame that they belong to; above them bands of the frames around it. Colours say what became of each: sent,
folded, recalled, or seen by proxy and model only. Neighbours of one frame and one fate are one rectangle, so a long
conversation stays small."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from proxy.core.context import context_entries, owner_of
from proxy.core.frames import PathEntry, PathState, Tree, frame_id_of, is_kept, path_to

Fate = Literal["sent", "folded", "recalled", "hidden"]
"""Stands in the request; left it and can be recalled; left it and was asked back; a round that the client never saw."""

FATES: Sequence[Fate] = ("sent", "folded", "recalled", "hidden")
Kind = Fate | Literal["band"]
"""What a rectangle shows: messages, or a frame around those below it."""

ROW_HEIGHT = 26
"""Pixels."""
MIN_WIDTH_PERCENT, MIN_LABEL_PERCENT = 0.05, 2.5


@dataclass(slots=True)
class Span:
    """Neighbouring messages of one frame and one fate. `start` and `tokens` are in tokens."""

    frame: str
    depth: int
    fate: Kind
    start: int
    tokens: int
    messages: int = 1


@dataclass(frozen=True, slots=True)
class Rectangle:
    """`x` and `width` in percent of the drawing, `y` in pixels. `label` is empty where there is no room."""

    x: float
    y: int
    width: float
    kind: Kind
    frame: str
    title: str
    label: str
    tokens: int
    messages: int = 0


@dataclass(frozen=True, slots=True)
class Icicle:
    """`tokens` by fate; `height` of the drawing in pixels."""

    rectangles: Sequence[Rectangle] = ()
    height: int = ROW_HEIGHT
    tokens: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(FATES, 0))
    by_frame: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Tokens of each frame's own messages by fate."""

    @property
    def sent(self) -> int:
        """Tokens of messages in the request."""
        return sum(tokens for fate, tokens in self.tokens.items() if fate != "folded")


def tokens_of(path_entry: PathEntry) -> int:
    """With the results of hidden calls."""
    message = path_entry.message
    hidden = path_entry.round.results if path_entry.round else ()
    return (message.tokens if message else 0) + sum(result.tokens for result in hidden)


def spans_of(path_state: PathState) -> list[Span]:
    """All messages of a path, oldest first."""
    tree = path_state.tree.as_shown
    in_context = {id(path_entry) for path_entry in context_entries(path_state)}
    spans: list[Span] = []
    position = 0
    for path_entry in path_state.entries:
        tokens = tokens_of(path_entry)
        if not tokens:
            continue
        frame = frame_id_of(owner_of(path_state, path_entry))
        fate = _fate(tree, path_entry, frame, is_sent=id(path_entry) in in_context)
        last = spans[-1] if spans else None
        if last is not None and (last.frame, last.fate) == (frame, fate):
            last.tokens += tokens
            last.messages += 1
        else:
            depth = len(path_to(tree, frame)) - 1 if frame in tree.frames else 0
            spans.append(Span(frame, depth, fate, position, tokens))
        position += tokens
    return spans


def _fate(tree: Tree, path_entry: PathEntry, frame: str, *, is_sent: bool) -> Fate:
    if not is_sent:
        return "folded"
    if frame in tree.frames and is_kept(tree, frame):
        return "recalled"
    if path_entry.round is not None and path_entry.round.results:
        return "hidden"
    return "sent"


def lay_out(path_state: PathState, full_tokens: int, *, only_sent: bool = False) -> Icicle:
    """`full_tokens` fill the whole width, so that the drawing grows while one scrubs. `only_sent` leaves out what is
    folded, and moves the rest together."""
    spans = spans_of(path_state)
    totals: dict[str, int] = dict.fromkeys(FATES, 0)
    by_frame: dict[str, dict[str, int]] = {}
    for span in spans:
        totals[span.fate] += span.tokens
        of_frame = by_frame.setdefault(span.frame, dict.fromkeys(FATES, 0))
        of_frame[span.fate] += span.tokens
    shown = _packed(span for span in spans if span.fate != "folded") if only_sent else spans
    tree, scale = path_state.tree.as_shown, 100 / max(1, full_tokens)
    rectangles = [_rectangle(span, span.fate, tree, scale) for span in (*_bands(shown, tree), *shown)]
    depths = [span.depth for span in shown]
    return Icicle(rectangles, (max(depths, default=0) + 1) * ROW_HEIGHT, totals, by_frame)


def _packed(spans: Iterable[Span]) -> list[Span]:
    packed, position = [], 0
    for span in spans:
        packed.append(Span(span.frame, span.depth, span.fate, position, span.tokens, span.messages))
        position += span.tokens
    return packed


def _bands(spans: Sequence[Span], tree: Tree) -> list[Span]:
    """For each frame the stretches in which the frames below it work."""
    bands: list[Span] = []
    last: dict[str, Span] = {}
    for span in spans:
        around = path_to(tree, span.frame)[:-1] if span.frame in tree.frames else ()
        for depth, frame in enumerate(around):
            band = last.get(frame.id)
            if band is not None and band.start + band.tokens == span.start:
                band.tokens += span.tokens
            else:
                band = last[frame.id] = Span(frame.id, depth, "band", span.start, span.tokens, 0)
                bands.append(band)
    return bands


def _rectangle(span: Span, kind: Kind, tree: Tree, scale: float) -> Rectangle:
    frame = tree.frames.get(span.frame)
    title = frame.title if frame else "before the first frame"
    width = max(MIN_WIDTH_PERCENT, span.tokens * scale)
    return Rectangle(
        round(span.start * scale, 3),
        span.depth * ROW_HEIGHT,
        round(width, 3),
        kind,
        span.frame,
        title,
        title if width >= MIN_LABEL_PERCENT else "",
        span.tokens,
        span.messages,
    )
