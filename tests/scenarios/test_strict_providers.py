"""A session of every kind of work against each provider that refuses what the real one refuses: nothing that leaves is
refused, and the proxy needs no milder form."""

import pytest

from llm_test_provider import ScriptedAnswer, ScriptedCall, ScriptedProvider, call
from llm_test_provider.strict_profiles import PROFILES
from tests.harness import ClientHabits, Conversation, Stage, bash, does, pop, push, recall, tool
from tests.scenarios.speaking import beside

OUTPUT = "x = 1 # a line of a file\n" * 1300
STRICT = {name: {"strict": name} for name in PROFILES}
CHAT = [name for name, profile in PROFILES.items() if "chat" in profile.checks]
NO_REASONING_BACK = ("cerebras", "groq", "mistral")
"""Their clients do not send reasoning back: it would be refused."""
DEMANDING = [name for name, profile in PROFILES.items() if profile.required]
TELLING = ["cerebras", "groq"]
TOOLS = ("bash", "read", "todowrite")

pytestmark = pytest.mark.rows("X-27")


SILENT = ("openai", "mistral")
"""Over chat completions they tell no reasoning."""


def todos(*status: str) -> ScriptedCall:
    items = [{"id": str(n), "content": f"Item {n}", "status": each} for n, each in enumerate(status)]
    return call("todowrite", todos=items)


def works(chat: Conversation, provider: ScriptedProvider, *, thinking: bool = True) -> None:
    """Frames of the model, of the client's plan and of its requests; folds, recall, mixed turns, a person beside."""

    def thinks(*calls: ScriptedCall, text: str = "") -> ScriptedAnswer:
        return does(*calls, text=text, reasoning=f"I think about {text or 'it'}." if thinking else "")

    provider.will(
        thinks(push("Reading")), thinks(bash("cat a")), thinks(bash("cat b"), bash("cat c"), text="Two more.")
    )
    provider.will(thinks(pop("a, b and c are read")), thinks(text="All three are read."))
    chat.says("Please read the three files.")
    chat.returns(OUTPUT)
    chat.returns(OUTPUT, OUTPUT)
    provider.will(thinks(bash("ls"), push("Looking")), thinks(pop("looked"), bash("pwd")))
    provider.will(thinks(text="Here is what there is."))
    chat.says("Now implement the feature in module m, something else.")
    chat.returns("m.py")
    chat.returns("/work")
    statuses = [("in_progress", "pending"), ("completed", "in_progress"), ("completed", "completed")]
    provider.will(*[answer for each in statuses for answer in (thinks(todos(*each)), thinks(bash("make")))])
    provider.will(thinks(text="Both items are done."))
    chat.says("Work through the plan in docs/plan.md, please.")
    for _ in statuses:
        chat.returns("ok")
        beside(chat).says("Mind the edge cases.")
        chat.returns(OUTPUT)
    provider.will(thinks(recall('{{messages:ref=.?"(f[a-z2-7]{6,})}}')), thinks(text="It was x."), thinks(text="Bye."))
    chat.says("What stood in the first file again?")
    chat.says("Thank you.")


def habits_for(profile: str, *, keeps: bool = True) -> ClientHabits:
    return ClientHabits(keeps_reasoning=keeps and profile not in NO_REASONING_BACK)


def holds(stage: Stage, provider: ScriptedProvider, *, refused: int = 0) -> None:
    """Nothing was refused but the first so many hidden rounds, of which the client saw nothing."""
    assert [r.number for r in provider.asked if r.status != 200] == list(range(2, 2 + refused))
    assert {note.answer.stack_status for note in stage.notes if note.answer} == {"full"}
    assert any("stack-context note" in line for line in map(str, stage.lines())), "nothing was folded"


@pytest.mark.spoken_in("chat", reason="these providers have no other API")
@pytest.mark.parametrize(
    ("provider", "profile"), [(STRICT[name], name) for name in CHAT], ids=CHAT, indirect=["provider"]
)
def test_a_folded_session_passes_every_strict_provider_of_chat_completions(
    stage: Stage, provider: ScriptedProvider, profile: str
) -> None:
    chat = stage.chat(model=PROFILES[profile].model, tools=TOOLS, habits=habits_for(profile))
    works(chat, provider, thinking=profile not in (*SILENT, *NO_REASONING_BACK))
    holds(stage, provider)


@pytest.mark.one_process("each process learns for itself what a provider refuses")
@pytest.mark.spoken_in("chat", reason="these providers have no other API")
@pytest.mark.parametrize(
    ("provider", "profile"), [(STRICT[name], name) for name in TELLING], ids=TELLING, indirect=["provider"]
)
def test_reasoning_that_a_provider_tells_and_refuses_does_not_come_back_to_it(
    stage: Stage, provider: ScriptedProvider, profile: str
) -> None:
    """Known from its first refusal on. What was stored is not changed, so the judge would miss it on the line."""
    stage.judged = False
    chat = stage.chat(model=PROFILES[profile].model, tools=TOOLS, habits=habits_for(profile))
    works(chat, provider)
    holds(stage, provider, refused=1)


@pytest.mark.spoken_in("chat", reason="these providers have no other API")
@pytest.mark.parametrize(
    ("provider", "profile"), [(STRICT[name], name) for name in DEMANDING], ids=DEMANDING, indirect=["provider"]
)
def test_what_a_client_drops_comes_back_to_the_provider_that_demands_it(
    stage: Stage, provider: ScriptedProvider, profile: str
) -> None:
    chat = stage.chat(model=PROFILES[profile].model, tools=TOOLS, habits=habits_for(profile, keeps=False))
    works(chat, provider)
    holds(stage, provider)


@pytest.mark.spoken_in("messages", reason="the provider has no other API")
@pytest.mark.parametrize("provider", [STRICT["anthropic"]], ids=["anthropic"], indirect=True)
def test_a_folded_session_passes_the_strict_messages_api(stage: Stage, provider: ScriptedProvider) -> None:
    works(stage.chat(model=PROFILES["anthropic"].model, tools=TOOLS), provider)
    holds(stage, provider)


@pytest.mark.spoken_in("responses", reason="the provider's other API is tried above")
@pytest.mark.parametrize("provider", [STRICT["openai"]], ids=["openai"], indirect=True)
def test_a_folded_session_passes_the_strict_responses_api(stage: Stage, provider: ScriptedProvider) -> None:
    works(stage.chat(model=PROFILES["openai"].model, tools=TOOLS), provider)
    holds(stage, provider)


@pytest.mark.rows("X-48")
@pytest.mark.spoken_in("chat", reason="the provider has no other API")
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("provider", [STRICT["cerebras"]], ids=["cerebras"], indirect=True)
def test_the_provider_that_takes_no_mixture_gets_all_of_our_tools_as_strict_as_the_clients(
    stage: Stage, provider: ScriptedProvider, strict: bool
) -> None:
    """A whole session: the first request is refused once where the client's tools are strict and ours are not; from
    then on all pass, and work is folded and recalled. Tools that say they are not strict are no mixture with ours."""
    stage.judged = False  # the array changes once, with the form
    offered = [tool(name) for name in TOOLS]
    for each in offered:
        function = each["function"]
        required = {"additionalProperties": False, "required": ["command"]} if strict else {}
        each["function"] = function | {"strict": strict, "parameters": function["parameters"] | required}
    chat = stage.chat(model=PROFILES["cerebras"].model, tools=TOOLS, habits=habits_for("cerebras"))
    chat.options["tools"] = offered
    works(chat, provider, thinking=False)

    assert [r.number for r in provider.asked if r.status != 200] == ([1] if strict else [])
    told = {note.answer.stack_status for note in stage.notes if note.answer}
    assert told == ({"full; form=strict"} if strict else {"full"})
    newest = provider.asked[-1].body["tools"]
    ours = [each["function"] for each in newest if each["function"]["name"].startswith("stack_")]
    assert {each["name"] for each in ours} >= {"stack_frame_push", "stack_frame_pop", "stack_recall"}
    assert {each.get("strict", False) for each in ours} == {strict}
    assert any("stack-context note" in line for line in map(str, stage.lines())), "nothing was folded"
    assert any("<<recall " in received.raw.decode() for received in provider.asked), "nothing was recalled"
