"""What the libraries of two providers make of answers: run by an environment of its own that has them.

Reads a JSON array of `{"library": ..., "url": ..., "asked": {...}, "how": ...}` from standard input, asks each, and
prints an array of what came: the events as the library gives them, the message it makes of them, and the name of the
exception it raises, with its status and its words. `how` is `plain`, `raw` (the events alone) or `helped` (the
library's own gathering).

It knows nothing of the proxy, so that nobody can be fooled by it; two answers are compared where it was started from.
"""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

Json = dict[str, Any]
PATIENCE_S = 20


def anthropic(url: str) -> Any:
    library = importlib.import_module("anthropic")
    return library.Anthropic(base_url=url, api_key="sk-scripted", max_retries=0, timeout=PATIENCE_S)


def openai(url: str) -> Any:
    library = importlib.import_module("openai")
    return library.OpenAI(base_url=f"{url}/v1", api_key="sk-scripted", max_retries=0, timeout=PATIENCE_S)


CLIENTS: dict[str, Callable[[str], Any]] = {"anthropic": anthropic, "openai": openai}


def endpoint(library: str, client: Any) -> Any:
    return client.messages if library == "anthropic" else client.responses


def came(library: str, client: Any, asked: Json, how: str) -> Json:
    """What one request was answered with."""
    told: Json = {"events": [], "final": None, "error": None}
    try:
        told["final"] = asking(endpoint(library, client), asked, how, told["events"])
    except Exception as error:  # which one it is, is what is asked here
        told["error"] = [type(error).__name__, getattr(error, "status_code", None), str(error)]
    return told


def asking(endpoint: Any, asked: Json, how: str, events: list[Json]) -> Any:
    """The final message; the events on the way to it go into `events`, as far as they come."""
    if how == "plain":
        answer = endpoint.create(**asked)
        return plain(answer)
    if how == "raw":
        with closing(endpoint.create(**asked, stream=True)) as stream:
            events.extend(map(plain, stream))
        return None
    with endpoint.stream(**asked) as stream:
        events.extend(event.type for event in stream)
        gathered = stream.get_final_message if hasattr(stream, "get_final_message") else stream.get_final_response
        return plain(gathered())


def plain(value: Any) -> Any:
    """A value of the library as JSON; what is none is told as it is."""
    return json.loads(value.to_json()) if hasattr(value, "to_json") else repr(value)


def all_of(cases: list[Json]) -> Iterator[Json]:
    clients: dict[tuple[str, str], Any] = {}
    for case in cases:
        key = (case["library"], case["url"])
        if key not in clients:
            clients[key] = CLIENTS[case["library"]](case["url"])
        yield came(case["library"], clients[key], case["asked"], case["how"])


if __name__ == "__main__":
    json.dump(list(all_of(json.load(sys.stdin))), sys.stdout)
