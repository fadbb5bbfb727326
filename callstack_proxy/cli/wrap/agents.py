"""The agents: what each is set to, for its own process alone, so that it asks the proxy.

Each entry says where the fact comes from: "measured" is a run of the real client in `tests/clients/test_wrap.py`. A new
agent is one function, one value of `Agent` and its entry point. An agent that reads only files gets one in a temporary
folder; the user's files are never written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from callstack_proxy.cli.wrap import own_settings
from callstack_proxy.cli.wrap.own_settings import OwnProvider, Surroundings
from callstack_proxy.entry_points import load_all
from proxy.config import Config
from proxy.errors import InvalidConfiguration


@dataclass(frozen=True, slots=True)
class Launch:
    """What an agent's settings depend on. `origin` is the proxy's URL without a path; `folder` is a temporary one that
    may hold files; `settings` are the proxy's."""

    origin: str
    folder: Path
    around: Surroundings
    own: OwnProvider
    settings: Config

    @property
    def url(self) -> str:
        """The base URL for OpenAI's APIs: with `/v1`, unless the agent's own base URL has no version either."""
        upstream = self.settings.upstreams.get("default")
        is_bare = (
            upstream is not None and upstream.url == self.own.openai and not own_settings.has_version(upstream.url)
        )
        return self.origin if is_bare else f"{self.origin}/v1"


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """Variables for the agent, arguments before or behind the user's, and files by name for `Launch.folder`."""

    environ: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    last_arguments: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Agent:
    """`install` is what to type where the program is missing."""

    program: str
    install: str
    configure: Callable[[Launch], LaunchSettings]
    own_provider: Callable[[Surroundings], OwnProvider] = own_settings.from_environment


def any_command(launch: Launch) -> LaunchSettings:
    """The variables that the SDKs of both vendors and litellm read."""
    environ = dict.fromkeys(own_settings.OPENAI_VARIABLES, launch.url)
    return LaunchSettings(environ | dict.fromkeys(own_settings.ANTHROPIC_VARIABLES, launch.origin))


def claude(launch: Launch) -> LaunchSettings:
    """Measured. With a base URL that is not Anthropic's it sends every MCP tool with every request and takes the window
    to be 200,000 tokens, unless it is told otherwise. `--settings` is for a base URL in the user's settings.json, which
    wins over the environment."""
    base = {"ANTHROPIC_BASE_URL": launch.origin}
    environ = {**base, "ENABLE_TOOL_SEARCH": launch.around.environ.get("ENABLE_TOOL_SEARCH", "true")}
    if asks_anthropic(launch.settings):
        environ["_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL"] = "1"
    is_overruled = "ANTHROPIC_BASE_URL" in launch.own.entry
    return LaunchSettings(environ, ("--settings", json.dumps({"env": base})) if is_overruled else ())


def asks_anthropic(settings: Config) -> bool:
    """Whether all requests of the messages API go to Anthropic itself."""
    hosts = {urlsplit(each.url).hostname for each in settings.upstreams.values() if "messages" in each.speaks}
    return hosts == {urlsplit(own_settings.ANTHROPIC).hostname}


def codex(launch: Launch) -> LaunchSettings:
    """Measured. The provider keeps its name, or `codex resume` would not find the user's sessions."""
    key = f"model_providers.{launch.own.name}.base_url" if launch.own.entry else "openai_base_url"
    return LaunchSettings(arguments=("-c", f"{key}={json.dumps(launch.url)}"))


def opencode(launch: Launch) -> LaunchSettings:
    """Measured. The variable holds a configuration that wins over every file; what a user has there stays."""
    urls = {"openai": launch.url, "anthropic": f"{launch.origin}/v1"}
    if launch.own.name not in urls and launch.own.entry:
        urls[launch.own.name] = launch.url
    ours = {"provider": {name: {"options": {"baseURL": url}} for name, url in urls.items()}}
    theirs = own_settings.parse_json(launch.around.environ.get("OPENCODE_CONFIG_CONTENT", ""))
    return LaunchSettings({"OPENCODE_CONFIG_CONTENT": json.dumps(own_settings.merged(theirs, ours))})


def qwen(launch: Launch) -> LaunchSettings:
    """Measured. The usual variables, and for models with an address in settings.json a system-wide settings file of its
    own, which wins over the user's."""
    old, new = (launch.own.openai, launch.own.anthropic), (launch.url, launch.origin)
    providers = {
        kind: [_moved(entry, old, new) for entry in own_settings.entries_of(entries)]
        for kind, entries in launch.own.entry.items()
    }
    usual = any_command(launch)
    if not providers:
        return usual
    variable, file = "QWEN_CODE_SYSTEM_SETTINGS_PATH", "settings.json"
    system = own_settings.read_settings(launch.around.path(variable, "/etc/qwen-code/settings.json"))
    text = json.dumps(own_settings.merged(system, {"modelProviders": providers}))
    return LaunchSettings({**usual.environ, variable: str(launch.folder / file)}, files={file: text})


def _moved(entry: Mapping[str, Any], old: Sequence[str], new: Sequence[str]) -> Mapping[str, Any]:
    """The entry of a model, with the new address if it has one of the old."""
    url = entry.get("baseUrl")
    return {**entry, "baseUrl": new[old.index(url)]} if url in old else entry


def pi(launch: Launch) -> LaunchSettings:
    """Measured. Its settings are files alone, but an extension on the command line may change a provider's address."""
    urls = {"openai": launch.url, "anthropic": launch.origin}
    if launch.own.name not in urls and launch.own.entry:
        urls[launch.own.name] = launch.url
    lines = [
        f"  pi.registerProvider({json.dumps(name)}, {{ baseUrl: {json.dumps(url)} }});" for name, url in urls.items()
    ]
    text = "\n".join(("export default function (pi) {", *lines, "}", ""))
    return LaunchSettings(arguments=("--extension", str(launch.folder / "callstack.js")), files={"callstack.js": text})


def cline(launch: Launch) -> LaunchSettings:
    """Measured. A copy of the file of providers, with another address for the one in use. Sessions run in its own
    process: a hub in the background would outlive this one and take the address into sessions without us."""
    settings = own_settings.read_settings(own_settings.cline_providers(launch.around))
    name = launch.own.name
    if name not in settings.get("providers", {}):
        raise InvalidConfiguration(
            "cline: no provider is set up; set one up first with `cline auth`, with a key of your own"
        )
    url = f"{launch.origin}/v1" if name == "anthropic" else launch.url
    changed = {"providers": {name: {"settings": {"baseUrl": url}}}}
    file = "providers.json"
    return LaunchSettings(
        {"CLINE_PROVIDER_SETTINGS_PATH": str(launch.folder / file), "CLINE_SESSION_BACKEND_MODE": "local"},
        files={file: json.dumps(own_settings.merged(settings, changed), indent=2)},
    )


def cn(launch: Launch) -> LaunchSettings:
    """Measured. A copy of config.yaml, with another address for each model; the last `--config` counts."""
    path = own_settings.cn_config(launch.around)
    settings = own_settings.read_settings(path)
    models = own_settings.cn_models(settings)
    if not models:
        raise InvalidConfiguration(f"cn: there are no models in {path}; add one there first, with a key of your own")
    for model in models:
        model["apiBase"] = f"{launch.origin}/v1/" if model.get("provider") == "anthropic" else launch.url
    file = "config.yaml"
    return LaunchSettings(
        last_arguments=("--config", str(launch.folder / file)), files={file: yaml.safe_dump(settings, sort_keys=False)}
    )


def copilot(launch: Launch) -> LaunchSettings:
    """Measured, and `copilot help providers`. With GitHub's own models it asks an address that cannot be set."""
    is_anthropic = launch.around.environ.get("COPILOT_PROVIDER_TYPE") == "anthropic"
    configured = launch.settings.upstreams.get("default")
    if not launch.own.name and (configured is None or configured.url == launch.own.openai):
        raise InvalidConfiguration(
            "copilot: GitHub's own models cannot be asked through a proxy; for a provider of yours set "
            "COPILOT_PROVIDER_BASE_URL, COPILOT_PROVIDER_API_KEY and COPILOT_MODEL (`copilot help providers`)"
        )
    return LaunchSettings({"COPILOT_PROVIDER_BASE_URL": launch.origin if is_anthropic else launch.url})


def vibe(launch: Launch) -> LaunchSettings:
    """Measured, and its source: `VIBE_PROVIDERS` is merged with the files by the providers' names."""
    entry = {**launch.own.entry, "api_base": launch.url}
    return LaunchSettings({"VIBE_PROVIDERS": json.dumps([entry])})


def grok(launch: Launch) -> LaunchSettings:
    """Measured."""
    return LaunchSettings({"GROK_BASE_URL": launch.url})


def aider(launch: Launch) -> LaunchSettings:
    """Measured. Its `.env` and .aider.conf.yml win over the environment, and its last options over both."""
    options = ("--openai-api-base", launch.url, "--set-env", f"ANTHROPIC_API_BASE={launch.origin}")
    return LaunchSettings(any_command(launch).environ, last_arguments=options)


def goose(launch: Launch) -> LaunchSettings:
    """From its documentation: hosts without a path."""
    hosts = {"OPENAI_HOST": launch.origin, "ANTHROPIC_HOST": launch.origin}
    return LaunchSettings({**any_command(launch).environ, **hosts})


CLAUDE = Agent("claude", "npm install -g @anthropic-ai/claude-code", claude, own_settings.claude)
CODEX = Agent("codex", "npm install -g @openai/codex", codex, own_settings.codex)
OPENCODE = Agent("opencode", "npm install -g opencode-ai", opencode, own_settings.opencode)
QWEN = Agent("qwen", "npm install -g @qwen-code/qwen-code", qwen, own_settings.qwen)
PI = Agent("pi", "npm install -g @mariozechner/pi-coding-agent", pi, own_settings.pi)
CLINE = Agent("cline", "npm install -g cline", cline, own_settings.cline)
CN = Agent("cn", "npm install -g @continuedev/cli", cn, own_settings.cn)
COPILOT = Agent("copilot", "npm install -g @github/copilot", copilot, own_settings.copilot)
VIBE = Agent("vibe", "pip install mistral-vibe", vibe, own_settings.vibe)
GROK = Agent("grok", "npm install -g @vibe-kit/grok-cli", grok, own_settings.grok)
GPTME = Agent("gptme", "pip install gptme", any_command)  # measured
MINI = Agent("mini", "pip install mini-swe-agent", any_command, own_settings.mini)  # measured: litellm's variables
AIDER = Agent("aider", "pip install aider-chat", aider, own_settings.aider)
GOOSE = Agent("goose", "see its documentation", goose, own_settings.goose)


@cache
def known_agents() -> Mapping[str, Agent]:
    """Word -> agent: the entry points `callstack.agents`. Any other word is a command with the usual variables."""
    return load_all("callstack.agents", Agent)


def agent_named(word: str) -> Agent:
    """The agent that a word or the path of a program names."""
    agent = known_agents().get(Path(word).name)
    return replace(agent, program=word) if agent else Agent(word, "", any_command)
