"""Reads settings: flags > environment (`STACK_*`, then `HTTPS_PROXY` and the like) > `proxy.yaml` > defaults, each key
by itself.

An unknown key or a value that is not allowed raises InvalidConfiguration, with one line that names the key, its source,
the fault and what is allowed. Nothing else in the project reads the environment; it is an argument here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proxy.config import Budgets, Config
from proxy.errors import InvalidConfiguration

ConfigPath = tuple[str, ...]

_KEYS_WITH_OPTION = frozenset({"upstream", "host", "port", "data", "mode", "log_format"})
"""Keys with a command line option of the same name."""

_NETWORK_VARIABLES = {
    "https_proxy": ("HTTPS_PROXY", "ALL_PROXY"),
    "http_proxy": ("HTTP_PROXY", "ALL_PROXY"),
    "no_proxy": ("NO_PROXY",),
}
_CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")

_SHORT_KEYS: dict[ConfigPath, ConfigPath] = {
    ("upstream",): ("upstreams", "default", "url"),
    ("retention",): ("retention_days",),
    ("autonomy", "level"): ("autonomy",),
}
"""Alternative names of keys."""


@dataclass(frozen=True, slots=True)
class ConfiguredValue:
    """One configured value; `source` is where the user finds it."""

    path: ConfigPath
    value: object
    source: str


def load_config(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    *,
    asks_upstreams: bool = True,
) -> Config:
    """The configuration from `flags` (dotted key -> value; None means not given), `environ` and `file`. Callers that
    send no requests upstream can leave `env:NAME` keys unresolved. Raises InvalidConfiguration with one line per
    fault."""
    environ = environ or {}
    settings = [*_from_file(file), *_from_network_variables(environ), *_from_environ(environ)]
    settings += _from_flags(flags or {})
    tree: dict[str, Any] = {}
    sources: dict[ConfigPath, str] = {}
    for setting in settings:
        _insert_value(tree, setting)
        sources[setting.path] = setting.source
    for setting in _from_rules_file(tree.get("outputs"), file):
        _insert_value(tree, setting)
        sources[setting.path] = setting.source
    if asks_upstreams:
        _resolve_keys(tree, environ)
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        lines = [_explain_error(detail, sources) for detail in error.errors()]
        raise InvalidConfiguration("\n".join(lines)) from None
    return config.with_sources({".".join(path): source for path, source in sources.items()})


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Flags from `--set` values such as `["wake_at_tokens=0"]`."""
    flags = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise InvalidConfiguration(f"--set {assignment}: write it as key=value")
        flags[key.strip()] = value
    return flags


def known_keys() -> list[str]:
    """Every fixed dotted key in the order of the model; named upstreams and models appear as `upstreams.NAME.url`."""
    return [".".join(path) for path in _leaf_paths(Config)]


def _leaf_paths(model: type[BaseModel], above: ConfigPath = ()) -> Iterator[ConfigPath]:
    for name, field in model.model_fields.items():
        inner = _dict_value_model(field.annotation)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _leaf_paths(field.annotation, (*above, name))
        elif inner is not None:
            yield from _leaf_paths(inner, (*above, name, "NAME"))
        else:
            yield (*above, name)


def _dict_value_model(annotation: object) -> type[BaseModel] | None:
    """The model in an annotation `dict[str, Model]`, if it is one."""
    for inner in get_args(annotation)[1:2]:
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            return inner
    return None


class _YamlLoader(yaml.SafeLoader):
    """YAML in which `off` is a word (YAML 1.1: false) and a duplicate key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - the library's signature
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be one word", key_node.start_mark)
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key_node.value!r} is written twice", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_YamlLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


def _from_file(file: Path | None) -> list[ConfiguredValue]:
    if file is None:
        return []
    try:
        document = yaml.load(file.read_text(encoding="utf-8"), Loader=_YamlLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise InvalidConfiguration(f"{file}: cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InvalidConfiguration(f"{file}{line}: is not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(f"{file}: is not valid YAML: {error}") from None
    if document is None:
        return []
    if not isinstance(document, dict):
        raise InvalidConfiguration(f"{file}: must be a mapping of keys to values")
    # The short form goes first, so that a wrong `upstreams:` beside it is still seen.
    try:
        leaves = sorted(_flatten(document), key=lambda leaf: leaf[0] != ("upstream",))
    except RecursionError:
        raise InvalidConfiguration(f"{file}: a part of it refers to itself") from None
    return [ConfiguredValue(_SHORT_KEYS.get(path, path), value, str(file)) for path, value in leaves]


def _from_rules_file(outputs: object, file: Path | None) -> list[ConfiguredValue]:
    """The content of `outputs` if it is the path of a file, relative to `file` or to the working directory."""
    if not isinstance(outputs, str) or not outputs.strip():
        return []
    named = Path(outputs.strip()).expanduser()
    found = _from_file(file.parent / named if file is not None else named)
    return [
        ConfiguredValue(("outputs",), {}, outputs),
        *(ConfiguredValue(("outputs", *s.path), s.value, s.source) for s in found),
    ]


def _flatten(document: Mapping[Any, Any], above: ConfigPath = ()) -> Iterator[tuple[ConfigPath, object]]:
    for key, value in document.items():
        path = (*above, str(key))
        if isinstance(value, dict) and value:
            yield from _flatten(value, path)
        else:
            yield path, value


HASKELL_STACK_VARIABLES = frozenset({"STACK_ROOT", "STACK_YAML", "STACK_WORK", "STACK_GLOBAL_CONFIG", "STACK_XDG"})
"""Variables of another program, the build tool `stack` (its user guide, "Environment variables")."""


def _from_environ(environ: Mapping[str, str]) -> list[ConfiguredValue]:
    known = {"STACK_" + "_".join(path).upper(): path for path in _leaf_paths(Config) if "NAME" not in path}
    known |= {f"STACK_TOKEN_BUDGET_{name.upper()}": ("budgets", name) for name in Budgets.model_fields}
    known |= {"STACK_" + "_".join(short).upper(): path for short, path in _SHORT_KEYS.items()}
    known |= {"STACK_OUTPUTS": ("outputs",)}
    settings = []
    for name, value in sorted(environ.items()):
        if not name.startswith("STACK_"):
            continue
        if name in HASKELL_STACK_VARIABLES:
            continue
        if name in known:
            settings.append(ConfiguredValue(known[name], value, name))
        elif "__" in name:  # STACK_UPSTREAMS__MAIN__URL: names are free, so the border has to be visible
            path = tuple(name.removeprefix("STACK_").lower().split("__"))
            settings.append(ConfiguredValue(path, value, name))
        else:
            raise InvalidConfiguration(f"{name}: unknown environment variable{_suggest_key(name, known)}")
    return settings


def _from_network_variables(environ: Mapping[str, str]) -> list[ConfiguredValue]:
    """Variables by which all programs learn of the network, in small letters or capitals."""
    found = []
    for key, names in _NETWORK_VARIABLES.items():
        spelled = (spelling for name in names for spelling in (name.lower(), name))
        name = next((spelling for spelling in spelled if environ.get(spelling, "").strip()), None)
        if name is not None:
            found.append(ConfiguredValue(("network", key), environ[name].replace(" ", ","), name))
    files = {name: environ[name] for name in _CERTIFICATE_VARIABLES if environ.get(name, "").strip()}
    if files:
        found.append(ConfiguredValue(("network", "ca_files"), [*dict.fromkeys(files.values())], ", ".join(files)))
    return found


def _from_flags(flags: Mapping[str, object]) -> list[ConfiguredValue]:
    written = {key: f"--{key.replace('_', '-')}" if key in _KEYS_WITH_OPTION else f"--set {key}" for key in flags}
    return [ConfiguredValue(_parse_key(k), value, written[k]) for k, value in flags.items() if value is not None]


def _parse_key(key: str) -> ConfigPath:
    """Path of a dotted key. Model names contain dots: `models.gpt-4.1.mode`."""
    parts = tuple(key.split("."))
    if parts in _SHORT_KEYS:
        return _SHORT_KEYS[parts]
    model = _dict_value_model(Config.model_fields[parts[0]].annotation) if parts[0] in Config.model_fields else None
    if model is None:
        return parts
    for place in range(2, len(parts)):
        if parts[place] in model.model_fields:
            rest = [".".join(parts[place + 1 :])] if parts[place + 1 :] else []
            return (parts[0], ".".join(parts[1:place]), parts[place], *rest)
    return parts


def _insert_value(tree: dict[str, Any], setting: ConfiguredValue) -> None:
    *above, leaf = setting.path
    branch = tree
    for name in above:
        inner = branch.get(name)
        if not isinstance(inner, dict):
            inner = branch[name] = {}
        branch = inner
    if setting.value == {} and isinstance(branch.get(leaf), dict):
        return
    branch[leaf] = setting.value


def _resolve_keys(tree: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Replace `key: env:NAME` by the secret; an unset variable is an error, because requests would leave without a
    key."""
    upstreams = tree.get("upstreams")
    for name, upstream in upstreams.items() if isinstance(upstreams, dict) else ():
        key = upstream.get("key") if isinstance(upstream, dict) else None
        if isinstance(key, str) and key.startswith("env:"):
            variable = key.removeprefix("env:")
            if not environ.get(variable):
                raise InvalidConfiguration(f"upstreams.{name}.key: the environment variable {variable} is not set")
            upstream["key"] = environ[variable]


# Explaining: what pydantic found, in words that name the key.


def _explain_error(detail: ErrorDetails, sources: Mapping[ConfigPath, str]) -> str:
    path = tuple(str(part) for part in detail["loc"] if not isinstance(part, int))
    key = ".".join(path)
    source = next((where for written, where in sources.items() if written[: len(path)] == path), "")
    origin = f" (from {source})" if source and path else ""
    if detail["type"] == "extra_forbidden":
        # `upstream` is known as an address alone; as a section it is not.
        return (
            f"{key}: unknown key{_suggest_key(key, [known for known in _candidate_keys(path) if known != key])}{origin}"
        )
    if detail["type"] == "missing":
        return f"{key}: is required"
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "string_pattern_mismatch" and path == ("child_view",):
        message = "allowed: fork, isolate, auto, last:K"
    if detail["type"] in {"model_type", "dict_type"}:
        message = "must hold keys of its own, indented below it"
    if not path:
        return message
    # A value that may hold a secret is never shown: a password stands in a URL as easily as in a key.
    secret = (
        path[-1] in {"key", "url", "proxy", "https_proxy", "http_proxy"}
        or "options" in path
        or isinstance(detail["input"], dict)
    )
    shown = "" if secret else f"{detail['input']!r}: "
    if detail["type"] == "literal_error":
        choices = re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))
        near = difflib.get_close_matches(str(detail["input"]), choices, n=1)
        message = f"did you mean {near[0]}? allowed: {', '.join(choices)}" if near else f"allowed: {', '.join(choices)}"
    return f"{key}: {shown}{message[:1].lower()}{message[1:]}{origin}"


def _candidate_keys(path: ConfigPath) -> list[str]:
    """Dotted keys that could be meant: known ones, with the user's own names of upstreams and models."""
    named = [key.replace("NAME", path[1]) if len(path) > 1 else key for key in known_keys()]
    return [*dict.fromkeys([*named, *(key.split(".")[0] for key in known_keys()), "upstream"])]


def _suggest_key(word: str, known: Iterable[str]) -> str:
    """The nearest known word, or if none is near, all words at the same level."""
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]}?"
    level = word.count(".")
    beside = [
        other for other in known if other.count(".") == level and other.rpartition(".")[0] == word.rpartition(".")[0]
    ]
    return f"; allowed: {', '.join(sorted(set(beside or known)))}"
