"""Who owns what when the model mixes text, client calls and stack calls in one message: the named cases of DESIGN 6."""

import json
import re
from collections.abc import Callable

import pytest

from llm_test_provider import ScriptedAnswer, ScriptedCall, ScriptedProvider, call, says
from tests.client_dialects import MESSAGES
from tests.harness import Conversation, Stage, activate, as_one_text, bash, does, op, plan, pop, push, spoken_on, texts


def stepping(**items: str) -> ScriptedCall:
    """The client's plan: the state of each item."""
    return call("update_plan", plan=[{"step": name, "status": state} for name, state in items.items()])


@pytest.mark.rows("X-09", "S0-03", "S1-30", "S1-105")
def test_text_and_push_then_text(stage: Stage, provider: ScriptedProvider, chat: Conversation) -> None:
    """X-09, S0-03, S1-30: the client reads one answer; the model goes on in the child."""
    provider.will(does(push("Auth", "login works"), text="Let me see."), says("I began with the login."))

    answer = chat.says("add a login")

    assert answer.text == "Let me see.\n\nI began with the login."
    assert answer.finishes == ["stop"]
    assert len(provider.received) == 2
    assert provider.received[1].messages[-1]["role"] == "tool"
    assert "login works" in str(provider.received[1].messages)
    assert chat.proxy.active() == "Auth"
    assert chat.proxy.statuses() == {"add a login": "in_progress", "Auth": "in_progress"}
    provider.will(says("Yes."))
    chat.says("still there?")
    assert texts(provider.received[2].messages)[-2:] == ["assistant: I began with the login.", "user: still there?"]


@pytest.mark.rows("X-10")
def test_push_beside_client_calls(stage: Stage, provider: ScriptedProvider, chat: Conversation) -> None:
    """X-10, H4: the push is done, the client gets its own call alone; the group comes back whole, results in call
    order."""
    provider.will(does(push("Auth"), bash("ls src"), text="Looking."), says("Two files."))

    answer = chat.says("add a login")

    assert answer.text == "Looking."
    assert answer.calls == [("bash", '{"command": "ls src"}')]
    assert answer.finishes == ["tool_calls"]
    assert len(provider.received) == 1
    assert chat.returns("a.py b.py").text == "Two files."
    line = provider.received[1].messages
    group = line[-3:]
    assert [c["function"]["name"] for c in group[0]["tool_calls"]] == ["stack_frame_push", "bash"]
    assert [m["tool_call_id"] for m in group[1:]] == [c["id"] for c in group[0]["tool_calls"]]
    assert group[2]["content"] == "a.py b.py"
    assert chat.proxy.active() == "Auth"


def test_two_pushes(provider: ScriptedProvider, chat: Conversation) -> None:
    """The first push of a group is done, the second becomes a planned sibling, and its result says so."""
    provider.will(does(push("First"), push("Second")), says("On it."))

    chat.says("do two things")

    assert chat.proxy.statuses() == {"do two things": "in_progress", "First": "in_progress", "Second": "planned"}
    assert chat.proxy.active() == "First"
    frames = chat.proxy.frames()
    assert frames["Second"]["parentSessionID"] == frames["First"]["parentSessionID"]
    assert "planned, not begun" in provider.received[1].messages[-1]["content"]


def test_a_second_push_is_planned_where_the_work_goes_on(provider: ScriptedProvider, chat: Conversation) -> None:
    """What the first one opened has ended by then, and so has the frame around it: under that nobody could begin it."""
    dropped = op("invalidate", sessionID="A", reason="not needed")
    provider.will(
        does(push("A")),
        says("in A"),
        does(push("B"), dropped, pop("B is done."), push("C")),
        says("back"),
    )
    chat.says("do three things")

    chat.says("go on")

    frames = chat.proxy.frames()
    assert chat.proxy.active() == "do three things"
    assert frames["C"]["status"] == "planned"
    assert frames["C"]["parentSessionID"] == frames["do three things"]["sessionID"]
    provider.will(does(activate(frames["C"]["sessionID"])), says("in C"))

    chat.says("and now C")

    assert chat.proxy.active() == "C"


def test_pop_plus_push(provider: ScriptedProvider, chat: Conversation) -> None:
    """The block of the new frame is appended to the value that the pop returns."""
    provider.will(
        does(push("First")),
        says("Begun."),
        does(pop("First is done."), push("Second")),
        says("Next."),
    )
    chat.says("do two things")

    chat.says("go on")

    line = provider.received[3].messages
    assert chat.proxy.statuses()["First"] == "completed"
    assert chat.proxy.active() == "Second"
    opening = next(m for m in line if m["role"] == "tool")
    assert "First is done." in opening["content"]
    assert f'frame="{chat.proxy.frames()["Second"]["sessionID"]}"' in opening["content"]
    assert opening["content"].index("First is done.") < opening["content"].index("<stack-context")
    assert "Begun." not in spoken_on(line)


def test_pop_beside_client_calls(provider: ScriptedProvider, chat: Conversation) -> None:
    """Beside client calls there are results the model has not read: the pop is refused with what to do."""
    provider.will(does(push("Auth")), says("Begun."), does(pop("done"), bash("pytest")), says("Green."))
    chat.says("add a login")

    answer = chat.says("test it")

    assert answer.calls == [("bash", '{"command": "pytest"}')]
    chat.returns("3 passed")
    line = provider.received[3].messages
    assert "pop again" in line[-2]["content"]
    assert line[-1]["content"] == "3 passed"
    assert chat.proxy.statuses()["Auth"] == "in_progress"
    provider.will(does(pop("The tests pass.")), says("Done."))
    chat.says("fine")
    assert chat.proxy.statuses()["Auth"] == "completed"


def test_push_and_pop_in_one(provider: ScriptedProvider, chat: Conversation) -> None:
    """A frame that opened and closed in one message leaves its call with its results, and the parent goes on."""
    provider.will(does(push("Tiny"), pop("It was trivial.")), says("Done already."))

    chat.says("do a tiny thing")

    assert chat.proxy.statuses()["Tiny"] == "completed"
    assert chat.proxy.active() == "do a tiny thing"
    provider.will(says("Sure."))
    chat.says("thanks")
    assert "It was trivial." in as_one_text(provider.received[2].messages)


@pytest.mark.rows("S1-106")
def test_root_pop(provider: ScriptedProvider, chat: Conversation) -> None:
    """S1-106: popping the root records status and results and changes no line; the next user message begins another
    one beside it."""
    provider.will(does(pop("All is done.")), says("Finished."), says("Again."))
    chat.says("build it")
    assert chat.proxy.statuses() == {"build it": "completed"}
    assert chat.proxy.frames()["build it"]["results"] == "All is done."

    chat.says("one more thing")

    assert chat.proxy.statuses() == {"build it": "completed", "one more thing": "in_progress"}
    assert chat.proxy.active() == "one more thing"
    assert [m["role"] for m in provider.received[2].messages[-4:]] == ["tool", "assistant", "user", "user"]
    before = provider.received[1].messages
    assert provider.received[2].messages[: len(before)] == before


@pytest.mark.rows("S1-106", "C20")
def test_a_push_after_the_root_was_popped_is_answered_with_what_to_do(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """S1-106, C20: nothing begins below an ended tree until the user speaks."""
    provider.will(does(pop("All is done.")), does(push("More")), says("Finished."))

    chat.says("build it")

    told = provider.received[2].messages[-1]["content"]
    assert told.startswith("Error")
    assert told.endswith("Answer the user; their next message begins a new root frame beside it.")
    assert list(chat.proxy.frames()) == ["build it"]


def test_user_writes_in_an_open_child(provider: ScriptedProvider, chat: Conversation) -> None:
    """A user message belongs to the active frame; at its pop an answered one is quoted, the unanswered one follows
    verbatim."""
    provider.will(
        does(push("Auth")),
        says("Begun."),
        says("I use JWT."),
        does(bash("pytest")),
        does(pop("The login works with JWT.")),
        says("Done."),
    )
    chat.says("add a login")
    chat.says("use JWT, please")
    chat.says("and now test it")
    chat.returns("3 passed")

    line = provider.received[-1].messages
    returned = next(m for m in line if m["role"] == "tool")["content"]
    assert "use JWT, please" in returned
    assert texts(line)[-1] == "user: and now test it"
    assert "3 passed" not in as_one_text(line)
    assert "I use JWT." not in spoken_on(line)


def test_what_the_user_said_further_down_is_told_by_whatever_tells_of_it(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """In a step of the client's plan, in a frame below that was popped; and the newest words follow verbatim."""
    chat = stage.chat(tools=("bash", "update_plan"))
    provider.will(
        does(push("Auth")),
        does(stepping(Greet="in_progress", Look="pending")),
        says("It greets."),
        says("I use JWT."),
        does(push("Tokens")),
        says("They are long."),
        says("Short ones."),
        does(pop("The tokens are done.")),
        does(stepping(Greet="completed", Look="in_progress")),
        does(pop("The login works.", frameID="Auth")),
        says("Done."),
        says("Nothing."),
    )
    chat.says("add a login")
    chat.returns("planned")
    chat.says("use JWT, please")
    chat.says("how long are the tokens?")
    chat.says("make them short")
    chat.says("and now look again")
    chat.returns("planned")
    chat.says("what is left?")

    line = provider.received[-1].messages
    assert set(chat.proxy.frames()) == {"add a login", "Auth", "Greet", "Look", "Tokens"}
    (returned,) = (m["content"] for m in line if m["role"] == "tool")
    said = [leaf.partition("</said>")[0] for leaf in returned.split("<said>")[1:]]
    assert said == ["use JWT, please", "how long are the tokens?", "make them short"]
    assert texts(line)[-3:] == ["user: and now look again", "assistant: Done.", "user: what is left?"]


@pytest.mark.parametrize("inner", ["invalidated", "popped inside an invalidated one"])
def test_what_the_user_said_in_an_invalidated_frame_is_told(
    provider: ScriptedProvider, chat: Conversation, inner: str
) -> None:
    """The work is void; what the user asked for is not."""
    provider.will(does(push("Auth")), says("How?"), says("JWT it is."))
    chat.says("add a login")
    chat.says("use JWT, please")
    frame = chat.proxy.frames()["Auth"]["sessionID"]
    void = op("invalidate", reason="another way", sessionID=frame)
    if inner == "invalidated":
        provider.will(does(void), says("Another way."), says("Nothing."))
    else:
        provider.will(
            does(push("Tokens")),
            does(void),
            does(pop("Tokens work.")),
            says("Done."),
            says("Nothing."),
        )
    chat.says("is there another way?")
    chat.says("what is left?")

    line = provider.received[-1].messages
    (returned,) = (m["content"] for m in line if m["role"] == "tool")
    assert "was invalidated: another way" in returned
    assert "<said>use JWT, please</said>" in returned
    assert texts(line)[-3] == "user: is there another way?"


def test_a_plan_beside_a_push_does_not_take_the_push_along(stage: Stage, provider: ScriptedProvider) -> None:
    """The step that is begun in the very message that pushed is a step of the pushed frame."""
    chat = stage.chat(tools=("bash", "update_plan"))
    provider.will(
        does(push("Auth"), stepping(Greet="in_progress", Look="pending")),
        says("It greets."),
        does(bash("look")),
        does(pop("The login works.", frameID="Auth")),
        says("Done."),
    )
    chat.says("add a login")
    chat.returns("planned")
    chat.says("use JWT, please")
    chat.returns("looked")

    line = provider.received[-1].messages
    assert "The login works." in as_one_text(line)
    assert "<said>use JWT, please</said>" not in as_one_text(line)
    assert "looked" not in as_one_text(line)


def test_a_step_that_ends_through_an_invalidated_frame_tells_of_that(stage: Stage, provider: ScriptedProvider) -> None:
    """It leaves with the step, and nobody pops it."""
    chat = stage.chat(tools=("bash", "update_plan"))
    provider.will(does(push("Auth")), does(stepping(Greet="in_progress", Look="pending")), says("It greets."))
    chat.says("add a login")
    chat.returns("planned")
    void = op("invalidate", reason="another way", sessionID=chat.proxy.frames()["Auth"]["sessionID"])
    provider.will(
        does(void),
        says("I use JWT."),
        does(stepping(Greet="completed", Look="pending")),
        does(bash("look")),
        says("Done."),
    )
    chat.says("use JWT, please")
    chat.says("go on")
    chat.returns("planned")
    chat.returns("looked")

    line = provider.received[-1].messages
    assert chat.proxy.active() == "add a login"
    assert "(Auth) was invalidated: another way." in as_one_text(line)
    assert "user: use JWT, please" in texts(line)
    assert "user: go on" in texts(line)
    assert "It greets." not in spoken_on(line)


def test_a_push_below_a_step_that_was_taken_back_returns_to_its_own_call(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat(tools=("bash", "update_plan"))
    provider.will(does(stepping(Greet="in_progress", Look="pending")), does(push("Auth")), says("How?"))
    chat.says("add a login")
    chat.returns("planned")
    void = op("invalidate", reason="another way", sessionID=chat.proxy.frames()["Greet"]["sessionID"])
    provider.will(does(void), says("I use JWT."), does(pop("The login works.")), says("Done."))
    chat.says("use JWT, please")
    chat.says("and now?")

    line = as_one_text(provider.received[-1].messages)
    assert "The login works." in line
    assert "<said>use JWT, please</said>" in line
    assert "user: and now?" in texts(provider.received[-1].messages)


def test_instructions_in_mid_history_are_seen_by_a_child_with_a_narrow_view(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat(stage.proxy(child_view="isolate"))
    provider.will(does(bash("ls")), does(push("Auth")), says("On it."))
    role = "system" if stage.tongue is MESSAGES else "developer"
    chat.says("add a login")
    (made,) = chat.history[-1]["tool_calls"]
    chat.history.append({"role": "tool", "tool_call_id": made["id"], "content": "a.py b.py"})
    chat.history.append({"role": role, "content": "Never touch the network."})
    chat.asks()

    in_child = as_one_text(provider.received[-1].messages)
    assert "Never touch the network." in in_child
    assert "a.py b.py" not in in_child


def test_instructions_in_an_open_child_hold_on_behind_its_pop(stage: Stage, provider: ScriptedProvider) -> None:
    """An application may give the model new instructions in mid-history: they bind whatever work comes next."""
    chat = stage.chat()
    provider.will(
        does(push("Auth")),
        does(push("Tokens")),
        does(bash("ls")),
        says("Two files."),
        does(bash("pytest")),
        does(pop("The tokens are done.")),
        does(pop("The login works.")),
        says("Done."),
        says("Nothing."),
    )
    chat.says("add a login")
    chat.returns("a.py b.py")
    role = "system" if stage.tongue is MESSAGES else "developer"
    chat.history.append({"role": role, "content": "From now on never touch the network."})
    chat.says("and now test it")
    chat.returns("3 passed")
    chat.says("what is left?")

    line = provider.received[-1].messages
    assert [text.count("never touch the network") for text in texts(line)].count(1) == 1
    assert any(text.endswith("From now on never touch the network.") for text in texts(line))
    assert "a.py b.py" not in as_one_text(line)


@pytest.mark.rows("S0-01", "S0-02", "S0-04", "S0-18", "S0-31", "S1-32", "S0-41", "S1-02", "S2-34", "S2-09")
def test_depth_3_popped_one_by_one(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-01, S0-02, S0-04, S0-18, S0-31, S1-32: each pop returns into its parent, its work leaves."""
    provider.will(
        does(push("A")), says("in A"), does(push("B")), says("in B"), does(push("C")), says("in C"),
        does(pop("C is done.")), says("back in B"), does(pop("B is done.")), says("back in A"),
        does(pop("A is done.")), says("back at the root"), says("end"),
    )  # fmt: skip
    for number in range(6):
        chat.says(f"step {number}")
    chat.says("and?")

    line = as_one_text(provider.received[-1].messages)
    assert "A is done." in line
    assert all(words not in line for words in ("B is done.", "C is done."))
    spoken = spoken_on(provider.received[-1].messages)
    assert all(words not in spoken for words in ("in A", "in B", "in C", "back in A"))
    assert "back at the root" in line
    assert chat.proxy.statuses() == {"step 0": "in_progress", "A": "completed", "B": "completed", "C": "completed"}
    in_b = as_one_text(provider.received[7].messages)
    assert "C is done." in in_b
    assert "in C" not in spoken_on(provider.received[7].messages)
    assert "in B" in in_b


def test_consecutive_pops_each_return_into_the_next(provider: ScriptedProvider, chat: Conversation) -> None:
    provider.will(
        does(push("A")), says("in A"), does(push("B")), says("in B"),
        does(pop("B is done."), pop("A is done.")), says("back"), says("end"),
    )  # fmt: skip
    for number in range(3):
        chat.says(f"step {number}")
    chat.says("and?")

    line = as_one_text(provider.received[-1].messages)
    assert "A is done." in line
    assert "in A" not in spoken_on(provider.received[-1].messages)
    assert "in B" not in spoken_on(provider.received[-1].messages)
    assert chat.proxy.active() == "step 0"


@pytest.mark.parametrize("end", [pop, lambda: op("invalidate", reason="not needed")], ids=["pop", "invalidate"])
def test_a_frame_begun_on_the_way_and_left_by_its_child_in_one_message_ends_like_any(
    stage: Stage, provider: ScriptedProvider, chat: Conversation, end: Callable[[], ScriptedCall]
) -> None:
    """The answer of the first end stays in the message of the parent's, where nothing of it may be out of date."""
    provider.will(
        does(plan("A"), plan("B", parentSessionID="A")),
        does(activate("B"), end()),
        does(bash("ls")),
        does(end()),
        says("back"),
    )
    chat.says("begin")
    assert chat.proxy.active() == "A"
    way = chat.proxy.frames()["A"]["sessionID"]
    in_a = "\n".join(texts(provider.received[2].messages[-2:]))
    assert f'parent="{way}"' in in_a or f"You are back in {way} (A)" in in_a

    chat.returns("files")

    assert chat.proxy.active() == "begin"
    at_the_root = "\n".join(texts(provider.received[4].messages[-2:]))
    assert f'ref="{way}"' in at_the_root
    assert f"You are back in {way}" not in at_the_root
    assert f"Active: {way}" not in at_the_root


@pytest.mark.parametrize(
    "ends",
    [
        [pop("B is done."), pop("A is done.")],
        [op("invalidate", reason="not needed"), pop("A is done.")],
        [op("invalidate", reason="not needed"), op("invalidate", reason="that neither")],
        [pop("B is done."), op("invalidate", reason="not needed")],
    ],
    ids=["pop pop", "invalidate pop", "invalidate invalidate", "pop invalidate"],
)
def test_a_push_behind_several_ends_stands_where_the_last_of_them_returned(
    stage: Stage, provider: ScriptedProvider, ends: list[ScriptedCall]
) -> None:
    """The message itself has left the line by then; so has the call that opened the frame it stood in."""
    chat = stage.chat(streamed=False)
    provider.will(
        does(push("A")), says("in A"), does(push("B")), says("in B"),
        does(*ends, push("C")), says("in C"), does(pop("C is done.")), says("back"),
    )  # fmt: skip
    for number in range(3):
        chat.says(f"step {number}")

    frames = chat.proxy.frames()
    assert chat.proxy.active() == "C"
    opened = next(m for m in provider.received[5].messages if m["role"] == "tool")
    assert f'frame="{frames["C"]["sessionID"]}"' in opened["content"]
    assert frames["A"]["sessionID"] in opened["content"]
    assert "in A" not in spoken_on(provider.received[5].messages)

    chat.says("go on")

    assert "C is done." in as_one_text(provider.received[-1].messages)
    assert chat.proxy.active() == "step 0"


def test_a_pop_of_an_ancestor_closes_the_frames_below_as_blocked(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    provider.will(
        does(push("A")), says("in A"), does(push("B")), says("in B"),
        does(pop("A is done without B.", frameID="A")), says("back"),
    )  # fmt: skip
    for number in range(3):
        chat.says(f"step {number}")

    assert chat.proxy.statuses() == {"step 0": "in_progress", "A": "completed", "B": "blocked"}
    assert chat.proxy.active() == "step 0"


@pytest.mark.rows("X-10", "S1-74", "S4-67")
def test_plan_and_activate_in_one_message_beside_a_client_call(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-10, S1-74: plan, activate and a client call share a group; all three results come back in call order."""
    provider.will(does(plan("A", "B"), activate("A"), bash("ls")), says("ok"))
    chat.says("two things")

    chat.returns("files")

    line = provider.received[1].messages
    made = [c["function"]["name"] for c in line[-4]["tool_calls"]]
    assert made == ["stack_frame_plan", "stack_frame_activate", "bash"]
    assert "A works" in line[-2]["content"]
    assert chat.proxy.active() == "A"


def test_arguments_cut_by_length(provider: ScriptedProvider, chat: Conversation) -> None:
    """A stack call that the output limit cut off is dropped: the client sees the text, the next line has no trace."""
    broken = ScriptedAnswer(
        text="I will begin.", calls=(ScriptedCall("stack_frame_push", '{"title": "Au'),), finish="length"
    )
    provider.will(broken, says("Fine."))

    answer = chat.says("add a login")

    assert answer.text == "I will begin."
    assert answer.finishes == ["length"]
    assert list(chat.proxy.frames()) == ["add a login"]
    chat.says("go on")
    assert "stack_frame_push" not in json.dumps(provider.received[-1].messages[1:])


def test_the_end_of_long_words_that_left_with_a_step_is_asked_for_by_their_ref(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """What the user says is never lost; of a long message the trace says the beginning, and where all of it is."""
    chat = stage.chat(tools=("bash", "update_plan"))
    provider.will(
        does(stepping(Greet="in_progress", Look="pending")),
        does(bash("cat greeting.py")),
        does(push("Auth")), says("How?"),
        says("With JWT, then."),
        does(pop("The login works.")), does(stepping(Greet="completed", Look="in_progress")),
        does(bash("look")),
    )  # fmt: skip
    chat.says("add a login")
    chat.returns("planned")
    chat.returns("greeting " * 4_000)
    chat.says("use JWT, please; " + "and mind the tests, " * 200 + "and never log the key 4711")
    chat.says("go on")
    chat.returns("planned")

    line = as_one_text(provider.received[-1].messages)
    assert "The user said there: use JWT, please" in line
    assert "never log the key 4711" not in line
    told = re.search(r"\[truncated\] All of it: stack_recall with ref (\w+)\.", line)
    assert told
    provider.will(does(call("stack_recall", ref=told[1])), says("I will."))
    chat.returns("looked")
    assert "never log the key 4711" in as_one_text(provider.received[-1].messages)
