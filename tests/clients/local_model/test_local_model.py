"""A real local model: llama.cpp's server with SmolLM2, under chat templates from lenient to strict, in every mode."""

import json
import urllib.request
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.clients import installing
from tests.clients.conftest import skip_if_absent
from tests.clients.local_model.local_client import (
    FILE,
    Heard,
    LocalClient,
    answer,
    ask,
    files_were_read,
    reads,
    result,
    system,
    user,
)
from tests.clients.local_model.model_server import FOLDER, PACKAGES, Exchange, Json, ModelServer, serve_model
from tests.clients.serving import AWAKE, Served, serve

MODES = ("off", "shadow", "passive", "active")
OWN, CALLS, STRICT = "", "calls.jinja", "strict.jinja"
REQUESTS: dict[str, list[Json]] = {
    "one question": [system(), user("Hi.")],
    "a further question": [system(), user("Hi."), answer("Yes?"), user("Go on.")],
    "text in parts": [system(), {"role": "user", "content": [{"type": "text", "text": "Hi."}]}],
    "two calls": [system(), user("Hi."), reads(1, 2), result(1, "one"), result(2, "two")],
    "two questions in a row": [system(), user("Hi."), user("There?")],
    "a question behind results": [system(), user("Hi."), reads(1), result(1, "one"), user("Go on.")],
    "an answer first": [system(), answer("Hello."), user("Hi.")],
    "a late system text": [system(), user("Hi."), answer("Yes?"), system("Be loud."), user("Go on.")],
}
REFUSED = {
    OWN: set[str](),
    CALLS: {"two questions in a row", "a question behind results", "an answer first", "a late system text"},
    STRICT: {
        "two calls",
        "two questions in a row",
        "a question behind results",
        "an answer first",
        "a late system text",
    },
}
"""What each chat template refuses, asked directly; the model's own refuses nothing."""
FOLDS = (*AWAKE, "default_tariff.read=1", "view=minimal")
"""Settings under which it pays to fold a few hundred tokens: one from the cache costs as much as any other."""
OPENING_OF_AN_ANSWER = 3
"""Tokens at the end of a prompt that may be others once an answer follows: `<|im_start|>`, the role, a line feed."""
SAID = "Mind the second invoice."


@pytest.fixture(scope="module", params=[OWN, CALLS, STRICT], ids=["own", "calls", "strict"])
def server(
    request: pytest.FixtureRequest, kept: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModelServer]:
    environment = skip_if_absent(installing.pip, kept / FOLDER, PACKAGES)
    with serve_model(environment, request.param, tmp_path_factory.mktemp("model") / "server.log") as running:
        yield running


@pytest.mark.rows("X-27", "X-28")
@pytest.mark.parametrize("server", [CALLS, STRICT], indirect=True, ids=["calls", "strict"])
def test_what_the_template_takes_and_refuses_is_the_same_through_us(server: ModelServer, tmp_path: Path) -> None:
    direct = {name: ask(f"{server.url}/v1", messages, max_tokens=1) for name, messages in REQUESTS.items()}
    assert {name for name, heard in direct.items() if heard.status != 200} == REFUSED[server.template]

    for mode in MODES:
        with serve(server.url, tmp_path / mode, *AWAKE, f"mode={mode}") as proxy:
            through = {name: ask(proxy.url, messages, max_tokens=1) for name, messages in REQUESTS.items()}
        for name, heard in through.items():
            assert (mode, name, heard.status) == (mode, name, direct[name].status)
            assert heard.status == 200 or heard.raw == direct[name].raw


@pytest.mark.rows("X-28", "S4-60")
@pytest.mark.parametrize("mode", MODES)
def test_a_session_of_several_turns_finds_its_prompt_in_the_cache(
    server: ModelServer, tmp_path: Path, mode: str
) -> None:
    """No try is refused, every answer arrives, and a prompt goes on from the one before unless something was folded."""
    takes_calls = "two calls" not in REFUSED[server.template]
    began = len(server.exchanges)

    with serve(server.url, tmp_path / "data", *FOLDS, f"mode={mode}") as proxy:
        client = LocalClient(proxy.url, files_were_read(1, 2) if takes_calls else [system()])
        for number in (3, 4, 5):
            client.says(f"Read a{number}.txt.")
        receipts = receipts_of(proxy)

    asked = server.exchanges[began:]
    folds = [sum(each["done"] for each in receipt["decisions"]) for receipt in receipts]
    assert [each.status for each in asked] == [200] * len(asked)
    assert all(heard.is_complete for heard in client.heard)
    assert rewritten_prompts(server, asked) == sum(folds[1:])
    assert sum(each["usage"]["cached"] for each in receipts) == sum(each.cached for each in asked)
    if mode in ("off", "shadow"):
        assert asked[-1].request["messages"] == client.history[:-1]
        assert len(asked) == len(client.heard)
    elif takes_calls:
        assert sum(folds) > 0
        assert json.dumps(FILE) not in asked[-1].body.decode()


@pytest.mark.rows("X-27", "X-28")
@pytest.mark.parametrize("server", [STRICT], indirect=True, ids=["strict"])
@pytest.mark.parametrize(
    ("roles", "tries", "form"), [("alternate", [1, 1, 1], ""), ("any", [1, 2, 1], "mild")], ids=["alternate", "any"]
)
def test_what_a_person_says_reaches_a_model_whose_template_wants_turns(
    server: ModelServer, tmp_path: Path, roles: str, tries: list[int], form: str
) -> None:
    """Under the default it is joined to the user's message at once; else with the second try, which is remembered."""
    heard, needed = list[Heard](), list[int]()
    with serve(server.url, tmp_path / "data", *AWAKE, f"default_tariff.roles={roles}") as proxy:
        client = LocalClient(proxy.url, [system()])
        for text in ("Hi.", "Go on.", "And now?"):
            before = len(server.exchanges)
            heard.append(client.says(text))
            needed.append(len(server.exchanges) - before)
            if text == "Hi.":
                say_beside(proxy, SAID)
        receipts = receipts_of(proxy)

    assert needed == tries
    assert [each.status for each in server.exchanges[-sum(tries) :]].count(400) == sum(tries) - 3
    assert SAID in server.exchanges[-1].request["messages"][3]["content"]
    assert [each.stack_status for each in heard] == ["full", *[f"full; form={form}" if form else "full"] * 2]
    assert [receipt["form"] for receipt in receipts] == ["", form, form]


def say_beside(proxy: Served, text: str) -> None:
    """A person says something into the only conversation."""
    [conversation] = proxy.page("/stack/conversations")["conversations"]
    place = f"{proxy.origin}/stack/conversations/{conversation['id']}/messages"
    said = urllib.request.Request(place, json.dumps({"text": text, "lane": "steer"}).encode())
    said.add_header("content-type", "application/json")
    with urllib.request.urlopen(said, timeout=5) as answered:
        assert answered.status == 202


def receipts_of(proxy: Served) -> list[Json]:
    return [row["receipt"] for row in reversed(proxy.page("/stack/requests?limit=100")["requests"])]


def rewritten_prompts(server: ModelServer, asked: Sequence[Exchange]) -> int:
    """How many prompts do not go on from the one before. Of each the server found in its cache all that the two have in
    common; the last token of a prompt is always read."""
    prompts = [server.tokens(each.request) for each in asked]
    rewritten = 0
    for (before, now), exchange in zip(pairwise(prompts), asked[1:], strict=True):
        shared = next((at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), len(before))
        assert exchange.cached >= min(shared, len(now) - 1)
        rewritten += shared < len(before) - OPENING_OF_AN_ANSWER
    return rewritten
