"""Stands between a client and a provider, and shortens each request by LiteLLM's `litellm.compression.compress`.

    python bench/litellm_compression.py --port 8100 --upstream http://127.0.0.1:9000 --trigger 20000

It lets the judge of `docs/comparison.md` play recordings through that function. LiteLLM's own gateway applies it to the
messages API alone, and the judge speaks chat completions. Needs `litellm` and `aiohttp`; no call of the retrieval tool
is answered here, and no recording makes one.
"""

from __future__ import annotations

import argparse
from typing import Any

from aiohttp import ClientSession, web
from litellm.compression import compress

HOP_BY_HOP = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})


def shortened(body: dict[str, Any], trigger: int) -> dict[str, Any]:
    """The request as LiteLLM shortens it: from `trigger` tokens on, to seven tenths of them. It cannot read a message
    without content, which calls of tools are."""
    messages = [message | {"content": message.get("content") or ""} for message in body["messages"]]
    done = compress(messages=messages, model="gpt-4o", compression_trigger=trigger)
    if not done["cache"]:
        return body
    return body | {"messages": done["messages"], "tools": [*(body.get("tools") or ()), *done["tools"]]}


async def relay(request: web.Request, upstream: str, trigger: int) -> web.StreamResponse:
    headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
    url = upstream + request.path_qs
    async with ClientSession() as session:
        if request.path.endswith("/chat/completions"):
            answer = await session.post(url, json=shortened(await request.json(), trigger), headers=headers)
        else:
            answer = await session.request(request.method, url, data=await request.read(), headers=headers)
        told = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
        response = web.StreamResponse(status=answer.status, headers=told)
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        return response


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--trigger", type=int, default=200_000, help="tokens; LiteLLM's default is 200,000")
    asked = parser.parse_args()
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_route("*", "/{path:.*}", lambda request: relay(request, asked.upstream, asked.trigger))
    web.run_app(app, host="127.0.0.1", port=asked.port, print=lambda _: None)


if __name__ == "__main__":
    main()
