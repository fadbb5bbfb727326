"""Recall from outside: what left the line comes back as it was, however odd, long or far away it is."""

import base64
import re
import subprocess
import sys
from random import Random

import pytest

from llm_test_provider import ScriptedCall, ScriptedProvider, call, says
from tests.client_dialects import neutral
from tests.harness import Conversation, Stage, bash, does, op, pop, push, recall
from tests.laws import Body
from tests.scenarios.sessions import TOOLS, made_by, todo

ODD = {
    "nul": "a\x00b\x00",
    "half a pair": "\ud83d \udc00",
    "controls": "".join(map(chr, range(32))) + "\x7f\x85\u2028\ufeff",
    "markers": '<<end nonce="x">>\n</stack-context>&amp;<<recall ref="x">>',
    "escapes": '\\u0000 \\n "quoted" \\',
    "white space": "  trailing \t\r\n\n",
    "many tongues": "größe → 端口 🚀 \U0010ffff",
}


def told(provider: ScriptedProvider) -> str:
    """The newest tool result on the line."""
    return str(next(m["content"] for m in reversed(provider.received[-1].messages) if m["role"] == "tool"))


def does_one(chat: Conversation, provider: ScriptedProvider, made: ScriptedCall) -> str:
    """One turn in which the model makes this call; what it was answered."""
    provider.will(does(made), says("ok"))
    chat.says("go on")
    return told(provider)


def works(chat: Conversation, provider: ScriptedProvider, title: str, *outputs: str) -> str:
    """A frame in which the model runs a command for each output; its id."""
    made = [does(bash(f"step {n} of {title}")) for n in range(len(outputs))]
    provider.will(does(push(title)), *made, does(pop(f"{title} is done.")), says("done"))
    chat.says(f"please do {title}")
    for output in outputs:
        chat.returns(output)
    return str(chat.proxy.frames()[title]["sessionID"])


# ------------------------------------------------------------------------------------------------------------ originals
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_any_text_is_recalled_byte_for_byte(provider: ScriptedProvider, chat: Conversation, odd: str) -> None:
    """D14: by the model. Half a surrogate pair, which no UTF-8 can say, is the one character that stands for it."""
    frame = works(chat, provider, "Odd", odd)

    sayable = "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in odd)
    assert f">>\n{sayable}\n<<end nonce=" in does_one(chat, provider, recall(frame))


def results_in(chat: Conversation) -> list[str]:
    """The results in the newest request, as they were written."""
    body = Body.read(neutral(chat.proxy.tongue, chat.proxy.stage.notes[-1].body))
    pairs = zip(body.messages, body.written, strict=True)
    return [written for message, written in pairs if message["role"] == "tool"]


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
def test_every_stored_message_is_what_was_sent(provider: ScriptedProvider, chat: Conversation) -> None:
    """D14: by the API and by `callstack log`; NUL, halves of pairs, five megabytes in one text, and noise."""
    chance = Random(14)
    noise = ["".join(map(chr, chance.choices(range(0xD900), k=300))) for _ in range(10)]
    big = base64.b64encode(chance.randbytes(3_750_000)).decode()
    frame = works(chat, provider, "Odd", *ODD.values(), *noise, big)
    written = [entry["wire"] for entry in chat.proxy.log(frame) if entry["answers"]]
    sent = [entry.encode("utf-8", "surrogateescape") for entry in written]

    assert [told for wire in written for told in chat.proxy.tongue.kept(wire)] == results_in(chat)
    assert len(sent) == len(ODD) + len(noise) + 1
    words = [sys.executable, "-m", "callstack_proxy", "log", frame, "--raw", "--data", str(chat.proxy.config.data)]
    printed = subprocess.run(words, capture_output=True, check=True, timeout=60).stdout
    assert [line for line in printed.split(b"\n") if line in sent] == sent


# ----------------------------------------------------------------------------------------------------------------- find
def long_output(chance: Random, facts: list[str]) -> str:
    """About 12,000 tokens of a log, with these facts in lines of their own."""
    lines = [f"{chance.randrange(10**9)} worker {chance.randrange(100)} went on as usual" for _ in range(900)]
    for fact in facts:
        lines.insert(chance.randrange(len(lines)), f"here {fact} was seen at {chance.randrange(10**6)}")
    return "\n".join(lines)


@pytest.mark.rows("S0-09", "S2-14")
def test_every_fact_of_a_large_frame_is_found_in_one_call(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-09, S2-14: a frame of 50,000 tokens; a whole original line, within one page."""
    chance = Random(9)
    facts = [f"src/part_{n}/module_{n}.py" for n in range(4)] + [f"Problem{n}Error: value {n * 7919}" for n in range(4)]
    outputs = [long_output(chance, facts[at::4]) for at in range(4)]
    frame = works(chat, provider, "Large", *outputs)
    originals = {line for output in outputs for line in output.split("\n")}

    for fact in facts:
        answer = does_one(chat, provider, recall(frame, query=fact))

        assert any(fact in line and line in originals for line in answer.split("\n"))
        assert len(answer) < 8_000


@pytest.mark.rows("S0-09")
def test_a_large_frame_without_a_query_begins_with_original_text(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """S0-09: a page of 2,000 tokens, and how to go on."""
    output = long_output(Random(2), ["plum"])
    frame = works(chat, provider, "Large", output)

    answer = does_one(chat, provider, recall(frame))

    assert output[:2_000] in answer
    assert re.search(r"Page 1 of \d+\. Next: page 2\. A query finds a passage in them\.", answer)


def test_the_whole_history_is_searched_without_a_ref(provider: ScriptedProvider, chat: Conversation) -> None:
    works(chat, provider, "Auth", "the secret word is plum")
    works(chat, provider, "Shop", "nothing of the kind")

    assert "the secret word is plum" in does_one(chat, provider, call("stack_recall", query="plum"))
    assert "the secret word is plum" in does_one(chat, provider, recall("Shop", query="plum"))
    assert "the secret word is plum" in does_one(chat, provider, op("recall", query="plum"))


def test_what_was_done_comes_before_the_lists_of_a_plan_that_name_it(stage: Stage, provider: ScriptedProvider) -> None:
    """Each tick sends the whole list again, so that its states filled the page."""
    chat = stage.chat(stage.proxy(), tools=TOOLS)
    lists = ("[>] Write the lexer | [ ] Write the parser", "[x] Write the lexer | [>] Write the parser")
    provider.will(does(push("Formatter")), does(bash("make parser")), *(does(todo(each)) for each in lists))
    provider.will(does(pop("It is written.")), says("done"))
    chat.says("please write a formatter")
    for output in ("the parser has no table to write the rules of", "listed", "listed"):
        chat.returns(output)

    answer = does_one(chat, provider, recall("Formatter", query="write the parser"))

    sources = re.findall(r'source="(?:call )?(\w+)', answer)
    assert sources[0] == "bash"
    assert "TodoWrite" in sources


def test_a_path_among_the_words_of_a_query_limits_it_to_the_file(stage: Stage, provider: ScriptedProvider) -> None:
    """Also within a frame; what names the file and has the words is found as before."""
    chat = stage.chat(stage.proxy(), tools=TOOLS)
    reads = [made_by(f"read src/{name}.py")[0] for name in ("cart", "shop")]
    provider.will(does(push("Look")), *map(does, reads), does(bash("pytest")), does(pop("Seen.")), says("done"))
    chat.says("please look at both")
    for output in ("def total(): plum", "class Shop: total plum", "src/cart.py:3: total is wrong"):
        chat.returns(output)

    for asked in (recall("Look", query="src/cart.py total"), call("stack_recall", query="`cart.py`: total")):
        answer = does_one(chat, provider, asked)
        assert "def total(): plum" in answer
        assert "class Shop" not in answer
    assert "src/cart.py:3: total is wrong" in does_one(chat, provider, recall("Look", query="src/cart.py total"))
    assert "class Shop" in does_one(chat, provider, recall("Look", query="src/nothing.py total"))


def test_a_text_that_two_recalls_of_one_message_find_stands_there_once(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    works(chat, provider, "Auth", "the secret word is plum")
    provider.will(does(recall("Auth", query="plum"), call("stack_recall", query="secret word")), says("ok"))
    chat.says("go on")

    first, second = [str(m["content"]) for m in provider.received[-1].messages if m["role"] == "tool"][-2:]
    assert ("the secret word is plum" in first, "the secret word is plum" in second) == (True, False)
    assert "Shown above in this message: entry " in second


@pytest.mark.rows("X-25")
def test_a_search_finds_nothing_of_another_conversation(stage: Stage, provider: ScriptedProvider) -> None:
    """X-25: of the same tenant either; nobody finds by chance what was said elsewhere."""
    proxy = stage.proxy()
    other, chat = stage.chat(proxy), stage.chat(proxy)
    works(other, provider, "Auth", "the secret word is plum")
    works(chat, provider, "Shop", "nothing of the kind")

    assert "plum" not in does_one(chat, provider, call("stack_recall", query="secret word"))
    assert does_one(chat, provider, recall("Auth")).startswith("Error: nothing is stored under")


@pytest.mark.rows("X-17", "S0-09")
def test_a_path_gives_what_a_configured_tool_wrote_there(stage: Stage, provider: ScriptedProvider) -> None:
    """And not the word it was answered with, which is newer."""
    proxy = stage.proxy(observe__put_file__role="write", observe__put_file__arguments="target")
    chat = stage.chat(proxy, tools=("put_file",))
    provider.will(does(push("Auth")), does(call("put_file", target="src/auth.py", content="def login(): ...")))
    provider.will(does(pop("Done.")), says("ok"))
    chat.says("write it")
    chat.returns("written")

    given = does_one(chat, provider, recall("src/auth.py"))

    assert "def login(): ..." in given
    assert "written" not in given
