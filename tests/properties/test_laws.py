"""The judge itself: a well-kept conversation has no breach, and each law broken by hand is named."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.laws import ClientTurn, Evidence, UpstreamRequest, breaches, elements, members

Json = dict[str, Any]
NONCE = "0a1b2c3d4e5f"


def block(frame: str) -> str:
    return f'<stack-context session="c" frame="{frame}" nonce="{NONCE}">\n</stack-context>'


def offered(name: str) -> Json:
    return {"type": "function", "function": {"name": name}}


def calls(id_: str, name: str) -> Json:
    made = {"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def result(id_: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": id_, "content": text}


SYSTEM = {"role": "system", "content": "You are X."}
OUR_SYSTEM = {"role": "system", "content": "You are X.\n\nWork is kept as frames."}
HELLO = {"role": "user", "content": "add a login"}
PUSH = calls("p1", "stack_frame_push")
OPENED = result("p1", block("fauth"))
RETURNED = result("p1", '<frame-results ref="fauth" status="completed" parent="froot">done</frame-results>')
LS = calls("b1", "bash")
FILES = result("b1", "a.py")
DONE = {"role": "assistant", "content": "done"}
MORE = {"role": "user", "content": "and logout"}
TYPED = {"role": "user", "content": "/stack push Parser | tests pass"}
OURS = {"role": "assistant", "content": "[callstack] Begun."}
TOOLS = [offered("bash")]
OUR_TOOLS = [offered("bash"), offered("stack_frame_push"), offered("stack_recall")]


def written(messages: list[Json], tools: list[Json]) -> bytes:
    return json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()


def client(*messages: Json) -> bytes:
    return written([SYSTEM, *messages], TOOLS)


def line(*messages: Json, head: Json = OUR_SYSTEM, tools: list[Json] | None = None) -> bytes:
    return written([head, *messages], tools or OUR_TOOLS)


ASKED = (
    ClientTurn(1, client(HELLO), frame="froot", answer=b'{"tool_calls": "bash"}'),
    ClientTurn(2, client(HELLO, LS, FILES), frame="fauth", answer=b"done"),
    ClientTurn(3, client(HELLO, LS, FILES, DONE, MORE), frame="froot", answer=b"bye"),
)
LEFT = (
    UpstreamRequest(1, line(HELLO)),
    UpstreamRequest(1, line(HELLO, PUSH, OPENED)),
    UpstreamRequest(2, line(HELLO, PUSH, OPENED, LS, FILES)),
    UpstreamRequest(2, line(HELLO, PUSH, RETURNED)),
    UpstreamRequest(3, line(HELLO, PUSH, RETURNED, DONE, MORE)),
)
KEPT = {"c": frozenset(json.dumps(m) for m in (HELLO, PUSH, OPENED, RETURNED, LS, FILES, DONE, MORE))}
SOUND = Evidence(ASKED, LEFT, KEPT)


def test_a_well_kept_conversation_has_no_breach() -> None:
    assert breaches(SOUND) == []


def with_left(at: int, body: bytes, headers: tuple[str, ...] = ()) -> Evidence:
    left = list(LEFT)
    left[at] = replace(left[at], body=body, headers=headers)
    return replace(SOUND, left=left)


def with_asked(at: int, **changes: Any) -> Evidence:
    asked = list(ASKED)
    asked[at] = replace(asked[at], **changes)
    return replace(SOUND, asked=asked)


BROKEN = {
    "L1: no result": with_left(1, line(HELLO, PUSH)),
    "L1: a result of b1 without its call": with_left(2, line(HELLO, PUSH, OPENED, FILES)),
    "L2: the line of froot changed": with_left(3, line(HELLO, LS, FILES, PUSH, RETURNED)),
    "L2: the line of fauth changed": with_left(2, line(HELLO, PUSH, result("p1", block("fauth") + "!"), LS, FILES)),
    "L2: our tools changed": with_left(2, line(HELLO, PUSH, OPENED, LS, FILES, tools=OUR_TOOLS[:1] + OUR_TOOLS[2:])),
    "L2: the client's tools changed": with_left(0, line(HELLO, tools=OUR_TOOLS[1:])),
    "L3: not stored": replace(SOUND, kept={"c": KEPT["c"] - {json.dumps(MORE)}}),
    "L3: on the line and not stored": replace(SOUND, kept={"c": KEPT["c"] - {json.dumps(LS)}}),
    "L4: not on the line as it was sent": with_left(0, line({"role": "user", "content": "add no login"})),
    "L4: twice, out of order or never sent": with_left(4, line(HELLO, PUSH, RETURNED, DONE, MORE, MORE)),
    "L4: a call twice": with_left(2, line(HELLO, PUSH, OPENED, LS, FILES, LS, FILES)),
    "L5": with_asked(0, status="asleep"),
    "L10: closing words are gone": with_left(
        4, line(HELLO, PUSH, result("p1", '<frame-results ref="fauth" status="completed" parent="froot">'), MORE)
    ),
    "L6: the client saw '0a1b2c3d4e5f'": with_asked(1, answer=b'nonce="0a1b2c3d4e5f"'),
    "L6: the client saw 'stack_'": with_asked(1, answer=b"stack_frame_push"),
    "L6: the client saw 'p1'": with_asked(1, answer=b'{"id":"p1"}'),
    "L7: recall is not offered": with_left(0, line(HELLO, tools=OUR_TOOLS[:2])),
    "stands in fauth, the client was told froot": with_asked(1, frame="froot"),
    "what was typed to the proxy went upstream": with_left(4, line(HELLO, PUSH, RETURNED, DONE, TYPED, OURS, MORE)),
    "the proxy answered it, and asked the provider": with_asked(0, status="answered"),
    "x-stack-mode went upstream": with_left(0, LEFT[0].body, ("X-Stack-Mode",)),
}


@pytest.mark.parametrize("law", BROKEN)
def test_a_law_broken_by_hand_is_named(law: str) -> None:
    found = breaches(BROKEN[law])

    assert any(law.replace("x-stack-mode", "X-Stack-Mode") in each for each in found), found


@pytest.mark.rows("S0-36")
@pytest.mark.parametrize("behind", [(OURS,), ()], ids=["answered", "never answered"])
def test_a_request_that_sleeps_passes_less_what_was_typed_to_the_proxy(behind: tuple[Json, ...]) -> None:
    """S0-36: and less nothing else."""
    asked = ClientTurn(1, client(HELLO, DONE, TYPED, *behind, MORE), status="asleep")
    mended = replace(SOUND, asked=[asked], left=[UpstreamRequest(1, client(HELLO, DONE, MORE))], kept=None)
    less = replace(mended, left=[UpstreamRequest(1, client(HELLO, MORE))])
    off = replace(mended, asked=[replace(asked, status="off")])

    assert breaches(mended) == []
    assert [each[:13] for each in breaches(less)] == ["request 1, L5"]
    assert [each[:13] for each in breaches(off)] == ["request 1, L5"]


def test_an_excused_request_may_change_its_past() -> None:
    changed = with_left(4, line(HELLO, DONE, MORE))

    assert any("L2" in each for each in breaches(changed))
    assert breaches(replace(changed, excused=frozenset({3}))) == []


# A request whose work was folded before the next one: `ls` left, a trace stands for it, what follows stays.
TRACE = {
    "role": "user",
    "content": f'<stack-context frame="froot" nonce="{NONCE}"><frame ref="frequest"/></stack-context>',
}
LAST = {"role": "user", "content": "and now the tests"}
WORKED = (HELLO, LS, FILES, DONE, MORE)


def folded(*line_after: Json, told: tuple[str, ...] = ("entered fnext", "folded frequest")) -> Evidence:
    """Two requests of one line; before the second one something left it, as `told`."""
    asked = (
        ClientTurn(1, client(*WORKED), frame="fnext"),
        ClientTurn(2, client(*WORKED, DONE, LAST), frame="fnext", events=told),
    )
    left = (UpstreamRequest(1, line(*WORKED)), UpstreamRequest(2, line(*line_after)))
    stored = frozenset(json.dumps(m) for m in (*WORKED, LAST))
    return Evidence(asked, left, {"c": stored}, seen={"fnext": "froot", "frequest": "froot"})


AFTER = (HELLO, TRACE, DONE, MORE, DONE, LAST)


def test_a_fold_that_the_receipt_tells_of_is_no_breach() -> None:
    """L2, L3, L7. A frame that was seen stands on the line of the one above it."""
    assert breaches(folded(*AFTER)) == []


@pytest.mark.parametrize("told", [(), ("entered fnext",), ("parted frequest",), ("kept frequest",), ("popped folded",)])
def test_the_same_line_without_the_event_of_a_fold_is_broken(told: tuple[str, ...]) -> None:
    assert any("L2: the line of froot changed in its past" in each for each in breaches(folded(*AFTER, told=told)))


FOLDED_WRONGLY = {
    "L7: frequest left the line": folded(HELLO, DONE, MORE, DONE, LAST),
    "L2: the line of froot lost what the user said": folded(TRACE, DONE, MORE, DONE, LAST),
    "L2: the line of froot has in its past": folded(HELLO, TRACE, {**DONE, "content": "Done."}, MORE, DONE, LAST),
    "L2: the line of froot has another head": replace(
        folded(*AFTER),
        left=(UpstreamRequest(1, line(*WORKED)), UpstreamRequest(2, line(*AFTER, head={**OUR_SYSTEM, "name": "x"}))),
    ),
    "L1: a result of b1": folded(HELLO, TRACE, FILES, DONE, MORE, DONE, LAST),
    "L3: on the line and not stored": replace(
        folded(*AFTER), kept={"c": frozenset(map(json.dumps, (HELLO, MORE, LAST)))}
    ),
}


@pytest.mark.parametrize("law", FOLDED_WRONGLY)
def test_a_fold_explains_no_other_change(law: str) -> None:
    found = breaches(FOLDED_WRONGLY[law])

    assert any(law in each for each in found), found


def test_what_was_folded_may_come_back_as_it_stood() -> None:
    back = ClientTurn(3, client(*WORKED, DONE, LAST, DONE, MORE), frame="fnext", events=("unfolded frequest",))
    before = folded(*AFTER)

    def again(*messages: Json) -> list[str]:
        left = (*before.left, UpstreamRequest(3, line(*messages, DONE, MORE, DONE, LAST, DONE, MORE)))
        return breaches(replace(before, asked=(*before.asked, back), left=left))

    assert again(HELLO, LS, FILES) == []
    assert any("has in its past what no event tells of" in each for each in again(HELLO, calls("b1", "read"), FILES))


TURN = {"role": "user", "content": "try it another way"}
WORDS = {"role": "user", "content": f'<stack-context branch="b1" nonce="{NONCE}">a branch begins</stack-context>'}


def turned(*line_after: Json, told: tuple[str, ...] = ("switched b1",)) -> Evidence:
    """A turn with a call, its answer, another turn, and a request with which a branch begins."""
    asked = (
        ClientTurn(1, client(HELLO), frame="froot"),
        ClientTurn(2, client(HELLO, LS, FILES), frame="froot"),
        ClientTurn(3, client(HELLO, LS, FILES, DONE, MORE), frame="froot"),
        ClientTurn(4, client(HELLO, LS, FILES, DONE, MORE, OURS, TURN), frame="froot", events=told),
    )
    left = (
        UpstreamRequest(1, line(HELLO)),
        UpstreamRequest(2, line(HELLO, LS, FILES)),
        UpstreamRequest(3, line(HELLO, LS, FILES, DONE, MORE)),
        UpstreamRequest(4, line(*line_after)),
    )
    return Evidence(asked, left)


@pytest.mark.parametrize(
    "before", [(HELLO,), (HELLO, LS, FILES), (HELLO, LS, FILES, DONE), (HELLO, LS, FILES, DONE, MORE, OURS)]
)
def test_a_switch_that_the_receipt_tells_of_goes_to_an_earlier_line(before: tuple[Json, ...]) -> None:
    """At a checkpoint, or at its end; behind it stands what the client says now, and a word of ours."""
    assert breaches(turned(*before, TURN, WORDS)) == []


@pytest.mark.parametrize("before", [(HELLO,), (HELLO, LS, FILES, DONE)])
def test_the_same_line_without_a_switch_is_broken(before: tuple[Json, ...]) -> None:
    assert any("L2" in said for said in breaches(turned(*before, TURN, WORDS, told=())))


@pytest.mark.parametrize(
    "before",
    [
        (HELLO, MORE),
        (HELLO, DONE, MORE),
        (HELLO, LS, FILES, MORE),
        (HELLO, DONE, OURS),
        (HELLO, LS, result("b1", "b.py"), DONE),
    ],
)
def test_a_switch_explains_no_message_that_stood_behind_the_point(before: tuple[Json, ...]) -> None:
    assert any("no earlier line" in said for said in breaches(turned(*before, TURN, WORDS)))


def test_another_model_begins_a_line_of_its_own() -> None:
    """L2: a new line version is no breach."""
    assert breaches(with_left(4, LEFT[4].body.replace(b'"model": "m"', b'"model": "n"'))) == []


def test_what_passes_asleep_must_be_the_same_bytes_once() -> None:
    asked = ClientTurn(1, client(HELLO), status="asleep")
    same = UpstreamRequest(1, client(HELLO))

    assert breaches(Evidence([asked], [same])) == []
    assert breaches(Evidence([asked], [same, same]))
    assert breaches(Evidence([asked], [replace(same, body=same.body + b" ")]))


QUOTED = [f"{name} says: " + " ".join(f"{name}{n}" for n in range(80)) for name in ("user", "model", "result", "other")]
AROUND = ("Sum this up:\n", "\nIn one line.")


def summed_up(quote: str = "\n".join(QUOTED), **changed: Any) -> Evidence:
    """A request that quotes what is stored, and what left for it; `changed` are members of the evidence, or `stands`,
    what stands in place of the quote, and `around` it."""
    before, behind = changed.pop("around", AROUND)
    stands = changed.pop(
        "stands",
        f"[callstack: {len(quote):,} characters of a quoted conversation stood here, more than fits. All of it is kept "
        "by the proxy.]\n\nlittle\n\n[callstack: here ends what stands for the quoted conversation.]",
    )
    asked = {"role": "user", "content": f"{AROUND[0]}{quote}{AROUND[1]}"}
    left = {"role": "user", "content": f"{before}{stands}{behind}"}
    kept = frozenset(json.dumps({"role": "user", "content": text}) for text in QUOTED)
    evidence = Evidence(
        [ClientTurn(1, written([asked], []), status="stateless")],
        [UpstreamRequest(1, written([asked], [])), UpstreamRequest(1, written([left], []))],
        {"c": kept, "d": frozenset()},
        too_long=frozenset({1}),
    )
    return replace(evidence, **changed)


def test_a_quote_of_what_is_stored_may_be_told_in_other_words() -> None:
    """DESIGN 8: the one exception from L4, as text or as JSON."""
    assert breaches(summed_up()) == []
    assert breaches(summed_up(json.dumps(QUOTED))) == []


@pytest.mark.parametrize(
    "evidence",
    [
        summed_up(too_long=frozenset()),
        summed_up(kept=None),
        summed_up(kept={"c": frozenset()}),
        summed_up(kept={"c": frozenset(json.dumps({"role": "user", "content": text}) for text in QUOTED[:2])}),
        summed_up(stands="little"),
        summed_up(stands=""),
        summed_up(around=(AROUND[0], "")),
        summed_up(around=("Sum it up:\n", AROUND[1])),
        summed_up(around=(AROUND[0], f"\nmore{AROUND[1]}")),
        summed_up("\n".join(QUOTED) + "x" * 5_000),
        summed_up("\n".join(text[:150] for text in QUOTED)),
        replace(summed_up(), left=[*summed_up().left[:1], UpstreamRequest(1, written([HELLO], []))]),
    ],
    ids=["it fits", "not looked", "not stored", "too little of it", "no marks", "gone", "no end", "another beginning",
         "more", "mostly something else", "no whole text", "another message"],
)  # fmt: skip
def test_words_of_the_user_leave_for_nothing_else(evidence: Evidence) -> None:
    assert any("stateless: lost" in said for said in breaches(evidence))


def test_pieces_are_read_as_they_are_written() -> None:
    """Spacing, spelling and odd numbers are part of a message's bytes."""
    text = '{ "a" : [ {"x":1.0e0} , {"y" : "\\u00e9,}"} ], "b":{} }'

    assert members(text) == {"a": '[ {"x":1.0e0} , {"y" : "\\u00e9,}"} ]', "b": "{}"}
    assert elements(members(text)["a"]) == ['{"x":1.0e0}', '{"y" : "\\u00e9,}"}']
