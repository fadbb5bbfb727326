"""The commands `config`, `key` and `user`: the section `subagent`, which may change while the proxy runs; client keys
that this proxy issues, and users whom a proxy in front names, with their limits and what they used. A running proxy
uses a change at once, and it stays after a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, get_args
from urllib.parse import urlencode

import typer
from pydantic import ValidationError

from callstack_proxy.cli.api_client import call
from callstack_proxy.cli.context import AsCsv, AsJson, ConfigFile, DataDirectory, one_of, settings_at
from callstack_proxy.cli.output import (
    align_columns,
    format_dollars,
    one_line,
    print_csv,
    print_json,
    print_line,
    print_note,
)
from callstack_proxy.config_sources import parse_assignments
from callstack_proxy.management.issued_keys import (
    issue_key,
    limit_everybody,
    limit_key,
    limit_user,
    limits_of_key,
    reset_user,
    revoke_key,
)
from callstack_proxy.management.views import API_NAMES, TrackingBody, TrackingView, tracking_view
from proxy.auth import NO_LIMITS, BudgetPeriod, IssuedKey, UsageLimits, list_keys, read_user_limits
from proxy.config import Config, Mode, SubagentSettings
from proxy.config.runtime import SETTABLE_KEYS, SUBAGENT_SECTION, LiveSettings
from proxy.errors import InvalidConfiguration
from proxy.store import Store

CONFIG_PATH = "/stack/config"


def config(
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="A key and its value, subagent.min_duration=5000; repeatable.")
    ] = None,
    reset: Annotated[
        list[str] | None, typer.Option("--reset", help="A key that the configuration is to say again; repeatable.")
    ] = None,
    add_pattern: Annotated[str, typer.Option(help="One more pattern of subagents' titles.")] = "",
    remove_pattern: Annotated[str, typer.Option(help="One that counts no more.")] = "",
    file: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """How subagents are tracked; changes it for everybody, at once and after a restart."""
    wanted = {API_NAMES[key]: value for key, value in _parse_changes(assignments or (), reset or ()).items()}
    wanted |= {"addPattern": add_pattern} if add_pattern else {}
    wanted |= {"removePattern": remove_pattern} if remove_pattern else {}
    try:
        TrackingBody.model_validate(wanted)  # the API would name a fault by its place in the body
    except ValidationError as error:
        raise InvalidConfiguration("\n".join(f"{each['loc'][0]}: {each['msg']}" for each in error.errors())) from None
    settings = settings_at(file, data)
    if wanted:
        view: TrackingView = call(settings, "PATCH", CONFIG_PATH, wanted)
    else:
        view = call(settings, "GET", CONFIG_PATH, read=partial(_read_tracking, settings))
    if as_json:
        print_json(view)
        return
    for line in config_text(view):
        print_line(line)


async def _read_tracking(settings: Config, store: Store) -> TrackingView:
    live = LiveSettings(settings.subagent, store)
    await live.refresh()
    return tracking_view(live)


def _parse_changes(assignments: Sequence[str], reset: Sequence[str]) -> dict[str, Any]:
    assigned = {_settable_key(name): text for name, text in parse_assignments(assignments).items()}
    try:
        settings = SubagentSettings.model_validate(assigned)
    except ValidationError as error:
        faults = (f"{SUBAGENT_SECTION}.{each['loc'][0]}: {each['msg']}" for each in error.errors())
        raise InvalidConfiguration("\n".join(faults)) from None
    values = settings.model_dump(include=set(assigned), mode="json")
    return {**values, **{_settable_key(name): None for name in reset}}


def _settable_key(name: str) -> str:
    key = name.removeprefix(f"{SUBAGENT_SECTION}.")
    if key not in SETTABLE_KEYS:
        known = ", ".join(f"{SUBAGENT_SECTION}.{each}" for each in SETTABLE_KEYS)
        raise InvalidConfiguration(
            f"{name}: cannot be set while the proxy runs; these can: {known}. All else is set in the configuration"
        )
    return key


def config_text(view: TrackingView) -> Iterator[str]:
    """A line for each key: its value, and whether it was set while the proxy ran."""
    values: Mapping[str, Any] = {**view}
    cells = [
        (
            f"{SUBAGENT_SECTION}.{key}",
            _value_text(values[API_NAMES[key]]),
            "set" if API_NAMES[key] in view["changed"] else "",
        )
        for key in SETTABLE_KEYS
    ]
    yield from align_columns([("key", "value", ""), *cells])


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return one_line(" ".join(map(repr, value)) if isinstance(value, list) else str(value)) or "none"


key = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="The client keys this proxy issues."
)
Name = Annotated[str, typer.Argument(help="Whose key it is.")]


USD_OPTION = Annotated[float | None, typer.Option(help="What its requests may cost in the period.", min=0.0)]
TOKENS_OPTION = Annotated[int | None, typer.Option(help="Tokens, input and output, in the period.", min=1)]
PER_OPTION = Annotated[str, typer.Option(help="Period of the budgets, in UTC: day or month (the default).")]
MODEL_OPTION = Annotated[
    list[str] | None, typer.Option("--model", help="May ask for: a name, or 'gpt-5*'; repeatable.")
]
SLASH_OPTION = Annotated[str, typer.Option(help="off: no message is a command to the proxy; on: as usual.")]


@key.command()
def add(
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="May see all tenants on /stack.")] = False,
    mode: Annotated[str, typer.Option(help="off, shadow, passive or active; default: as configured.")] = "",
    usd: USD_OPTION = None,
    tokens: TOKENS_OPTION = None,
    per: PER_OPTION = "",
    models: MODEL_OPTION = None,
    slash_commands: SLASH_OPTION = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """Issue a key. It is shown this once; only its hash is kept."""
    limits = _change_limits(NO_LIMITS, usd, tokens, per, models, slash_commands)
    settings = settings_at(config, data)
    print_line(issue_key(settings.keys_path, name, admin=admin, mode=_parse_mode(mode), limits=limits))
    print_note("it is shown this once. A client sends it as its API key, or beside its own in x-stack-key")
    if settings.tenancy != "key":
        print_note("a proxy asks for keys where it was started with --set tenancy=key")


@key.command()
def limit(
    name: Name,
    usd: USD_OPTION = None,
    tokens: TOKENS_OPTION = None,
    per: PER_OPTION = "",
    models: MODEL_OPTION = None,
    slash_commands: SLASH_OPTION = "",
    clear: Annotated[bool, typer.Option("--clear", help="Forget the limits it has first.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """Change what a key may use: what is named here; other limits stay. Without options: say what it may."""
    file = settings_at(config, data).keys_path
    before = limits_of_key(file, name)
    if before is None:
        raise InvalidConfiguration(f"nobody is called {name!r}; `callstack key list` shows who there is")
    limits = _change_limits(NO_LIMITS if clear else before, usd, tokens, per, models, slash_commands)
    limit_key(file, name, limits)
    print_line(f"{name} may use: {limits.describe()}")


def _change_limits(
    before: UsageLimits,
    usd: float | None,
    tokens: int | None,
    per: str,
    models: Sequence[str] | None,
    slash_commands: str,
) -> UsageLimits:
    """`before` with what is named; None and empty values are not."""
    named = {"usd": usd, "tokens": tokens, "per": per or None, "models": tuple(models) if models else None}
    named |= {"slash_commands": slash_commands or None}
    return _parse_limits(before.model_dump() | {limit: value for limit, value in named.items() if value is not None})


def _parse_limits(named: Mapping[str, object]) -> UsageLimits:
    try:
        return UsageLimits.model_validate(named)
    except ValidationError as error:
        detail = error.errors()[0]
        raise typer.BadParameter(f"--{str(detail['loc'][0]).replace('_', '-')}: {detail['msg']}") from None


def _parse_mode(word: str) -> Mode | None:
    match word:
        case "off" | "shadow" | "passive" | "active":
            return word
        case "":
            return None
        case _:
            raise typer.BadParameter(f"{word!r}; allowed: off, shadow, passive, active")


@key.command("list")
def list_(config: ConfigFile = None, data: DataDirectory = None, as_json: AsJson = False) -> None:
    """Whose keys there are, and what they used this month or day."""
    settings = settings_at(config, data)
    issued = list_keys(settings.keys_path)
    rows = _key_rows(settings, issued)
    if as_json:
        print_json(rows)
        return
    if not issued:
        print_line("There is no key yet. Issue one with: callstack key add NAME")
        return
    costs = [row["used"]["cost"] for row in rows if row["used"]]
    for line in align_columns(
        [("name", "issued", "used", "may use", ""), *(_key_cells(row, costs) for row in rows)], flexible=3
    ):
        print_line(line)


def _key_rows(settings: Config, issued: Sequence[IssuedKey]) -> list[dict[str, Any]]:
    """As the API has them; without `used` where no proxy has run yet."""
    if not issued:
        return []
    try:
        rows: list[dict[str, Any]] = call(settings, "GET", "/stack/keys?limit=1000")["keys"]
    except InvalidConfiguration:
        rows = [{**key.model_dump(mode="json", exclude={"sha256"}), "used": None} for key in issued]
    return rows


def _key_cells(row: Mapping[str, Any], beside: Sequence[float]) -> tuple[str, ...]:
    may = UsageLimits.model_validate(row["limits"]).describe()
    marks = [f"mode {row['mode']}"] * bool(row["mode"]) + ["admin"] * row["admin"]
    return row["name"], row["created"][:10], _spent_text(row["used"], beside), may, ", ".join(marks)


def _spent_text(used: Mapping[str, Any] | None, beside: Sequence[float]) -> str:
    return f"{format_dollars(used['cost'], beside)}, {used['tokens']:,} tokens" if used and used["requests"] else "-"


@key.command()
def usage(
    by: Annotated[str, typer.Option(help="A row for each day or month: day or month (UTC).")] = "month",
    since: Annotated[str, typer.Option(help="Only from this day on: 2026-11-01.")] = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """What each key or user used, and what the proxy saved them. Stays when conversations are forgotten.

    Money is at list prices, also that of requests which a plan paid for.
    """
    settings = settings_at(config, data)
    one_of(get_args(BudgetPeriod), by, param_hint="--by")
    view = call(settings, "GET", f"/stack/usage?{urlencode({'by': by, 'since': since})}")
    if as_json:
        print_json(view)
    elif as_csv:
        print_csv(USAGE_COLUMNS, view["rows"])
    elif view["rows"]:
        heading = (by, "who", "requests", "tokens", "cost", "saved", "")
        costs = [amount for row in view["rows"] for amount in (row["cost"], row["saved"])]
        cells = [_usage_cells(row, costs) for row in view["rows"]]
        for line in align_columns([heading, *cells], right=(2, 3, 4, 5, 6)):
            print_line(line)
    else:
        why = " Without client keys (tenancy single), see `callstack report`." if settings.tenancy == "single" else ""
        print_line(f"No use by a client key or a user was counted yet.{why}")


USAGE_COLUMNS = ("period", "tenant", "name", "requests", "tokens", "cost", "cost_untouched", "saved", "saved_percent")


def _usage_cells(row: Mapping[str, Any], beside: Sequence[float]) -> tuple[str, ...]:
    percent = row["saved_percent"]
    return (
        row["period"],
        row["name"],
        f"{row['requests']:,}",
        f"{row['tokens']:,}",
        format_dollars(row["cost"], beside),
        format_dollars(row["saved"], beside),
        "" if percent is None else f"{percent:.0f} %",
    )


@key.command()
def revoke(name: Name, config: ConfigFile = None, data: DataDirectory = None) -> None:
    """Take a key away; it ends at once."""
    if not revoke_key(settings_at(config, data).keys_path, name):
        raise InvalidConfiguration(f"nobody is called {name!r}; `callstack key list` shows who there is")
    print_line(f"revoked {name}")


user = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Limits of users from a proxy in front."
)
EVERYBODY = "every other user"


@user.command("limit")
def limit_users(
    name: Annotated[str, typer.Argument(help="Whose; left out: of every user without limits of their own.")] = "",
    usd: USD_OPTION = None,
    tokens: TOKENS_OPTION = None,
    per: PER_OPTION = "",
    models: MODEL_OPTION = None,
    slash_commands: SLASH_OPTION = "",
    clear: Annotated[bool, typer.Option("--clear", help="Forget the limits that hold now first.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """Change what a user may use: what is named here; other limits stay. Without options: say what they may."""
    settings = settings_at(config, data)
    before = read_user_limits(settings.users_path)
    holds = before.of(name) if name else before.everybody
    limits = _change_limits(NO_LIMITS if clear else holds, usd, tokens, per, models, slash_commands)
    if clear or per or models or slash_commands or usd is not None or tokens is not None:
        if name:
            limit_user(settings.users_path, name, limits)
        else:
            limit_everybody(settings.users_path, limits)
    print_line(f"{name or EVERYBODY} may use: {limits.describe()}")
    if settings.tenancy != "header":
        print_note("a proxy knows users where it was started with --set tenancy=header")


@user.command("list")
def list_users(config: ConfigFile = None, data: DataDirectory = None, as_json: AsJson = False) -> None:
    """What users may use, and what they used this month or day."""
    settings = settings_at(config, data)
    view = _users_view(settings)
    if as_json:
        print_json(view)
        return
    costs = [row["used"]["cost"] for row in view["users"] if row["used"]]
    everybody = (EVERYBODY, "-", UsageLimits.model_validate(view["everybody"]).describe())
    users = [
        (one_line(row["name"]), _spent_text(row["used"], costs), UsageLimits.model_validate(row["limits"]).describe())
        for row in view["users"]
    ]
    for line in align_columns([("name", "used", "may use"), *users, everybody], flexible=2):
        print_line(line)


def _users_view(settings: Config) -> dict[str, Any]:
    """As the API has it; without `used` where no proxy has run yet."""
    try:
        view: dict[str, Any] = call(settings, "GET", "/stack/users?limit=1000")
    except InvalidConfiguration:
        limits = read_user_limits(settings.users_path)
        rows = [
            {"name": name, "own_limits": True, "limits": own.model_dump(mode="json"), "used": None}
            for name, own in limits.users.items()
        ]
        view = {"everybody": limits.everybody.model_dump(mode="json"), "users": rows}
    return view


@user.command()
def reset(
    name: Annotated[str, typer.Argument(help="Whose own limits.")],
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """Forget a user's own limits: those of every other user hold again."""
    file = settings_at(config, data).users_path
    if not reset_user(file, name):
        raise InvalidConfiguration(f"{name!r} has no limits of their own; `callstack user list` shows who has")
    print_line(f"{name} may use: {read_user_limits(file).everybody.describe()}")


user.command("usage")(usage)
