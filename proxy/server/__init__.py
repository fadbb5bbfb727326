"""The ASGI application, the guard in front of it, and the server that runs it on a socket."""

from proxy.server.app import build_app
from proxy.server.runner import ServerHooks, base_url, bind, serve
from proxy.server.running_app import Doors, Mounted, RenderMetrics, RunningApp
