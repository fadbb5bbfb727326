"""Serves the scripts and styles of the console from memory, compressed once for browsers that take gzip.

Pages stay uncompressed: they hold the token of the forms beside words that others wrote, and from the length of the two
compressed together one could guess the token.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FOLDER = Path(__file__).parents[1] / "static"
STATIC_PATH = "/console/static/"
_TAKES_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))", re.IGNORECASE)
"""Searches an `accept-encoding`; `gzip;q=0` refuses it."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    gzipped: bytes
    media_type: str
    digest: str
    """Of the content; stands in the file's address and in its ETag."""


@cache
def static_files() -> Mapping[str, StaticFile]:
    """By name, such as `console.css` or `vendor/htmx.min.js`."""
    return {path.relative_to(_FOLDER).as_posix(): _read(path) for path in _FOLDER.rglob("*") if path.is_file()}


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    media_type = guess_type(path.name)[0] or "text/plain"
    return StaticFile(content, gzip.compress(content, mtime=0), media_type, sha256(content).hexdigest()[:12])


def static_address(name: str) -> str:
    """The address of a file, with the beginning of the digest of what is in it."""
    return f"{STATIC_PATH}{name}?{static_files()[name].digest}"


async def _send_file(request: Request) -> Response:
    """A file whose address names its content is never asked for again; without that a page would wait for its style
    sheets each time."""
    file = static_files().get(request.path_params["name"])
    if file is None:
        raise HTTPException(404)
    # While a new version comes in, one replica is asked for the files of another: its own are not those of the address.
    is_named = request.url.query == file.digest
    takes_gzip = _TAKES_GZIP.search(request.headers.get("accept-encoding", "")) is not None
    headers = {
        "cache-control": "max-age=31536000, immutable" if is_named else "no-cache",
        "etag": f'"{file.digest}{"-gzip" if takes_gzip else ""}"',
        "vary": "accept-encoding",
    }
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if takes_gzip:
        headers["content-encoding"] = "gzip"
    return Response(file.gzipped if takes_gzip else file.content, headers=headers, media_type=file.media_type)


ROUTES = [Route(STATIC_PATH + "{name:path}", _send_file)]
