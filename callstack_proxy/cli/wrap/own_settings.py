"""Where an agent's own settings point now: the environment first, then the files it reads. Files are never written, and
one that cannot be read counts as absent: the agent will say so itself.

The provider that an agent would ask without us becomes the proxy's upstream, unless the user names another one.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

OPENAI, ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com"
CHATGPT = "https://chatgpt.com/backend-api/codex"
"""What Codex asks with a ChatGPT login."""
XAI, MISTRAL = "https://api.x.ai/v1", "https://api.mistral.ai/v1"

OPENAI_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
ANTHROPIC_VARIABLES = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE")
_VERSION = re.compile(r"/v\d")
_JSON_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_ASSIGNMENT = re.compile(r"^(?:export )?([A-Za-z_]\w*)=(.*?)\s*$", re.MULTILINE)
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an agent would find without us."""

    environ: Mapping[str, str]
    home: Path
    folder: Path
    arguments: tuple[str, ...] = ()

    def path(self, variable: str, *default: str) -> Path:
        """The folder that a variable names, else the one below the home."""
        named = self.environ.get(variable)
        return Path(named) if named else self.home.joinpath(*default)

    def variable(self, names: tuple[str, ...]) -> str:
        """The first of these variables that is set, or empty."""
        return next((self.environ[name] for name in names if self.environ.get(name)), "")

    def with_files(self, *paths: Path, files_win: bool = False) -> Surroundings:
        """The same with the variables of `.env` files, the strongest file last."""
        read: dict[str, str] = {}
        for path in paths:
            read |= read_settings(path)
        environ = {**self.environ, **read} if files_win else {**read, **self.environ}
        return replace(self, environ=environ)

    def option(self, *names: str) -> str:
        """The value of the last of these options among the agent's arguments, or empty."""
        found = ""
        for at, argument in enumerate(self.arguments):
            name, equals, value = argument.partition("=")
            if name in names:
                found = value if equals else "".join(self.arguments[at + 1 : at + 2])
        return found


@dataclass(frozen=True, slots=True)
class OwnProvider:
    """What the agent asks without us. `openai` and `anthropic` are base URLs as its settings write them. `name` is the
    provider's name in those settings, `entry` what stands there."""

    openai: str = OPENAI
    anthropic: str = ANTHROPIC
    name: str = ""
    entry: Mapping[str, Any] = field(default_factory=dict)


def from_environment(around: Surroundings, openai: str = OPENAI) -> OwnProvider:
    """By the usual variables; `openai` is asked where they are not set."""
    return OwnProvider(around.variable(OPENAI_VARIABLES) or openai, around.variable(ANTHROPIC_VARIABLES) or ANTHROPIC)


def claude(around: Surroundings) -> OwnProvider:
    """The section `env` of the settings files, the user's and the project's, wins over the environment."""
    project = around.folder / ".claude"
    user = around.path("CLAUDE_CONFIG_DIR", ".claude")
    entry: dict[str, Any] = {}
    for path in (user / "settings.json", project / "settings.json", project / "settings.local.json"):
        entry |= _mapping(read_settings(path).get("env"))
    own = from_environment(around)
    return OwnProvider(own.openai, str(entry.get("ANTHROPIC_BASE_URL") or own.anthropic), "env", entry)


def codex(around: Surroundings) -> OwnProvider:
    """`model_provider` of config.toml. The built-in one asks another address with a ChatGPT login."""
    folder = around.path("CODEX_HOME", ".codex")
    settings = read_settings(folder / "config.toml")
    profile = around.option("-p", "--profile") or str(settings.get("profile", ""))
    settings |= _mapping(_mapping(settings.get("profiles")).get(profile)) | read_settings(
        folder / f"{profile}.config.toml"
    )
    name = str(settings.get("model_provider", "openai"))
    entry = _mapping(_mapping(settings.get("model_providers")).get(name))
    login = read_settings(folder / "auth.json")
    is_chatgpt = login.get("auth_mode") == "chatgpt" or bool(login.get("tokens") and not login.get("OPENAI_API_KEY"))
    built_in = CHATGPT if is_chatgpt and not around.environ.get("CODEX_API_KEY") else OPENAI
    own = str(entry.get("base_url") or settings.get("openai_base_url") or built_in)
    return OwnProvider(own, ANTHROPIC, name, entry)


def opencode(around: Surroundings) -> OwnProvider:
    """The provider of the model: `PROVIDER/MODEL`."""
    place = around.path("XDG_CONFIG_HOME", ".config") / "opencode"
    folders = [place, *reversed((around.folder, *around.folder.parents))]
    files = [folder / f"{name}.json{c}" for folder in folders for name in ("config", "opencode") for c in ("", "c")]
    named = around.environ.get("OPENCODE_CONFIG")
    settings: dict[str, Any] = {}
    for read in (*map(read_settings, files), *([read_settings(Path(named))] if named else ())):
        settings = merged(settings, read)
    settings = merged(settings, parse_json(around.environ.get("OPENCODE_CONFIG_CONTENT", "")))
    model = around.option("-m", "--model") or str(settings.get("model", ""))
    entry = _mapping(_mapping(settings.get("provider")).get(model.partition("/")[0]))
    return _named(around, model.partition("/")[0], entry, str(_mapping(entry.get("options")).get("baseURL") or ""))


def pi(around: Surroundings) -> OwnProvider:
    """The provider of the arguments, else of settings.json, with its address in models.json."""
    folder = around.path("PI_CODING_AGENT_DIR", ".pi", "agent")
    name = around.option("--provider") or around.option("--model").rpartition("/")[0]
    name = name or str(read_settings(folder / "settings.json").get("defaultProvider", ""))
    entry = _mapping(_mapping(read_settings(folder / "models.json").get("providers")).get(name))
    return _named(around, name, entry, str(entry.get("baseUrl") or ""))


def cline(around: Surroundings) -> OwnProvider:
    """The provider of the arguments, else the one used last, of providers.json."""
    settings = read_settings(cline_providers(around))
    name = around.option("-P", "--provider") or str(settings.get("lastUsedProvider", ""))
    entry = _mapping(_mapping(_mapping(settings.get("providers")).get(name)).get("settings"))
    return _named(around, name, entry, str(entry.get("baseUrl") or ""))


def cline_providers(around: Surroundings) -> Path:
    named = around.environ.get("CLINE_PROVIDER_SETTINGS_PATH")
    data = around.option("--data-dir") or around.environ.get("CLINE_DATA_DIR", "")
    home = Path(around.option("--config") or around.path("CLINE_DIR", ".cline"))
    return Path(named) if named else (Path(data) if data else home / "data") / "settings" / "providers.json"


def cn(around: Surroundings) -> OwnProvider:
    """The addresses of the first models of both kinds in config.yaml."""
    models = cn_models(read_settings(cn_config(around)))
    own = from_environment(around)
    openai = next((model for model in models if model.get("provider") != "anthropic" and model.get("apiBase")), {})
    anthropic = next((model for model in models if model.get("provider") == "anthropic" and model.get("apiBase")), {})
    return OwnProvider(
        str(openai.get("apiBase") or own.openai), _without_version(str(anthropic.get("apiBase") or own.anthropic))
    )


def cn_config(around: Surroundings) -> Path:
    named = around.option("--config")
    return Path(named) if named else around.path("CONTINUE_GLOBAL_DIR", ".continue") / "config.yaml"


def cn_models(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    return entries_of(settings.get("models"))


def qwen(around: Surroundings) -> OwnProvider:
    """The entry of the model in `modelProviders` of settings.json, else the usual variables, also of `.env` files."""
    places = (around.home, around.folder)
    settings: dict[str, Any] = {}
    for place in places:
        settings = merged(settings, read_settings(place / ".qwen" / "settings.json"))
    own = from_environment(around.with_files(*(place / name for place in places for name in (".env", ".qwen/.env"))))
    providers = _mapping(settings.get("modelProviders"))
    model = around.option("-m", "--model") or _mapping(settings.get("model")).get("name")
    found = {kind: _base_url_of(entries_of(providers.get(kind)), model) for kind in ("openai", "anthropic")}
    return OwnProvider(found["openai"] or own.openai, found["anthropic"] or own.anthropic, str(model), providers)


def _base_url_of(entries: Sequence[Mapping[str, Any]], model: object) -> str:
    return next((str(entry["baseUrl"]) for entry in entries if entry.get("id") == model and entry.get("baseUrl")), "")


def mini(around: Surroundings) -> OwnProvider:
    """The variables, also of its own `.env`."""
    return from_environment(
        around.with_files(around.path("MSWEA_GLOBAL_CONFIG_DIR", ".config", "mini-swe-agent") / ".env")
    )


def aider(around: Surroundings) -> OwnProvider:
    """Its option, its variable, .aider.conf.yml, else the usual variables; those of `.env` files win over ours."""
    places = [around.home, *reversed((around.folder, *around.folder.parents))]
    conf: dict[str, Any] = {}
    for place in places:
        conf |= read_settings(place / ".aider.conf.yml")
    named = around.option("--openai-api-base") or around.environ.get("AIDER_OPENAI_API_BASE")
    own = from_environment(around.with_files(*(place / ".env" for place in places), files_win=True))
    return OwnProvider(str(named or conf.get("openai-api-base") or own.openai), own.anthropic)


def copilot(around: Surroundings) -> OwnProvider:
    """The user's own provider; without one it asks GitHub, at an address that cannot be set."""
    named = around.environ.get("COPILOT_PROVIDER_BASE_URL", "")
    if around.environ.get("COPILOT_PROVIDER_TYPE") == "anthropic":
        return OwnProvider(OPENAI, named or ANTHROPIC, named)
    return OwnProvider(named or OPENAI, ANTHROPIC, named)


def vibe(around: Surroundings) -> OwnProvider:
    """The provider of the active model in config.toml; Mistral's own one is built in."""
    settings = read_settings(around.path("VIBE_HOME", ".vibe") / "config.toml")
    active = around.environ.get("VIBE_ACTIVE_MODEL") or settings.get("active_model", "")
    models = [model for model in settings.get("models", ()) if active in (model.get("alias"), model.get("name"))]
    name = str(models[0].get("provider")) if models else "mistral"
    built_in = {"name": "mistral", "api_base": MISTRAL, "api_key_env_var": "MISTRAL_API_KEY", "backend": "mistral"}
    entries = [entry for entry in (*settings.get("providers", ()), built_in) if entry.get("name") == name]
    entry = entries[0] if entries else built_in
    return OwnProvider(str(entry.get("api_base") or MISTRAL), ANTHROPIC, name, entry)


def grok(around: Surroundings) -> OwnProvider:
    """The variable, else the user's settings."""
    settings = read_settings(around.home / ".grok" / "user-settings.json")
    return OwnProvider(around.environ.get("GROK_BASE_URL") or str(settings.get("baseURL") or XAI))


def goose(around: Surroundings) -> OwnProvider:
    """`OPENAI_HOST` and `ANTHROPIC_HOST`, both without a path, of the environment or config.yaml."""
    stored = read_settings(around.path("XDG_CONFIG_HOME", ".config") / "goose" / "config.yaml")
    own = from_environment(around)
    openai, anthropic = (
        around.environ.get(name) or str(stored.get(name) or "") for name in ("OPENAI_HOST", "ANTHROPIC_HOST")
    )
    return OwnProvider(openai or own.openai, anthropic or own.anthropic)


def _named(around: Surroundings, name: str, entry: Mapping[str, Any], url: str) -> OwnProvider:
    """A provider with an address of its own, or one of the two vendors."""
    own = from_environment(around)
    if name == "anthropic":
        return OwnProvider(own.openai, _without_version(url) or own.anthropic, name, entry)
    return OwnProvider(url or own.openai, own.anthropic, name, entry)


# ---------------------------------------------------------------------------------------------------------------- files
def read_settings(path: Path) -> dict[str, Any]:
    """A settings file as a mapping; empty where there is none, or none that can be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    return READERS.get(path.suffix or path.name, parse_json)(text)


def parse_json(text: str) -> dict[str, Any]:
    """JSON, with the comments and trailing commas that some agents allow."""
    bare = _TRAILING_COMMA.sub(r"\1", _JSON_OR_COMMENT.sub(lambda found: found[1] or "", text))
    try:
        return _mapping(json.loads(bare))
    except ValueError:
        return {}


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def _yaml(text: str) -> dict[str, Any]:
    try:
        return _mapping(yaml.safe_load(text))
    except yaml.YAMLError:
        return {}


def _dotenv(text: str) -> dict[str, Any]:
    """`NAME=VALUE` lines, where `export` and quotes may stand."""
    return {name: value.strip("\"'") for name, value in _ASSIGNMENT.findall(text)}


READERS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    ".toml": _toml,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".env": _dotenv,
}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def entries_of(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two settings as one; `above` wins, mapping by mapping."""
    shared = [key for key in above if isinstance(above[key], dict) and isinstance(below.get(key), dict)]
    both = {key: merged(below[key], above[key]) for key in shared}
    return {**below, **above, **both}


def has_version(url: str) -> bool:
    """Whether the path of a base URL contains a version."""
    return _VERSION.search(urlsplit(url).path) is not None


def _without_version(url: str) -> str:
    """The address of Anthropic's messages as its own SDK takes it."""
    return url.rstrip("/").removesuffix("/v1")
