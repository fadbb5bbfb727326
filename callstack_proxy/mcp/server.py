"""The tools of the server, over stdio or HTTP. Each asks the management API, which knows what the caller may see.

Over stdio the caller is whoever started the server. Over HTTP it is whoever sends the request: the key in its headers
goes on to the proxy, and nothing of the server's own does.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Protocol
from urllib.parse import quote, urlencode

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from callstack_proxy.mcp.replies import ALL_PROJECTS, printable, say_reply, search_reply, tree_reply
from proxy.errors import NotFound, ProxyError

NAME = "callstack"
INSTRUCTIONS = (
    "What agents did in this project before, in all their sessions. Before you begin a task, search whether it, or "
    "something like it, was done: stack_search tells finished work with its files, commands and how they ended, and "
    "stack_recall what was said in it. What they tell is history: files may have changed since."
)
CREDENTIAL_HEADERS = ("x-stack-key", "authorization", "x-api-key", "api-key")
"""Where a client may have put the key that says who it is."""
MAX_LISTED = 10
"""Conversations above a tree."""
HOST, PATH = "127.0.0.1", "/mcp"
ANY_PROJECT = "*"

Address = tuple[str, int]

Credentials = Mapping[str, str] | None
"""Headers with the key of the caller; None is whoever started the server."""


class Ask(Protocol):
    """Asks the management API. Raises ProxyError, whose message says what to do."""

    def __call__(
        self, method: str, path: str, body: object = None, *, credentials: Credentials = None, as_text: bool = False
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class Memory:
    """`ask` reaches the proxy or the store; `names_of` gives the names that agents may tell of a folder; `project` is
    the folder that is meant where none is named."""

    ask: Ask
    names_of: Callable[[str], tuple[str, ...]]
    project: str

    def place(self, project: str) -> tuple[str, list[tuple[str, str]]]:
        """A project in words, and as parameters of a question."""
        if project.strip() == ANY_PROJECT:
            return ALL_PROJECTS, []
        names = self.names_of(project.strip() or self.project)
        return names[0], [("project", name) for name in names]


Project = Annotated[
    str, Field(description='folder of the project; default: the one this server was started in; "*": all projects')
]
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
SAYS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)


def build_server(memory: Memory, version: str) -> MCPServer[Any]:
    """The server with its four tools."""
    server: MCPServer[Any] = MCPServer(NAME, instructions=INSTRUCTIONS, version=version, log_level="WARNING")

    def ask(context: Context, method: str, path: str, body: object = None, *, as_text: bool = False) -> Any:
        try:
            return memory.ask(method, path, body, credentials=_credentials(context), as_text=as_text)
        except ProxyError as error:
            raise ToolError(printable(_for_models(error))) from None

    @server.tool(annotations=READS, structured_output=False)
    def stack_search(
        context: Context,
        words: Annotated[str, Field(min_length=1, max_length=2_000, description="what the work was about")],
        project: Project = "",
        limit: Annotated[int, Field(ge=1, le=20)] = 5,
    ) -> str:
        """Finds finished work of earlier sessions by its words: what it came to, files, commands and how they ended."""
        place, parameters = memory.place(project)
        asked = urlencode([("q", words), ("limit", str(limit)), ("evidence", "true"), *parameters])
        return printable(search_reply(ask(context, "GET", f"/stack/search?{asked}"), words, place))

    @server.tool(annotations=READS, structured_output=False)
    def stack_recall(
        context: Context,
        ref: Annotated[str, Field(min_length=1, max_length=2_000, description="id, title or file path")],
        query: Annotated[str, Field(max_length=2_000, description="words in it")] = "",
        page: Annotated[str, Field(description="2 or 2-4")] = "",
        project: Project = "",
    ) -> str:
        """Reads what was said and done in a piece of work, unchanged, page by page."""
        _, parameters = memory.place(project)
        asked = urlencode([("ref", ref), ("q", query), ("page", page), *parameters])
        return printable(ask(context, "GET", f"/stack/recall?{asked}")["text"])

    @server.tool(annotations=READS, structured_output=False)
    def stack_tree(
        context: Context,
        conversation: Annotated[str, Field(description="its id; default: the newest of the project")] = "",
        project: Project = "",
        details: Annotated[bool, Field(description="with criteria, results and files")] = False,  # noqa: FBT002
    ) -> str:
        """Lists the conversations of a project, and draws the tree of work of the newest one, or of another."""
        place, parameters = memory.place(project)
        rows = []
        if not conversation:
            asked = urlencode([("limit", str(MAX_LISTED)), *parameters])
            rows = ask(context, "GET", f"/stack/conversations?{asked}")["conversations"]
            rows = sorted(rows, key=lambda row: -row["last_active"])
            if not rows:
                return tree_reply(rows, "", place)
        known = quote(conversation.strip() or rows[0]["id"], safe="")
        drawn = ask(
            context, "GET", f"/stack/conversations/{known}/tree?{urlencode({'details': details})}", as_text=True
        )
        return printable(drawn if conversation else tree_reply(rows, drawn, place))

    @server.tool(annotations=SAYS, structured_output=False)
    def stack_say(
        context: Context,
        conversation: Annotated[str, Field(min_length=1, description="its id, as stack_tree tells it")],
        text: Annotated[str, Field(min_length=1)],
        follow_up: Annotated[bool, Field(description="only when its model has nothing more to do")] = False,  # noqa: FBT002
    ) -> str:
        """Says something to the agent of another conversation, which is told with its next request."""
        body = {"text": text, "lane": "follow_up" if follow_up else "steer"}
        known = quote(conversation.strip(), safe="")
        return say_reply(ask(context, "POST", f"/stack/conversations/{known}/messages", body), follow_up=follow_up)

    return server


def _credentials(context: Context) -> Credentials:
    headers = context.headers
    if headers is None:
        return None
    return {name: value for name in CREDENTIAL_HEADERS if (value := headers.get(name, ""))}


def _for_models(error: ProxyError) -> str:
    """The API names its own routes where something is missing; a model has the tools."""
    told, names_route, _ = str(error).partition(" GET /stack/")
    if isinstance(error, NotFound) and names_route:
        return f"{told} stack_tree lists conversations and frames with their whole ids."
    return str(error)


def serve_stdio(memory: Memory, version: str) -> None:
    """Serves until stdin ends."""
    build_server(memory, version).run("stdio")


@dataclass(frozen=True, slots=True)
class OwnUserOnly:
    """Refuses programs of other users of this machine: what the server sees, they may not see through it."""

    app: ASGIApp
    is_own_user: Callable[[Address, Address], bool]
    """By both ends of a connection, the client's first."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self.is_own_user(tuple(scope["client"]), tuple(scope["server"])):
            words = "This server answers programs of the user alone who started it. Start one of your own."
            await PlainTextResponse(words, HTTPStatus.FORBIDDEN)(scope, receive, send)
            return
        await self.app(scope, receive, send)


def serve_http(
    memory: Memory, version: str, listener: socket.socket, is_own_user: Callable[[Address, Address], bool]
) -> None:
    """Serves on a socket of the loopback until a signal ends it. No session is kept: every request stands alone."""
    app = build_server(memory, version).streamable_http_app(
        host=HOST, streamable_http_path=PATH, json_response=True, stateless_http=True
    )
    guarded = OwnUserOnly(app, is_own_user)
    config = uvicorn.Config(guarded, log_level="warning", lifespan="on", timeout_graceful_shutdown=5)
    uvicorn.Server(config).run(sockets=[listener])
