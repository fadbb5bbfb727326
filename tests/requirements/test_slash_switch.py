"""X-60: commands in the chat can be turned off, for everybody, for one client key, and by the client itself."""

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedProvider, says
from proxy.auth import UsageLimits
from tests.harness import Conversation, Stage

pytestmark = pytest.mark.rows("X-60")
COMMAND = "/stack push Owned"
OFF = {"x-stack-slash-commands": "off"}


def asked_the_model(chat: Conversation, provider: ScriptedProvider, **options: object) -> bool:
    """Whether a command went to the model as any other text."""
    chat.proxy.stage.judged = False  # the judge knows commands by their form
    provider.will(says("hello"), says("what is that?"))
    chat.says("build a parser")
    answer = chat.says(COMMAND, **options)
    assert answer.status == 200
    return answer.text == "what is that?"


def test_the_configuration_turns_them_off(stage: Stage, provider: ScriptedProvider) -> None:
    assert asked_the_model(stage.chat(stage.proxy(slash_commands="off")), provider)


@pytest.mark.parametrize("word", ["off", "on"])
def test_a_key_may_be_issued_without_them(stage: Stage, provider: ScriptedProvider, word: str) -> None:
    stage.looks_into_store = False  # which needs a key here
    chat = stage.chat(stage.proxy(tenancy="key"))
    key = issue_key(chat.proxy.config.keys_path, "loop", limits=UsageLimits.model_validate({"slash_commands": word}))
    chat.headers = {"authorization": f"Bearer {key}"}
    assert asked_the_model(chat, provider) == (word == "off")


def test_a_client_says_so_in_a_header_that_goes_no_further(stage: Stage, provider: ScriptedProvider) -> None:
    assert asked_the_model(stage.chat(), provider, headers=OFF)
    assert provider.received[-1].header("x-stack-slash-commands") is None


def test_a_client_cannot_turn_on_what_the_operator_turned_off(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(slash_commands="off"))
    assert asked_the_model(chat, provider, headers={"x-stack-slash-commands": "on"})


def test_another_word_is_refused_and_says_what_to_send(stage: Stage, provider: ScriptedProvider) -> None:
    provider.will(says("hello"))
    chat = stage.chat()
    chat.says("build a parser")
    answer = chat.says(COMMAND, headers={"x-stack-slash-commands": "no"})
    assert answer.status == 400
    assert "send `off`" in answer.raw.decode()
