"""`tenancy: header`: users come through a proxy in front, which says who they are; nobody else can."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from callstack_proxy.management.issued_keys import limit_everybody, limit_user
from llm_test_provider import ScriptedProvider, Usage, says
from proxy.auth import UsageLimits
from proxy.config import Config
from tests.wire.proxied import TOKEN, ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import ReceivedAnswer, ask, body_of

HERE, ELSEWHERE = "127.0.0.0/8", "10.0.0.0/8, 192.168.7.1"
FORM_TOKEN = re.compile(rb'name="token" value="(\w+)"')


def behind(start: Starting, addresses: str = HERE, **front: str) -> ServedProxy:
    return start(tenancy="header", front={"addresses": addresses, **front})


def of(user: str, header: str = "x-forwarded-user") -> dict[str, str]:
    return {header: user}


def look(proxy: ServedProxy, path: str, headers: dict[str, str]) -> ReceivedAnswer:
    return ask(proxy.origin, None, method="GET", path=path, headers=headers)


def test_each_user_has_their_own_and_the_provider_is_not_told_who_it_is(
    start: Starting, provider: ScriptedProvider
) -> None:
    proxy = behind(start)
    provider.will(says("a"), says("b"))
    for user in ("ana@example.org", "bob"):
        assert ask(proxy.origin, body_of(), headers=of(user)).status == 200

    seen = [look(proxy, "/stack/conversations", of(user)).json["conversations"] for user in ("ana@example.org", "bob")]
    assert [len(rows) for rows in seen] == [1, 1]
    assert seen[0][0]["id"] != seen[1][0]["id"]
    assert [request.header("x-forwarded-user") for request in provider.received] == [None, None]


@pytest.mark.parametrize("headers", [of("ana"), {}], ids=["named", "unnamed"])
@pytest.mark.parametrize("path", ["/v1/models", "/stack/conversations", "/metrics"])
def test_a_name_that_did_not_come_from_the_front_counts_nothing(
    start: Starting, provider: ScriptedProvider, headers: dict[str, str], path: str
) -> None:
    proxy = behind(start, ELSEWHERE, admins="ana")

    told = look(proxy, path, headers)

    assert (told.status, told.told) == (401, "error; reason=unauthorized")
    assert "front.addresses" in told.json["error"]["message"]
    assert not provider.received


@pytest.mark.parametrize("name", ["", "ana bob", "an\xe4", "x" * 129])
def test_a_name_that_is_none_is_refused(start: Starting, provider: ScriptedProvider, name: str) -> None:
    told = ask(behind(start).origin, body_of(), headers=of(name))

    assert (told.status, provider.received) == (401, [])


def test_two_names_are_one_too_many(start: Starting, provider: ScriptedProvider) -> None:
    told = ask(behind(start).origin, body_of(), headers={"x-forwarded-user": "ana", "X-Forwarded-User": "root"})

    assert (told.status, provider.received) == (401, [])


def test_admins_see_everybody_and_what_each_used(start: Starting, provider: ScriptedProvider) -> None:
    proxy = behind(start, admins="root", header="X-Remote-User")
    provider.will(says("a"), says("b"))
    for user in ("ana", "bob"):
        ask(proxy.origin, body_of(), headers=of(user, "x-remote-user"))

    root = of("root", "x-remote-user")
    assert len(look(proxy, "/stack/conversations", root).json["conversations"]) == 2
    assert [row["name"] for row in look(proxy, "/stack/usage", root).json["rows"]] == ["ana", "bob"]
    assert [row["name"] for row in look(proxy, "/stack/usage", of("ana", "x-remote-user")).json["rows"]] == ["ana"]
    assert look(proxy, "/metrics", of("ana", "x-remote-user")).status == 403


def test_the_operators_token_opens_the_management_api_without_the_front(start: Starting) -> None:
    proxy = behind(start, ELSEWHERE)

    assert look(proxy, "/stack/conversations", {"x-stack-key": TOKEN}).status == 200


def test_the_console_knows_whom_the_front_has_signed_in(start: Starting) -> None:
    proxy = behind(start, admins="root")
    page = look(proxy, "/console/operation", of("root"))

    assert page.status == 200
    assert look(proxy, "/console/operation", of("ana")).status == 403
    assert look(proxy, "/console", {}).status == 401
    token = FORM_TOKEN.search(page.body)
    assert token
    assert issued(proxy, token[1], of("root")).status == 200
    assert issued(proxy, b"0" * 32, of("root")).status == 403
    assert issued(proxy, token[1], of("ana")).status == 403


def test_a_user_whose_budget_is_spent_is_refused_and_the_others_go_on(
    start: Starting, provider: ScriptedProvider
) -> None:
    proxy = behind(start)
    file = users_file(proxy)
    limit_everybody(file, UsageLimits(tokens=1_000))
    limit_user(file, "bob", UsageLimits(tokens=10_000_000))
    provider.will(*(says("ok", usage=Usage(5_000, 10)) for _ in range(4)))
    for user in ("ana", "bob", "eve"):
        assert ask(proxy.origin, body_of(), headers=of(user)).status == 200

    refused = ask(proxy.origin, body_of(), headers=of("ana"))

    assert (refused.status, refused.told) == (429, "error; reason=budget_spent")
    assert refused.json["error"]["code"] == "budget_spent"
    assert "budget of this user is spent: 5,010 of 1,000 tokens a month" in refused.json["error"]["message"]
    assert "callstack user limit" in refused.json["error"]["message"]
    assert ("x-should-retry", "false") in refused.headers
    assert ask(proxy.origin, body_of(), headers=of("bob")).status == 200
    assert len(provider.received) == 4

    limit_user(file, "ana", UsageLimits(tokens=20_000))
    provider.will(says("Raised."))
    assert ask(proxy.origin, body_of(), headers=of("ana")).status == 200
    assert ask(proxy.origin, body_of(), headers=of("eve")).status == 429


def test_a_user_may_ask_for_the_models_of_every_user_alone(start: Starting, provider: ScriptedProvider) -> None:
    proxy = behind(start)
    limit_everybody(users_file(proxy), UsageLimits(models=("small-*",)))

    refused = ask(proxy.origin, body_of(model="large"), headers=of("ana"))

    assert (refused.status, refused.json["error"]["code"]) == (403, "model_not_allowed")
    assert "This user may ask for small-*" in refused.json["error"]["message"]
    provider.will(says("ok"))
    assert ask(proxy.origin, body_of(model="small-7"), headers=of("ana")).status == 200
    assert len(provider.received) == 1


def test_limits_that_cannot_be_read_admit_nobody(start: Starting, provider: ScriptedProvider) -> None:
    proxy = behind(start)
    users_file(proxy).write_text("{")

    refused = ask(proxy.origin, body_of(), headers=of("ana"))

    assert (refused.status, refused.json["error"]["code"], provider.received) == (503, "budget_unknown", [])
    assert look(proxy, "/stack/conversations", of("ana")).status == 200


def test_what_users_may_and_what_they_used_is_told_to_admins_and_to_themselves(
    start: Starting, provider: ScriptedProvider
) -> None:
    front = {"addresses": HERE, "admins": "root"}
    proxy = start(tenancy="header", front=front, default_tariff__output=1.0)  # a budget in USD needs a price
    limit_everybody(users_file(proxy), UsageLimits(usd=20))
    limit_user(users_file(proxy), "zoe", UsageLimits(tokens=7))
    provider.will(*(says("ok", usage=Usage(5_000, 10)) for _ in range(3)))
    for user in ("ana", "bob", "bob"):
        ask(proxy.origin, body_of(), headers=of(user))

    told = look(proxy, "/stack/users", of("root")).json
    own = look(proxy, "/stack/users", of("bob")).json["users"]
    page = look(proxy, "/console/operation", of("root")).body.decode()

    assert told["everybody"] == {"usd": 20.0, "tokens": None, "per": "month", "models": [], "slash_commands": "on"}
    assert [(row["name"], row["own_limits"], row["used"]["tokens"]) for row in told["users"]] == [
        ("ana", False, 5_010),
        ("bob", False, 10_020),
        ("zoe", True, 0),
    ]
    assert own == [told["users"][1]]
    assert "Users from the proxy in front" in page
    assert "7 tokens a month" in page
    assert "every other user" in page


def users_file(proxy: ServedProxy) -> Path:
    return Config(data=proxy.data).users_path


def issued(proxy: ServedProxy, token: bytes, headers: dict[str, str]) -> ReceivedAnswer:
    """The answer to the form that issues a key."""
    kind = {"content-type": "application/x-www-form-urlencoded"}
    form = b"name=laptop&token=" + token
    return ask(proxy.origin, form, method="POST", path="/console/operation/keys", headers=kind | headers)
