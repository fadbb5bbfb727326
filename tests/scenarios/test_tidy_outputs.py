"""Outputs that are written shorter before they are first sent, and recalled as they came (`tidy_outputs`)."""

from __future__ import annotations

import json

import pytest

from llm_test_provider import ScriptedProvider, call, overflow, says
from tests.harness import Conversation, Stage, bash, does, recall

pytestmark = pytest.mark.rows("X-75")
ESC = "\x1b"
BAR = "\r".join(f"{ESC}[32m{n:3} %{ESC}[0m of the packages are here" for n in range(60))
NOISY = f"{BAR}\nbuilding   \n" + "warning: the same thing as before\n" * 40 + "done\t\n"
TIDY = " 59 % of the packages are here\nbuilding\nwarning: the same thing as before\n[line repeated 40 times]\ndone\n\n"
PRETTY = json.dumps({"orders": [{"id": n, "lines": ["a  b", {"price": 1.5}]} for n in range(40)]}, indent=4)
COMPACT = json.dumps(json.loads(PRETTY), separators=(",", ":")) + "\n"
SOURCE = "def f():   \n" + "    pass  \n" * 60


def client_of(stage: Stage, **settings: object) -> Conversation:
    return stage.chat(stage.proxy(**{"tidy_outputs": "on", **settings}), tools=("bash", "read", "search_orders"))


def results(provider: ScriptedProvider, at: int = -1) -> list[str]:
    return [str(m["content"]) for m in provider.received[at].messages if m["role"] == "tool"]


def test_outputs_are_tidied_before_they_are_first_sent_and_stay_so(stage: Stage, provider: ScriptedProvider) -> None:
    """Outputs of commands and JSON; the text of a file, which an edit must match, is sent as it came. Recall gives the
    original byte for byte, also after a restart that turned the setting off."""
    chat = client_of(stage)
    provider.will(
        does(bash("npm run build"), call("search_orders", customer="7"), call("read", file_path="a.py")),
        does(bash("cat a.py")),
        says("built"),
    )
    chat.says("build it")
    chat.returns(NOISY, PRETTY, SOURCE)
    first = results(provider)
    assert first[0].startswith(f"{TIDY}[tidied: ")
    assert first[1].startswith(f"{COMPACT}[tidied: ")
    assert first[2] == SOURCE
    chat.returns(SOURCE)
    assert results(provider) == [*first, SOURCE]
    chat.proxy.config = chat.proxy.config.model_copy(update={"tidy_outputs": "off"})
    chat.proxy.restart()

    refs = [text.rpartition('ref="')[2].partition('"')[0] for text in first[:2]]
    provider.will(does(recall(refs[0])), does(recall(refs[1])), says("here"))
    chat.says("show me all of it")
    assert results(provider)[:4] == [*first, SOURCE]
    recalled = results(provider)[4:]
    assert NOISY in recalled[0]
    assert json.dumps(PRETTY)[1:40] in json.dumps(recalled[1])
    (receipt, *_) = [each for each in chat.proxy.receipts() if each and "replaced" in " ".join(each["events"])]
    assert receipt["tokens_saved"] > 0


@pytest.mark.parametrize(
    "settings",
    [
        {"tidy_outputs": "off"},
        {"mode": "shadow"},
        {"wake_at_tokens": 50_000},
        {"outputs__bash__keep": "whole", "outputs__search_orders__keep": "whole"},
    ],
)
def test_elsewhere_outputs_are_sent_as_they_came(
    stage: Stage, provider: ScriptedProvider, settings: dict[str, object]
) -> None:
    """By default, where recall is not offered, and where a rule keeps them whole."""
    chat = client_of(stage, **settings)
    provider.will(does(bash("npm run build"), call("search_orders", customer="7")), says("built"))
    chat.says("build it")
    chat.returns(NOISY, PRETTY)

    assert results(provider) == [NOISY, PRETTY]


def test_what_saves_little_is_sent_as_it_came(stage: Stage, provider: ScriptedProvider) -> None:
    chat = client_of(stage)
    provider.will(does(bash("ls")), says("seen"))
    chat.says("look")
    chat.returns("a.py  \nb.py\n")

    assert results(provider) == ["a.py  \nb.py\n"]


# -------------------------------------------------------------------------------------------------------------- repeats
MODULE = "\n".join(f"def function_{n}(value):  # what it does with value {n}" for n in range(60))
CHANGED = MODULE.replace("value 30", "value thirty")


def test_lines_that_stand_in_the_context_are_not_sent_again(stage: Stage, provider: ScriptedProvider) -> None:
    """A module read again after an edit: the changed line, its neighbours, and where the rest stands. The second
    read is recalled as it came."""
    chat = client_of(stage, tidy_outputs="repeats")
    provider.will(does(call("read", file_path="a.py")), does(call("read", file_path="a.py")), says("read"))
    chat.says("read it")
    chat.returns(MODULE)
    chat.returns(CHANGED)
    whole, short = results(provider)
    assert whole == MODULE
    lines = short.split("\n")
    assert lines[0] == MODULE.split("\n")[0]
    assert lines[1].startswith("[28 lines left out: they stand in the earlier result of read a.py, entry ")
    assert "value thirty" in lines[3]
    assert len(lines) == 8

    refs = [lines[1].rpartition(" ")[2][:-1], lines[-1].rpartition('ref="')[2][:-2]]
    provider.will(does(recall(refs[0])), does(recall(refs[1])), says("here"))
    chat.says("show me all of it")
    assert results(provider)[:2] == [whole, short]
    recalled = results(provider)[2:]
    assert "Still in your context" in recalled[0]
    assert "value thirty" in recalled[1]


def test_the_rest_is_whole_in_the_request_for_which_the_earlier_copy_is_trimmed(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """And it stays so: the next request begins with all of this one."""
    settings = {"infer_requests": False, "mirror_plans": False, "frame_max_tokens": 10_000_000}
    proxy = stage.proxy(tidy_outputs="repeats", **settings)
    chat = stage.chat(proxy, tools=("bash", "read"), model="house-short")
    read, fill = call("read", file_path="a.py"), "word " * 6_000
    provider.will(does(read), does(bash("1")), does(bash("2")), does(read), does(bash("3")))
    chat.says("read it")
    for result in (MODULE, fill, fill, MODULE):
        chat.returns(result)
    assert "lines left out" in results(provider)[-1]
    provider.will(overflow("openai"), does(bash("4")), says("done"))
    stage.excuse()
    chat.returns(fill)
    trimmed = results(provider)
    assert trimmed[0] == MODULE
    assert "lines left out" not in "".join(trimmed)
    chat.returns("four")
    assert results(provider)[:-1] == trimmed
