"""Small pure functions on texts: token estimates, XML escaping, truncation to a token budget, and keywords."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

CountTokens = Callable[[str], int]
"""Counts the tokens of a text."""

CHARACTERS_PER_TOKEN = 4
TRUNCATION_MARKER = "[truncated]"  # S1-59
GAP_MARKER = "[...]"
"""Stands where the middle of a text was left out."""
WORD_BORDER = 0.2
"""A cut moves back to the end of a word if one ends within this last part of the text (S1-59)."""
MAX_PARTED = 40
"""Characters of a number or place that no cut parts."""
MIN_SENTENCES_SHARE = 0.25
"""A beginning is cut at the end of a sentence if that leaves this share of it."""
MIN_BEGINNING = 40
"""Characters of a beginning from which on it may end inside of a sentence: fewer say nothing."""


PART_ENDS = "-_/."
"""What stands between the parts of a name or a path."""
SHORTEST_KEYWORD = 3  # S1-58: longer than two letters
_COMMON = (
    "the and for are but not you all any can had her was one our out has him his how its may new now old see who did "
    "let say she too use that with have this will your from they been were into than then them when what which"
)
STOP_WORDS = frozenset(_COMMON.split())  # S1-58


MAX_QUERY_WORDS = 64
"""Words of a query that count, from its beginning."""
_UNSPACED_SCRIPTS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
"""Characters of scripts without spaces between words; each counts as one word."""
_WORD = re.compile(f"[{_UNSPACED_SCRIPTS}]|[^\\W_{_UNSPACED_SCRIPTS}]+")


BASE64_MARKERS = (";base64,", 'data":"')
"""What stands before a file in the JSON of a content part: the head of a data URL, or the name of a member."""
KEPT_BASE64_LENGTH = 2_000
MAX_SHORTENED_FILES = 256
_BASE64 = re.compile(r"[A-Za-z0-9+/=_\-]+")


# --------------------------------------------------------------------------------------------------------------- texts
def estimate_tokens(text: str) -> int:
    """Four characters a token, rounded up: the estimate where no tokenizer is available."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


_ILLEGAL = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ATTRIBUTE_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})


def remove_illegal_xml(text: str) -> str:
    """Removes what XML forbids: control characters except tab and newline, lone surrogates, U+FFFE, U+FFFF."""
    return _ILLEGAL.sub("", text)


def escape_xml(text: str) -> str:
    """Text that is safe inside an XML element. Only what XML forbids there is escaped, because a model reads it, and
    searches for it, as prose. Frame blocks are XML that a parser accepts, so `<` and `&` cannot stand there as they
    are; notes and results, which quote code, are no XML (`escape_own_tags`)."""
    escaped = remove_illegal_xml(text).replace("&", "&amp;").replace("<", "&lt;")
    return escaped.replace("]]>", "]]&gt;") if "]]>" in escaped else escaped


_OWN_TAGS = (
    "stack-context frame-results results said steps progress files commands decisions edits errors next "
    "names-you-can-query user-said does-not-work-here text-after-edits"
)
_OWN_TAG = re.compile(
    rf"<(?=<(?:recall|end)\b|\s*/?\s*(?:{'|'.join(map(re.escape, _OWN_TAGS.split()))})(?![\w-]))", re.IGNORECASE
)
_ESCAPED_OWN_TAG = re.compile(_OWN_TAG.pattern.replace("<", "&lt;", 1), re.IGNORECASE)


def escape_own_tags(text: str) -> str:
    """Text that can neither open nor close an element of ours, with everything else as it was: code stays readable. The
    result is no XML."""
    return _OWN_TAG.sub("&lt;", remove_illegal_xml(text))


def unescape_own_tags(text: str) -> str:
    return _ESCAPED_OWN_TAG.sub("<", text)


def escape_attribute(text: str) -> str:
    """Text that is safe inside an XML attribute."""
    return remove_illegal_xml(text).translate(_ATTRIBUTE_ESCAPES)


def quoted(title: str) -> str:
    """A title in quotes, unless it has some of its own."""
    return title if '"' in title else f'"{title}"'


def without_escaped_quotes(title: str) -> str:
    """A title as it was meant: models and clients escape the quotes in JSON once more than it takes."""
    return _ESCAPED_QUOTE.sub(r"\1", title)


_ESCAPED_QUOTE = re.compile(r"\\+([\"'])")


def on_one_line(text: str) -> str:
    """Its words with one space between them."""
    return " ".join(text.split())


def cut_for_display(text: str, limit: int = 60) -> str:
    """One line of at most `limit` characters; a cut ends with `…`, and falls between two words if the last one is no
    longer than a third of the line: half a name is none that can be searched for."""
    return cut_code(" ".join(remove_illegal_xml(text).split()), limit)


def cut_code(text: str, limit: int) -> str:
    """As `cut_for_display`, for one line of code: the blanks between its words stay as they are, because an edit has to
    match them."""
    line = remove_illegal_xml(text).strip()
    if len(line) <= limit:
        return line
    border = line.rfind(" ", 0, limit)
    is_between_words = border >= limit * 2 / 3 or _parts_number_or_place(line, border)
    return line[: border if is_between_words else limit - 1].rstrip() + "…"


def _parts_number_or_place(text: str, border: int) -> bool:
    """Whether the word behind `border` is a time, a ratio, an address or a line of a file: half of one says something
    else. A longer word is code, or a text without blanks, as Chinese is."""
    words = text[border + 1 : border + 2 + MAX_PARTED].split(maxsplit=1) if border > 0 else []
    return bool(words) and len(words[0]) <= MAX_PARTED and _NUMBER_OR_PLACE.search(words[0]) is not None


_NUMBER_OR_PLACE = re.compile(r"\d|:.*[^:]")


def join_whole(items: Sequence[str], limit: int) -> str:
    """The first items that fit `limit` characters, at least one, with commas, and how many more there are."""
    shown = [cut_for_display(item, limit) for item in items[:1]]
    room = limit - len("".join(shown))
    for item in items[1:]:
        room -= len(item) + 2
        if room < 0:
            break
        shown.append(cut_for_display(item, limit))
    return join_shown(shown, len(items))


def join_shown(shown: Sequence[str], total: int) -> str:
    """Those that are shown of `total`, with commas, and how many more there are."""
    more = [f"+{total - len(shown)} more"] if len(shown) < total else []
    return ", ".join([*shown, *more])


def cell_width(text: str) -> int:
    """Cells that a line takes on a terminal: wide characters (Chinese, emoji) take two, accents none."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut_at_word(text: str, limit: int) -> str:
    """One line of at most `limit` cells, for people; a cut ends with `…` and falls between two words, or behind a
    part of a long one, unless that would take most of the line."""
    line = " ".join(remove_illegal_xml(text).split())
    if cell_width(line) <= limit:
        return line
    end, room = 0, limit - 1
    while end < len(line) and (room := room - _cells_of(line[end])) >= 0:
        end += 1
    borders = (line.rfind(" ", 0, end + 1), max(line.rfind(mark, 0, end + 1) for mark in PART_ENDS))
    border = next((at for at in borders if at >= end / 3), end)
    return line[:border].rstrip(" ,;:") + "…"


def truncate_to_tokens(text: str, budget: int, count: CountTokens, marker: str = TRUNCATION_MARKER) -> str:
    """The longest start of a text that fits `budget` tokens together with `marker`, or an empty string if the marker
    alone does not fit. The cut falls on the end of a word if one ends within the last fifth, and in front of a time, an
    address or a number that would be parted."""
    if count(text) <= budget:
        return text
    if count(marker) > budget:
        return ""
    length = longest_fitting(text, lambda beginning: count(f"{beginning} {marker}") <= budget)
    length = _end_of_words(text, length)
    beginning = text[: max(length, 0)].rstrip()
    # A tokenizer may take more for less: a cut can part what was one token.
    while beginning and count(f"{beginning} {marker}") > budget:
        beginning = beginning[:-1].rstrip()
    return f"{beginning} {marker}" if beginning else marker


def cut_middle(text: str, fits: Callable[[str], bool]) -> str:
    """The text, or its beginning and its last sentence around `[...]`: what came of something stands at the end. The
    beginning ends with a sentence; only inside of a long one, with a word. If not even the last sentence fits, the end
    of that, or nothing. A text of which the mark would take as much room as what it stands for is whole."""
    text = text.strip()
    if fits(text):
        return text
    borders = [match.end() for match in _SENTENCE_BORDER.finditer(text)]
    last = text[borders[-1] :] if borders else text
    if not fits(f"{GAP_MARKER} {last}"):
        length_of_end = longest_fitting(last[::-1], lambda end: fits(f"{GAP_MARKER} {end[::-1]}"))
        end = last[len(last) - length_of_end :]
        if length_of_end < len(last) and not last[-length_of_end - 1].isspace():
            parted, _, words = end.partition(" ")
            end = words if words and len(parted) <= MAX_PARTED else end  # it begins with a word
        return f"{GAP_MARKER} {end.lstrip()}" if length_of_end else ""
    head = text[: len(text) - len(last)].rstrip()
    length = longest_fitting(head, lambda start: fits(f"{start} {GAP_MARKER} {last}"))
    start = head[: _end_of_beginning(head, length)].rstrip()
    if len(head) - len(start) <= 2 * len(GAP_MARKER):
        return text
    return f"{start} {GAP_MARKER} {last}".lstrip() if fits(f"{start} {GAP_MARKER} {last}") else f"{GAP_MARKER} {last}"


def _end_of_beginning(text: str, length: int) -> int:
    """Where to cut the first `length` characters."""
    if length == len(text):
        return length
    sentence_end = max((m.start() for m in _SENTENCE_BORDER.finditer(text, 0, length + 1)), default=0)
    if sentence_end >= length * MIN_SENTENCES_SHARE or length < MIN_BEGINNING:
        return sentence_end
    return _end_of_words(text, length)


def _end_of_words(text: str, length: int) -> int:
    """Where the first `length` characters end with a word, if one ends within their last fifth, or if half of the next
    one would say something else."""
    border = max(text.rfind(" ", 0, length + 1), text.rfind("\n", 0, length + 1))
    if border >= length * (1 - WORD_BORDER):
        return border
    return border if _parts_number_or_place(text, border) else length


_SENTENCE_BORDER = re.compile(r"(?<=[.!?])\s+|\n+")


def longest_fitting(text: str, fits: Callable[[str], bool]) -> int:
    """How many leading characters of `text` fit. Reads little more than fits, however long the text is."""
    high = 1
    while high < len(text) and fits(text[:high]):
        high *= 2
    low, high = 0, min(high, len(text))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(text[:middle]) else (low, middle - 1)
    return low


def shorten_base64(text: str) -> str:
    """`text` with its first files in base64 cut to `KEPT_BASE64_LENGTH` characters. A file is a longer run, up to a
    quotation mark. An expression or a parser that reads 40 MB holds up everybody for a tenth of a second; this takes
    some ms."""
    for marker in BASE64_MARKERS:
        pieces, kept_until, at = [], 0, text.find(marker)
        for _ in range(MAX_SHORTENED_FILES):
            begin = at + len(marker)
            end = text.find('"', begin) if at >= 0 else -1
            if end < 0:
                break
            if end - begin > KEPT_BASE64_LENGTH and _is_base64(text, begin, end):
                pieces.append(text[kept_until : begin + KEPT_BASE64_LENGTH])
                kept_until = end
            at = text.find(marker, end)
        text = "".join([*pieces, text[kept_until:]]) if pieces else text
    return text


def _is_base64(text: str, begin: int, end: int) -> bool:
    """By its beginning, and by what a long run that is something else would have."""
    return (
        _BASE64.fullmatch(text, begin, min(end, begin + 200)) is not None
        and all(text.find(sign, begin, end) < 0 for sign in " \n\\<")
        and (text.isascii() or text[begin:end].isascii())
    )


def format_duration(milliseconds: float) -> str:
    """`850ms`, `2.5s`, `3.0m`, `1.2h`."""
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if milliseconds >= size:
            return f"{milliseconds / size:.1f}{unit}"
    return f"{milliseconds:.0f}ms"


# ------------------------------------------------------------------------------------------------------------ keywords
_WORDS = re.compile(r"[^\W_]+")


def extract_keywords(text: str) -> frozenset[str]:
    """The words of a text in lower case, without stop words and words under three letters, together with the parts of
    paths and of snake_case and camelCase names."""
    keywords: set[str] = set()
    for word in set(_WORDS.findall(text)):
        keywords |= {word.casefold(), *(part.casefold() for part in _camel_parts(word))}
    return frozenset(w for w in keywords if len(w) >= SHORTEST_KEYWORD and w not in STOP_WORDS)


def count_shared_keywords(keywords: frozenset[str], text: str) -> int:
    """How many of `keywords` are keywords of `text`. Only words that contain one are split, because the function runs
    for up to a thousand siblings."""
    folded = text.casefold()
    wanted = [keyword for keyword in keywords if keyword in folded]
    if not wanted:
        return 0
    holding = [w for w in set(_WORDS.findall(text)) if any(map(w.casefold().__contains__, wanted))]
    return len(keywords & extract_keywords(" ".join(holding)))


def _camel_parts(word: str) -> list[str]:
    """`parseXMLTree` is parse, XML, Tree: a border before each capital that begins a word."""
    starts = [0]
    for index in range(1, len(word)):
        rises = word[index].isupper() and not word[index - 1].isupper()
        begins = word[index].islower() and word[index - 1].isupper() and index - 1 > starts[-1]
        if rises:
            starts.append(index)
        elif begins:
            starts.append(index - 1)
    return [word[a:b] for a, b in zip(starts, [*starts[1:], len(word)], strict=True)]


# ----------------------------------------------------------------------------------------------------------------- XML
def text_element(name: str, text: str, **attributes: str) -> str:
    """An XML element with escaped text."""
    return f"<{name}{_attributes(attributes)}>{escape_xml(text)}</{name}>"


def prose_element(name: str, text: str) -> str:
    """An element of ours whose text, code too, stands as it was written; no XML."""
    return f"<{name}>{escape_own_tags(text)}</{name}>"


def element(name: str, attributes: Mapping[str, str], *content: str) -> str:
    """An XML element with one child a line. `content` is markup already; empty children are left out."""
    inner = "\n".join(part for part in content if part)
    return f"<{name}{_attributes(attributes)}>\n{inner}\n</{name}>" if inner else f"<{name}{_attributes(attributes)}/>"


def _attributes(attributes: Mapping[str, str]) -> str:
    return "".join(f' {name}="{escape_attribute(value)}"' for name, value in attributes.items())


def dollar_decimals(amounts: Iterable[float]) -> int:
    """Decimals of amounts in USD that stand together: two where the largest is a dollar or more, else four."""
    return 2 if max(map(abs, amounts), default=0.0) >= 1 else 4


def words_in(text: str) -> list[str]:
    """Words of the text in lower case, in order: `rate_limit(src/a.py)` has five."""
    return _WORD.findall(text.casefold())


def query_words(query: str) -> list[str]:
    """The words of a query that count, without repetition."""
    return list(islice(dict.fromkeys(words_in(query)), MAX_QUERY_WORDS))
