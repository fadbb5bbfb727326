"""Finds the folder in which an agent works, in the words by which clients tell it to the model: a line of the system
text or of a first message, or an element of Codex."""

from __future__ import annotations

import re
from collections.abc import Iterable

from proxy.core.memo import TextCache

MAX_SEARCHED_CHARACTERS = 200_000
"""Of one text; a longer one is no head of a client."""
MAX_CACHED_CHARACTERS = 4 << 20
"""Of all texts whose folder is remembered: an agent sends the same head with each request."""
MAX_FOLDER_CHARACTERS = 400
_PATH = rf"((?:/|~[/\\]|[A-Za-z]:[\\/]|\\\\)[^\n<>`'\"]{{0,{MAX_FOLDER_CHARACTERS}}})"
_TOLD = re.compile(
    rf"""<cwd>{_PATH}</cwd>
    | ^[\ \t>*\-\d.]{{0,12}} (?:[\w']+\ ){{0,3}}?
      (?:work(?:ing|space)[\ _](?:in\ the\ )?(?:dir(?:ectory)?|root|folder)(?:\ folder)?|cwd)
      \s?:[\ \t]* [`'"]?{_PATH}""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)


def working_folder(texts: Iterable[str]) -> str:
    """The folder that the first of the texts names, in the client's spelling without a slash at its end; or empty."""
    return next((folder for text in texts if (folder := _cached_folder_in(text))), "")


def _folder_in(text: str) -> str:
    if len(text) > MAX_SEARCHED_CHARACTERS:
        return ""
    found = _TOLD.search(text)
    if found is None:
        return ""
    path = (found[1] or found[2]).rstrip(" \t\r.")
    return path.rstrip("/\\") or path[:1]


_cached_folder_in = TextCache(_folder_in, MAX_CACHED_CHARACTERS)
