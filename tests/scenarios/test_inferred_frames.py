"""Frames nobody pushed: the client's plan mirrored in every form clients state it in, and requests of the user
(S1-76, S1-81, DESIGN 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest

from llm_test_provider import ScriptedAnswer, ScriptedCall, ScriptedProvider, call, says
from tests.harness import Conversation, Json, Stage, activate, as_one_text, bash, does, pop, push, texts
from tests.scenarios.sessions import TOOLS, Session, portrait, shaped, todo

Items = dict[str, str]
"""Titles and how they stand: planned, doing or done."""
WORDS = {"planned": "pending", "doing": "in_progress", "done": "completed"}
BOXES = {"planned": " ", "doing": "-", "done": "x"}


# --------------------------------------------------------------------------------------------------- the client's forms
class WholeList:
    """A tool that states the whole list each time."""

    def __init__(self, state: Callable[[Items], ScriptedCall]) -> None:
        self.state = state

    def groups(self, items: Items) -> Iterable[list[tuple[ScriptedCall, str]]]:
        yield [(self.state(items), "ok")]


class OneByOne:
    """TaskCreate and TaskUpdate: ids of new items stand in the results, so a new item is updated in the next group."""

    def __init__(self) -> None:
        self.known: Items = {}

    def groups(self, items: Items) -> Iterable[list[tuple[ScriptedCall, str]]]:
        titles = [*self.known, *(title for title in items if title not in self.known)]
        numbers = {title: str(number) for number, title in enumerate(titles, 1)}
        if new := [title for title in titles if title not in self.known]:
            made = [call("TaskCreate", subject=title, description=f"Do {title}.") for title in new]
            yield [
                (one, f"Task #{numbers[title]} created successfully: {title}")
                for one, title in zip(made, new, strict=True)
            ]
        moved = {title: status for title, status in items.items() if self.known.get(title, "planned") != status}
        gone = [title for title in self.known if title not in items]
        if moved or gone:
            words = {**{title: WORDS[status] for title, status in moved.items()}, **dict.fromkeys(gone, "deleted")}
            yield [
                (call("TaskUpdate", taskId=numbers[title], status=word), f"Updated task #{numbers[title]} status")
                for title, word in words.items()
            ]
        self.known = {title: items.get(title, "gone") for title in titles}


def as_todos(items: Items) -> ScriptedCall:
    stated = [{"content": t, "status": WORDS[s], "activeForm": t, "priority": "high"} for t, s in items.items()]
    return call("TodoWrite", todos=stated)


def as_update_plan(items: Items) -> ScriptedCall:
    return call("update_plan", explanation="on we go", plan=[{"step": t, "status": WORDS[s]} for t, s in items.items()])


def as_checklist(items: Items) -> ScriptedCall:
    return call("task_tracker", command="plan", task_list="\n".join(f"- [{BOXES[s]}] {t}" for t, s in items.items()))


FORMS: dict[str, Callable[[], WholeList | OneByOne]] = {
    "todo list": lambda: WholeList(as_todos),
    "update_plan": lambda: WholeList(as_update_plan),
    "checklist": lambda: WholeList(as_checklist),
    "one by one": OneByOne,
}


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> WholeList | OneByOne:
    return FORMS[request.param]()


@pytest.fixture
def planner(stage: Stage) -> Conversation:
    return stage.chat(tools=TOOLS)


class Work:
    """One turn of a model that works on a plan; `asked` is the user's message."""

    def __init__(self, chat: Conversation, provider: ScriptedProvider, form: WholeList | OneByOne) -> None:
        self.chat, self.provider, self.form = chat, provider, form
        self.groups: list[list[tuple[ScriptedCall, str]]] = []

    def plan(self, **items: str) -> Work:
        self.groups += self.form.groups({title.replace("_", " "): status for title, status in items.items()})
        return self

    def run(self, command: str) -> Work:
        self.groups.append([(bash(command), f"{command} is done")])
        return self

    def ends(self, asked: str, closing: str = "There.") -> None:
        self.provider.will(
            *(ScriptedAnswer(calls=tuple(one for one, _ in group)) for group in self.groups), says(closing)
        )
        self.chat.says(asked)
        for group in self.groups:
            self.chat.returns(*(result for _, result in group))
        self.groups = []


def commands(chat: Conversation) -> str:
    """The portrait without the calls of plan tools, which differ from form to form."""
    drawn = portrait(chat.proxy).splitlines()
    plain = ("TodoWrite", "update_plan", "task_tracker", "TaskCreate", "TaskUpdate")
    return "\n".join(line for line in drawn if not line.strip().startswith(plain))


# ----------------------------------------------------------------------------------------------------------- the plan
@pytest.mark.rows("S1-76")
def test_items_become_frames_that_own_what_is_done_in_them(
    provider: ScriptedProvider, planner: Conversation, form: WholeList | OneByOne
) -> None:
    """S1-76: planned, entered, completed; what was done before the first and behind the last item is the parent's."""
    work = Work(planner, provider, form)
    work.run("look").plan(Lexer="planned", Parser="planned", Printer="planned")
    work.plan(Lexer="doing", Parser="planned", Printer="planned").run("lex")
    work.plan(Lexer="done", Parser="doing", Printer="planned").run("parse").run("test")
    work.plan(Lexer="done", Parser="done", Printer="planned").run("think")
    work.ends("Build the formatter.")

    assert commands(planner) == shaped(
        """
        root in_progress: Build the formatter.
            user: Build the formatter.
            run look
            run think
            says: There.
          plan completed: Lexer
              run lex
          plan completed: Parser
              run parse
              run test
          plan planned: Printer
        """
    )


@pytest.mark.rows("S1-76")
def test_an_item_taken_off_the_plan_is_invalidated(
    provider: ScriptedProvider, planner: Conversation, form: WholeList | OneByOne
) -> None:
    """S1-76: one that never began, and one that was under way."""
    work = Work(planner, provider, form)
    work.plan(Lexer="doing", Parser="planned").run("lex").plan(Printer="doing").run("print")
    work.ends("Build the formatter.")

    assert commands(planner) == shaped(
        """
        root in_progress: Build the formatter.
            user: Build the formatter.
          plan invalidated: Lexer
              run lex
          plan invalidated: Parser
          plan in_progress: Printer
              run print
              says: There.
        """
    )


def test_an_item_done_that_never_began_leaves_no_work_behind(
    provider: ScriptedProvider, planner: Conversation, form: WholeList | OneByOne
) -> None:
    work = Work(planner, provider, form)
    work.plan(Lexer="planned", Parser="planned").run("lex").plan(Lexer="done", Parser="doing").run("parse")
    work.ends("Build the formatter.")

    assert commands(planner) == shaped(
        """
        root in_progress: Build the formatter.
            user: Build the formatter.
            run lex
          plan completed: Lexer
          plan in_progress: Parser
              run parse
              says: There.
        """
    )


def test_an_item_done_that_never_began_is_told_without_a_ref(stage: Stage, provider: ScriptedProvider) -> None:
    """A block points at a recall only where that finds something."""
    chat = stage.chat(stage.proxy(child_view="isolate"), tools=TOOLS)
    provider.will(does(todo("[>] Lexer | [ ] Parser")), does(bash("lex")))
    provider.will(does(todo("[x] Lexer | [x] Parser | [>] Printer")), does(bash("print")))
    provider.will(does(push("Layout")), says("There."))
    chat.says("Build the formatter.")
    for _ in range(4):
        chat.returns("ok")

    block = "\n".join(texts(provider.received[-1].messages))
    frames = {title: frame["sessionID"] for title, frame in chat.proxy.frames().items()}
    assert f'<frame ref="{frames["Lexer"]}" status="completed">\n<title>Lexer</title>' in block
    assert f'<frame id="{frames["Parser"]}" status="completed">\n<title>Parser</title>' in block


def test_of_several_items_under_way_the_newest_owns_what_is_done(
    provider: ScriptedProvider, planner: Conversation, form: WholeList | OneByOne
) -> None:
    """DESIGN 9: once it is done, the work goes on in the other one."""
    work = Work(planner, provider, form)
    work.plan(Lexer="doing", Parser="planned").run("lex")
    work.plan(Lexer="doing", Parser="doing").run("both").plan(Lexer="doing", Parser="done").run("lex again")
    work.plan(Lexer="done", Parser="done").ends("Build the formatter.")

    assert commands(planner) == shaped(
        """
        root in_progress: Build the formatter.
            user: Build the formatter.
            says: There.
          plan completed: Lexer
              run lex
              run lex again
          plan completed: Parser
              run both
        """
    )


@pytest.mark.rows("S1-76")
def test_a_plan_made_for_a_later_request_is_nested_under_it(
    provider: ScriptedProvider, planner: Conversation, form: WholeList | OneByOne
) -> None:
    """S1-76: frames nest as the work does."""
    work = Work(planner, provider, form)
    work.run("look").ends("Fix the title of the handbook.", "The title is right now.")
    work.plan(Lexer="doing", Parser="planned").run("lex").plan(Lexer="done", Parser="doing").run("parse")
    work.ends("Implement a formatter for our configuration language.")

    assert commands(planner) == shaped(
        """
        root in_progress: Fix the title of the handbook.
          request completed: Fix the title of the handbook.
              user: Fix the title of the handbook.
              run look
              says: The title is right now.
          request in_progress: Implement a formatter for our configurat
              user: Implement a formatter for our configurat
            plan completed: Lexer
                run lex
            plan in_progress: Parser
                run parse
                says: There.
        """
    )


def test_a_call_that_closes_one_item_and_opens_the_next_begins_the_next(
    provider: ScriptedProvider, planner: Conversation
) -> None:
    """DESIGN 9: the first group of the frame it opens; one that only closes belongs to the parent."""
    played = Session(planner, provider, padding=0)
    played.plays(
        """
        user: Build the formatter.
        todo: [>] Lexer | [ ] Parser
        run lex
        todo: [x] Lexer | [>] Parser
        run parse
        todo: [x] Lexer | [x] Parser
        says: There.
        """
    )

    assert portrait(planner.proxy) == shaped(
        """
        root in_progress: Build the formatter.
            user: Build the formatter.
            TodoWrite
            says: There.
          plan completed: Lexer
              TodoWrite
              run lex
          plan completed: Parser
              TodoWrite
              run parse
        """
    )


def test_a_call_beside_work_takes_the_whole_group_with_it(provider: ScriptedProvider, planner: Conversation) -> None:
    """A call group is never cut through."""
    played = Session(planner, provider, padding=0)
    played.plays(
        """
        user: Build the formatter.
        todo: [>] Lexer | [ ] Parser & run lex
        run test
        todo: [x] Lexer | [>] Parser & run parse & read a.py
        says: There.
        """
    )

    assert portrait(planner.proxy) == shaped(
        """
        root in_progress: Build the formatter.
            user: Build the formatter.
          plan completed: Lexer
              TodoWrite & run lex
              run test
          plan in_progress: Parser
              TodoWrite & run parse & read a.py
              says: There.
        """
    )


@pytest.mark.rows("S1-76")
def test_an_item_that_waits_again_is_blocked_and_goes_on_later(
    provider: ScriptedProvider, planner: Conversation
) -> None:
    """S1-76: what was done in it before is still its own."""
    played = Session(planner, provider, padding=0)
    played.plays(
        """
        user: Build the formatter.
        todo: [>] Lexer | [ ] Parser
        run lex
        todo: [ ] Lexer | [>] Parser
        run parse
        todo: [>] Lexer | [x] Parser
        run lex again
        says: There.
        """
    )

    frames = planner.proxy.statuses()
    assert frames == {"Build the formatter.": "in_progress", "Lexer": "in_progress", "Parser": "completed"}
    log = [each["text"] for each in planner.proxy.log(planner.proxy.frames()["Lexer"]["sessionID"])]
    assert any("output-2-here" in text for text in log)
    assert any("output-6-here" in text for text in log)
    assert played.outputs_sent() == [1, 2, 3, 4, 5, 6]


def test_a_failed_call_of_a_plan_tool_changes_nothing(provider: ScriptedProvider, planner: Conversation) -> None:
    provider.will(does(todo("[>] Lexer | [ ] Parser")), says("There."))
    planner.says("Build the formatter.")
    planner.returns("<tool_use_error>InputValidationError: todos[0].activeForm is missing</tool_use_error>")

    assert planner.proxy.statuses() == {"Build the formatter.": "in_progress"}


# ------------------------------------------------------------------------------------------- beside frames of the model
def test_a_frame_that_the_model_pushed_is_not_ended_by_the_plan(
    provider: ScriptedProvider, planner: Conversation
) -> None:
    """An item that closes while a pushed frame works below it waits for the model's pop."""
    provider.will(
        does(todo("[>] Lexer | [ ] Parser")), does(push("Deep")), does(bash("dig")),
        does(todo("[x] Lexer | [>] Parser")), does(bash("dig on")), does(pop("It was deep.")), says("There."),
    )  # fmt: skip
    planner.says("Build the formatter.")
    for result in ("ok", "dug", "ok", "dug on"):
        planner.returns(result)

    statuses = planner.proxy.statuses()
    assert statuses["Deep"] == "completed"
    assert statuses["Lexer"] == "in_progress"
    assert statuses["Parser"] == "planned"
    assert "It was deep." in planner.proxy.frames()["Deep"]["results"]


def test_items_planned_inside_a_pushed_frame_stand_under_it(provider: ScriptedProvider, planner: Conversation) -> None:
    provider.will(
        does(push("Deep")), does(todo("[>] Lexer | [ ] Parser")), does(bash("lex")),
        does(todo("[x] Lexer | [x] Parser")), does(pop("It was deep.")), says("There."),
    )  # fmt: skip
    planner.says("Build the formatter.")
    for result in ("ok", "lexed", "ok"):
        planner.returns(result)

    assert portrait(planner.proxy, steps=False) == shaped(
        """
        root in_progress: Build the formatter.
          model completed: Deep
            plan completed: Lexer
            plan completed: Parser
        """
    )
    assert planner.proxy.active() == "Build the formatter."


def test_words_that_go_on_inside_a_frame_of_the_model_open_none(
    provider: ScriptedProvider, planner: Conversation
) -> None:
    """The model decides when its frame ends, unless the user asks for something else (`test_forgotten_frames`)."""
    provider.will(
        does(push("Deep")), does(bash("dig")), says("Dug. Shall I dig on?"), does(bash("date")), says("It is late."),
        does(pop("It was deep.")), says("Back."),
    )  # fmt: skip
    planner.says("Build the formatter.")
    planner.returns("dug")
    planner.says("yes, go on")
    planner.returns("five")
    planner.says("and now finish")

    assert list(planner.proxy.statuses().values()) == ["in_progress", "completed"]
    assert planner.proxy.active() == "Build the formatter."


# ---------------------------------------------------------------------------------------------------- interrupted turns
def test_an_interrupted_turn_is_not_cut(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 9: a turn that ended in calls is not over, whatever the user says next."""
    played = Session(stage.chat(tools=TOOLS), provider)
    provider.will(does(bash("build")), does(bash("never run")), says("Translated."))
    played.chat.says("Build the formatter.")
    played.chat.returns(played.output("built"))

    played.chat.says("Unrelated: translate the onboarding email into French.")

    assert portrait(played.chat.proxy, steps=False) == "root in_progress: Build the formatter."
    assert played.outputs_sent() == [1]


def test_a_thread_without_tools_has_no_frames_but_its_root(provider: ScriptedProvider, stage: Stage) -> None:
    chat = stage.chat(tools=())
    provider.will(says("A mutex has an owner."), says("Here is a poem."), says("Bonjour."))
    for asked in ("What is a mutex?", "New topic: write a poem about the sea.", "Unrelated: translate hello."):
        chat.says(asked)

    assert list(chat.proxy.statuses()) == ["What is a mutex?"]


def test_several_messages_of_the_user_are_one_request(provider: ScriptedProvider, planner: Conversation) -> None:
    """Clients put reminders and pictures in messages of their own beside it."""
    provider.will(does(bash("look")), says("Fixed."), says("Translated."))
    planner.says("Fix the typo in the handbook.")
    planner.returns("ok")
    planner.history.append({"role": "user", "content": "Unrelated: translate the onboarding email into French."})
    planner.says("The email is in emails/onboarding.txt.")

    assert portrait(planner.proxy) == shaped(
        """
        root in_progress: Fix the typo in the handbook.
          request completed: Fix the typo in the handbook.
              user: Fix the typo in the handbook.
              run look
              says: Fixed.
          request in_progress: Translate the onboarding email into Fren
              user: Unrelated: translate the onboarding emai
              user: The email is in emails/onboarding.txt.
              says: Translated.
        """
    )


def test_frames_are_seen_while_the_thread_sleeps(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 8: asleep, frames are inferred; nothing is injected and nothing cut."""
    played = Session(stage.chat(stage.proxy(wake_at_tokens=1_000_000), tools=TOOLS), provider)
    played.plays(
        """
        user: Fix the typo in the handbook.
        edit handbook.md
        says: Fixed.
        user: Implement a formatter for our configuration language.
        todo: [>] Lexer
        run lex
        says: There.
        """
    )

    assert portrait(played.chat.proxy, steps=False) == shaped(
        """
        root in_progress: Fix the typo in the handbook.
          request completed: Fix the typo in the handbook.
          request in_progress: Implement a formatter for our configurat
            plan in_progress: Lexer
        """
    )
    assert {r["status"] for r in played.chat.proxy.receipts()} == {"asleep"}


def test_what_is_not_wanted_is_not_inferred(stage: Stage, provider: ScriptedProvider) -> None:
    """By configuration: plans, requests, each for itself."""
    script = """
        user: Fix the typo in the handbook.
        edit handbook.md
        says: Fixed.
        user: Implement a formatter for our configuration language.
        todo: [>] Lexer
        run lex
        says: There.
    """
    without_plans = Session(stage.chat(stage.proxy(mirror_plans="false"), tools=TOOLS), provider)
    without_plans.plays(script)
    without_requests = Session(stage.chat(stage.proxy(infer_requests="false"), tools=TOOLS), provider)
    without_requests.plays(script)

    assert "plan" not in portrait(without_plans.chat.proxy, steps=False)
    assert "request completed" in portrait(without_plans.chat.proxy, steps=False)
    assert "request" not in portrait(without_requests.chat.proxy, steps=False)
    assert "plan in_progress: Lexer" in portrait(without_requests.chat.proxy, steps=False)


@pytest.mark.rows("X-17")
def test_a_tool_of_the_users_own_is_a_plan_by_configuration(stage: Stage, provider: ScriptedProvider) -> None:
    """X-17: the table can be extended."""
    flags: Json = {"observe__set_steps__role": "plan"}
    chat = stage.chat(stage.proxy(**flags), tools=("bash", "set_steps"))
    provider.will(does(call("set_steps", items=[{"title": "Lexer", "status": "active"}])), says("There."))
    chat.says("Build the formatter.")
    chat.returns("ok")

    assert chat.proxy.statuses()["Lexer"] == "in_progress"


def test_a_request_that_is_seen_later_brings_nothing_back_of_a_frame_that_was_popped_in_it(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """L2, L3, DESIGN 9: a turn in which the model pushed and popped becomes part of a frame nobody pushed."""
    provider.will(
        does(push("Tokens")),
        does(bash("pytest")),
        does(pop("12 passed.")),
        says("They do."),
    )
    chat.says("Add a login with tokens.")
    chat.returns("12 passed in 0.1 s")
    before = provider.received[-1].messages
    provider.will(says("There is a token bucket."))

    chat.says("Implement a rate limiter for the public API.")

    assert provider.received[-1].messages[: len(before)] == before
    assert "cancelled" not in str(provider.received[-1].messages)


def test_an_item_begun_in_the_turn_of_a_push_leaves_the_push_where_it_was_made(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """L2, S0-21: what a popped frame returned stands on its line, whatever the client's plan did in between."""
    items = [{"content": "Lexer", "status": "in_progress"}, {"content": "Parser", "status": "pending"}]
    provider.will(does(push("Tokens")), does(call("todowrite", todos=items)))
    provider.will(
        does(pop("Tokens are done.")),
        says("Ok."),
        says("You are welcome."),
    )
    chat.tools = ("bash", "todowrite")
    chat.says("Build the formatter.")
    chat.returns("Plan updated.")

    chat.says("Thanks!")

    returned = [m["content"] for m in provider.received[-1].messages if m["role"] == "tool"]
    assert len(returned) == 1
    assert "Tokens are done." in returned[0]


@pytest.mark.parametrize("status", ["completed", "blocked"])
def test_an_item_planned_in_a_frame_that_has_returned_is_begun_where_the_work_is(
    provider: ScriptedProvider, chat: Conversation, status: str
) -> None:
    """L2: the plan outlives the frame it was made in, and what that frame did stays off the line."""
    provider.will(
        does(push("Tokens")),
        does(todo("[>] Lexer | [ ] Parser")),
        does(bash("make lexer")),
    )
    provider.will(
        does(pop("Tokens are done.", status)),
        does(bash("ls")),
    )
    provider.will(does(todo("[x] Lexer | [>] Parser")), does(bash("make parser")), says("All is done."))
    chat.tools = ("bash", "TodoWrite")
    chat.says("Build the formatter.")
    for result in ("Plan updated.", "lexer made", "lexer.py", "Plan updated again.", "parser made"):
        chat.returns(result)

    lines = [str(r.messages) for r in provider.received]
    frames = chat.proxy.frames()
    assert "lexer made" not in lines[-1]
    assert "Plan updated again." in lines[-1]
    assert frames["Tokens"]["status"] == status
    assert frames["Parser"]["parentSessionID"] == frames["Build the formatter."]["sessionID"]
    assert chat.proxy.active() == "Parser"


# ------------------------------------------------------------------------------------------------------ another attempt
@pytest.mark.rows("S0-34", "C6")
def test_items_of_an_attempt_do_not_come_back_with_the_next_one(stage: Stage, provider: ScriptedProvider) -> None:
    """C6: what was done in them is told as the result of the call that opened the frame, as all of the attempt is. An
    item that is taken up again goes on without what it did then."""
    chat = stage.chat(tools=TOOLS)
    provider.will(
        does(push("Deploy")),
        does(todo("[>] Build | [ ] Ship")),
        does(bash("make all")),
        does(todo("[x] Build | [>] Ship")),
        does(bash("ship without a key")),
        does(call("stack_frame_pop", frameID="Deploy", status="blocked", results="Needs the key.")),
        says("I need the key."),
    )
    chat.says("Deploy the shop.")
    for output in ("ok", "built: 40 files", "ok", "refused: no key"):
        chat.returns(output)
    before = provider.received[-1].messages
    provider.will(
        does(activate("Deploy")),
        does(todo("[x] Build | [>] Ship")),
        does(bash("ship with the key")),
        says("Shipped."),
    )
    chat.says("Here is the key.")
    chat.returns("ok")
    chat.returns("shipped")

    line = provider.received[-1].messages
    assert line[: len(before)] == before
    assert "built: 40 files" not in as_one_text(line)
    assert "refused: no key" not in as_one_text(line)
    assert "ship with the key" in as_one_text(line)
    assert "shipped" in as_one_text(line)
    assert chat.proxy.active() == "Ship"


@pytest.mark.rows("S1-76")
@pytest.mark.parametrize("status", ["completed", "blocked"])
def test_an_item_that_the_model_begins_and_pops_leaves_by_a_fold_alone(
    stage: Stage, provider: ScriptedProvider, status: str
) -> None:
    """Its work is on the line of its parent, as that of every item. So nothing that stands before that changes, or all
    of it would be written to the cache anew."""
    chat = stage.chat(tools=TOOLS)
    provider.will(
        does(todo("[ ] Build | [ ] Ship")), does(activate("Build")), does(bash("make all")), says("Made."),
        does(pop("It is built.", status)), says("Well."),
    )  # fmt: skip
    chat.says("Deploy the shop.")
    chat.returns("ok")
    chat.returns("built: 40 files")
    chat.says("go on")
    if status == "blocked":
        provider.will(does(activate("Build")), says("Built."))
        chat.says("try it again")

    lines = [sent.messages for sent in provider.received]
    assert all(after[: len(before)] == before for before, after in pairwise(lines))
    assert chat.proxy.statuses()["Build"] == ("completed" if status == "completed" else "in_progress")
