"""Shows a call as a person reads it: each argument by its name, code and texts as they are, and an edit as a diff."""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup

MAX_TEXT = 4_000
"""Characters of one argument that are shown; the whole entry is behind a link."""
HEAD_LINES = 3
"""Of a diff: the names of both files, and the first place."""
EDITED = (("old_string", "new_string"), ("oldString", "newString"), ("old_str", "new_str"), ("old_text", "new_text"))
"""Arguments of the editing tools of known clients: the text before, and the text after."""


def shown_call(name: str, arguments: str) -> Markup:
    """Arguments that are no JSON object, such as a patch or those of a call that broke off, are shown as they came."""
    try:
        values = json.loads(arguments)
        blocks = _blocks(name, values) if isinstance(values, dict) else ()
    except (ValueError, RecursionError):
        blocks = ()
    return Markup("").join(blocks or [_block(f"{name} {arguments[:MAX_TEXT]}")])


def _blocks(name: str, values: Mapping[str, object]) -> Sequence[Markup]:
    pair = next((pair for pair in EDITED if all(isinstance(values.get(each), str) for each in pair)), ())
    rest = {key: value for key, value in values.items() if key not in pair}
    long = {key: value for key, value in rest.items() if isinstance(value, str) and "\n" in value}
    short = [(key, value) for key, value in rest.items() if key not in long]
    blocks = [_block("\n".join([name, *map(_short_line, short)]))]
    blocks += [_block(value[:MAX_TEXT], key) for key, value in long.items()]
    if pair:
        blocks.append(_diff(str(values[pair[0]]), str(values[pair[1]])))
    return blocks


def _short_line(item: tuple[str, object]) -> str:
    key, value = item
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        items = "\n".join(f"    - {_item_words(each)}" for each in value)
        return f"  {key}:\n{items[:MAX_TEXT]}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"  {key}: {text[:MAX_TEXT]}"


def _item_words(item: Mapping[str, object]) -> str:
    """One item of a list, such as a step of a plan: `content: Mend the form, status: pending`."""
    values = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for key, value in item.items()
    }
    return ", ".join(f"{key}: {value}" for key, value in values.items())


def _block(text: str, label: str = "") -> Markup:
    head = Markup('<p class="soft small">{}</p>').format(label) if label else Markup("")
    return head + Markup('<pre class="text call" tabindex="0"><bdi>{}</bdi></pre>').format(text)


def _diff(before: str, after: str) -> Markup:
    changes = difflib.unified_diff(before[:MAX_TEXT].splitlines(), after[:MAX_TEXT].splitlines(), lineterm="")
    lines = itertools.islice(changes, HEAD_LINES, None)
    return Markup('<pre class="text call" tabindex="0"><bdi>{}</bdi></pre>').format(Markup("\n").join(_marked(lines)))


def _marked(lines: Iterable[str]) -> Iterable[Markup]:
    for line in lines:
        kind = {"-": "del", "+": "ins"}.get(line[:1])
        if kind:
            yield Markup("<{}>{}</{}>").format(kind, line, kind)
        else:
            yield Markup("{}").format(line)
