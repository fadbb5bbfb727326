"""DESIGN 9, user turns: what merely continues is joined to the turn before it."""

from collections.abc import Callable

import pytest

from proxy.core.ledger.messages import Message
from proxy.core.observers.turns import (
    MAX_TURN_TEXT_LENGTH,
    continues_by_wording,
    continues_turn,
    ends_with_user_message,
    first_user_text,
    order_of,
    task_text_of,
    typed_text_of,
)
from proxy.dialects import raw_json
from proxy.dialects.chat import message as chat_message
from proxy.dialects.messages import message as anthropic_message
from proxy.dialects.responses import items as responses_item
from tests.core.observers.labelled_turns import CONTINUES, ORDERS_THAT_GO_ON, ORDERS_THAT_START, STARTS, Pair
from tests.pace import within


@pytest.mark.parametrize("pair", CONTINUES, ids=lambda pair: pair.text[:40])
def test_ordinary_sessions_go_on(pair: Pair) -> None:
    """Edit-test cycles, follow-up questions, "yes, go ahead": none of these may fold what it needs."""
    assert continues_turn(*pair)


@pytest.mark.parametrize("pair", STARTS, ids=lambda pair: pair.text[:40])
def test_a_change_of_topic_starts_something(pair: Pair) -> None:
    assert not continues_turn(*pair)


@pytest.mark.rows("S0-52")
@pytest.mark.parametrize("pair", ORDERS_THAT_START, ids=lambda pair: pair.text[:40])
def test_an_order_starts_something_whatever_pronouns_and_articles_are_in_it(pair: Pair) -> None:
    assert not continues_turn(*pair)


@pytest.mark.rows("S0-52")
@pytest.mark.parametrize("pair", ORDERS_THAT_GO_ON, ids=lambda pair: pair.text[:40])
def test_an_order_that_points_back_goes_on(pair: Pair) -> None:
    assert continues_turn(*pair)


@pytest.mark.rows("S0-52")
@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Another thing: rename the module", "Rename the module"),
        ("Next: the export command should write CSV", "The export command should write CSV"),
        ("Oh and bump the version to 2.2", "Bump the version to 2.2"),
        ("One more change: let the server listen on IPv6", "Let the server listen on IPv6"),
        ("Thanks. Now explain the parser", "Explain the parser"),
        ("Noch eins: übersetze die Mail", "Übersetze die Mail"),
        ("Another thing: pytest.ini is ignored", "pytest.ini is ignored"),
        ("还有一件事:请把日志移走", "请把日志移走"),
        ("now write the changelog", "now write the changelog"),
        ("/mode\n\nread theme.md in full", "read theme.md in full"),
        ("/\n\n'/var/Screenshot.png'\n\nwhy do the colors differ?", "why do the colors differ?"),
        ("/compact", "/compact"),
        ("(conversation starts)", ""),
        ("Hi there!", ""),
        ("Unrelated: explain the parser", "Explain the parser"),
        ("Forget that. The CI is red, look at it", "The CI is red, look at it"),
        ("下一个任务:导出订单为 CSV", "导出订单为 CSV"),
        ("Please fix the cart.", "Please fix the cart."),
        ("ok remove the alias.", "ok remove the alias."),
        ("ok now remove the alias.", "Remove the alias."),
        ("great, so now can you remove the alias", "Can you remove the alias"),
        ("alles gut jetzt entferne den Alias", "alles gut jetzt entferne den Alias"),
        ("ok jetzt entferne den Alias", "Entferne den Alias"),
        ("right now it all breaks at start-up", "right now it all breaks at start-up"),
        ("skip the docs. New task: fix the login", "Fix the login"),
        ("Not needed, thanks. Different task - rename Foo to Bar", "Rename Foo to Bar"),
        ("Never mind the tests.\n\nNext task: rename Foo to Bar", "Rename Foo to Bar"),
        ("lass die Doku. Neue Aufgabe: benenne Foo um", "Benenne Foo um"),
        ("Fix the login. Next task: write the docs", "Fix the login. Next task: write the docs"),
        ("The board says: new task: none. Why?", "The board says: new task: none. Why?"),
        ("its perfect", ""),
        ("What does <time> do in HTML?", "What does <time> do in HTML?"),
        ("Why does `<file>` fail in <info>x</info>?", "Why does `<file>` fail in <info>x</info>?"),
        ("That's good. Now add a test for it", "Add a test for it"),
        ("Good morning!\n\n(new session)\nPlease add a login page", "Add a login page"),
        (
            "<uploaded_files>\n/srv/shop\n</uploaded_files>\nI've uploaded a shop. Fix the tax of orders.",
            "Fix the tax of orders.",
        ),
        ("<uploaded_files>\n/workspace/shop\n</uploaded_files>\nHello", ""),
        ("<environment_context>\n  <cwd>/srv</cwd>\n</environment_context>\n", ""),
        (
            "<user_info>\nOS: linux\nShell: zsh\n</user_info>\n<user_query>\nrename cart.py\n</user_query>",
            "rename cart.py",
        ),
        ('<user_input mode="act">Please rename cart.py</user_input>', "Please rename cart.py"),
        ('<user_input mode="plan">\nAnother thing: rename cart.py\n</user_input>', "Rename cart.py"),
        ("# AGENTS.md instructions for /srv\n\n<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>", ""),
        ("/workspace/shop/cart.py\nAdd a discount to it", "Add a discount to it"),
        ("[Request interrupted by user]", ""),
        ("commit this\n\n[Request interrupted by user]\n\nWhat does the stop hook do?", "What does the stop hook do?"),
        ("commit this\n\n[Request interrupted by user for tool use]", "commit this"),
        ("Base directory for this skill: /srv/skills/plan\n\nWrite the plan.", ""),
        (
            "The totals are wrong. Please recompute all totals in cart.py.",
            "Recompute all totals in cart.py.",
        ),
        ("The totals are wrong. Fix it.", "The totals are wrong. Fix it."),
        ("our git status has broken, why?", "our git status has broken, why?"),
        ("[image]", "[image]"),
        ("Next thing, a small one of its own: a function `count(sql)`", "A function `count(sql)`"),
        ("Thanks. Something else: how do heading ids work here?", "How do heading ids work here?"),
        ("Before I have it documented: our docs have examples.", "Our docs have examples."),
        ("Before you start: read docs/guide.rst and run the tests", "Read docs/guide.rst and run the tests"),
        ("Now a question, change nothing: how does `format` work?", "How does `format` work?"),
        ("Look at one thing: the parser", "Look at one thing: the parser"),
        ("Issue 33: nothing kills the agent", "Issue 33: nothing kills the agent"),
        ("Good, that helps. You said how it works. I want an option `max`.", "An option `max`."),
        (
            "I'd like a report in docs/report.md on what imports httpx.",
            "A report in docs/report.md on what imports httpx.",
        ),
        ("We would like you to write a benchmark", "Write a benchmark"),
        ("One more thing: I\u2019d like to have a table of it", "A table of it"),
        ("I'd like to know why it is slow", "I'd like to know why it is slow"),
        ("I want the export to be fast", "I want the export to be fast"),
        ("Drop that. New topic: the parser is slow", "The parser is slow"),
        ("Let's leave the docs. New task: rename Foo to Bar", "Rename Foo to Bar"),
        ("Let's leave the docs for now. Rename Foo to Bar instead.", "Rename Foo to Bar instead."),
        ("Put that aside. I need a script that counts words.", "A script that counts words."),
        ("Drop the column of mails. New task: write the docs", "Drop the column of mails. New task: write the docs"),
        ("Leave it as it is. Fix the error.", "Leave it as it is. Fix the error."),
        ("算了\uff0c换个话题\uff1a请给解析器写测试", "请给解析器写测试"),
        ("That test is slow. It takes a minute, why?", "That test is slow. It takes a minute, why?"),
        ("In links: the base ends without... sorry, scrap that. Add an option `lower`.", "Add an option `lower`."),
        ("Make it red. No, never mind. Rename the module.", "Rename the module."),
        ("The parser must not forget that. Add a test.", "The parser must not forget that. Add a test."),
        ("The login page is blank. Please fix that.", "The login page is blank. Please fix that."),
        (
            "Hi! You are new here. Please don't change anything yet.",
            "You are new here. Please don't change anything yet.",
        ),
    ],
)
def test_a_title_begins_with_a_capital_behind_words_that_were_left_out(text: str, title: str) -> None:
    assert task_text_of(text) == title


def test_quotes_that_a_client_puts_around_all_of_a_message_are_not_the_users() -> None:
    """`opencode run` sends each argument that has a blank in quotes."""
    said = '"Thank you. Now write the entry \\"Development\\" in <b>CHANGELOG</b>."\n<system-note>x</system-note>'

    assert first_user_text([said], 400) == 'Thank you. Now write the entry "Development" in <b>CHANGELOG</b>.'
    assert task_text_of(first_user_text([said], 400)).startswith("Write the entry")
    assert first_user_text(['"' + "word " * 100 + 'end"'], 20) == "word word word word"
    assert continues_by_wording("Shall I commit it?", '"Yes, please do that."')
    for own in ('"a" or "b"?', 'Say "no"'):
        assert first_user_text([own], 400) == own


def test_what_the_user_typed_is_found_among_a_clients_mark_up() -> None:
    wrapped = (
        "<system-reminder>\nBe brief.\n</system-reminder>\n<command-name>/plan</command-name>\n"
        "<command-args>build a shop</command-args>"
    )
    assert typed_text_of(wrapped) == "build a shop"
    assert typed_text_of("/them\n\nok, next") == "ok, next"
    attached = '<attachments>\n<attachment id="a.py">\nx = 1\n</attachment>\n</attachments>\n<editorContext>\n'
    vs_code = attached + "a.py is open.\n</editorContext>\n<userRequest>\nok, add a retry\n</userRequest>"
    assert typed_text_of(vs_code) == "ok, add a retry"
    assert task_text_of(vs_code) == "Add a retry"
    assert typed_text_of("Rename <user_query> to <q>a</user_query>") == "Rename <user_query> to <q>a</user_query>"
    assert typed_text_of('<user_input mode="act">yes, do it</user_input>') == "yes, do it"


QWEN_FIRST = (
    "This is the Qwen Code. We are setting up the context for our chat.\nToday's date is Friday, November 27, 2026.\n"
    "My operating system is: linux\nI'm currently working in the directory: /srv/shop"
)
CODEX_FIRST = (
    "# AGENTS.md instructions for /srv/shop\n\n<INSTRUCTIONS>\n# Notes\n- Fix the build first.\n\n</INSTRUCTIONS>"
    "<environment_context>\n  <cwd>/srv/shop</cwd>\n</environment_context>"
)
VS_CODE_FIRST = (
    "<environment_info>\nThe user's current OS is: Linux\n</environment_info>\n"
    "<workspace_info>\nI am working in a workspace with the following folders:\n- /srv/shop\n</workspace_info>"
)
KIRO_FIRST = "<EnvironmentContext>\nThis is about the user's environment.\n</EnvironmentContext>"
GPTME_NAG = "<system>No tool call detected in last message. Did you mean to finish?</system>"


@pytest.mark.parametrize(
    "text",
    [
        QWEN_FIRST,
        f"<session_context>\n{QWEN_FIRST}\n</session_context>",
        CODEX_FIRST,
        VS_CODE_FIRST,
        KIRO_FIRST,
        GPTME_NAG,
    ],
)
def test_what_a_client_says_in_the_users_name_is_no_request(text: str) -> None:
    assert first_user_text([text, "Make the tests green."], 400) == "Make the tests green."
    assert not ends_with_user_message([message(text)])
    assert continues_turn("Make the tests green.", "Now I run them.", text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Base directory for this skill: /srv/skills/plan", ""),
        ("'/var/a b/shot 1.png'\nwhy is it grey?", "why is it grey?"),
        ("yes", "yes"),
        ("ok, option 3", "ok, option 3"),
    ],
)
def test_a_message_is_named_by_what_the_user_typed(text: str, name: str) -> None:
    assert order_of(text) == name


@pytest.mark.parametrize("text", ["hi", "(conversation starts)", "<uploaded_files>\n/a\n</uploaded_files>"])
def test_a_message_without_a_task_titles_nothing(text: str) -> None:
    assert first_user_text([text, "Make the tests green."], 400) == "Make the tests green."


@pytest.mark.parametrize(
    "text",
    [
        "What does the <system> tag do?",
        "<system>a</system> or <system>b</system>?",
        "This is the shop. Sell.",
        "<INSTRUCTIONS>Sell.</INSTRUCTIONS>",
    ],
)
def test_the_same_words_in_a_request_are_the_users(text: str) -> None:
    assert first_user_text([text, "Make the tests green."], 400) == text
    assert ends_with_user_message([message(text)])


def message(text: str) -> Message:
    return chat_message.read_message(raw_json.encode({"role": "user", "content": text}))


# ------------------------------------------------------------------------------------------------- pictures and files
BASE64 = "aGVsbG8/d29ybGQ+Zm9vX2Jhci9iYXo" * 200


def in_chat(*parts: object) -> Message:
    return chat_message.read_message(raw_json.encode({"role": "user", "content": list(parts)}))


def in_messages(*blocks: object) -> Message:
    return anthropic_message.read_message(raw_json.encode({"role": "user", "content": list(blocks)}))


def in_responses(*parts: object) -> Message:
    return responses_item.read_item(raw_json.encode({"type": "message", "role": "user", "content": list(parts)}))


def with_chat_picture(words: str) -> Message:
    url = {"url": f"data:image/png;base64,{BASE64}", "detail": "high"}
    return in_chat({"type": "image_url", "image_url": url}, {"type": "text", "text": words})


def with_chat_file(words: str) -> Message:
    return in_chat(
        {"type": "text", "text": words}, {"type": "file", "file": {"file_data": BASE64, "filename": "a.pdf"}}
    )


def with_chat_recording(words: str) -> Message:
    heard = {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}}
    return in_chat(heard, {"type": "text", "text": words})


def with_messages_picture(words: str) -> Message:
    source = {"type": "base64", "media_type": "image/png", "data": BASE64}
    return in_messages({"type": "image", "source": source}, {"type": "text", "text": words})


def with_messages_document(words: str) -> Message:
    source = {"type": "base64", "media_type": "application/pdf", "data": BASE64}
    return in_messages({"type": "document", "title": "Plan", "source": source}, {"type": "text", "text": words})


def with_responses_picture(words: str) -> Message:
    picture = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{BASE64}"}
    return in_responses(picture, {"type": "input_text", "text": words})


EVERY_FORM = [
    with_chat_picture, with_chat_file, with_chat_recording, with_messages_picture, with_messages_document,
    with_responses_picture,
]  # fmt: skip


@pytest.mark.parametrize("told", EVERY_FORM)
@pytest.mark.parametrize("pair", [pair for pair in STARTS if len(pair.text) < 400], ids=lambda pair: pair.text[:40])
def test_a_picture_beside_it_makes_no_new_topic_go_on(told: Callable[[str], Message], pair: Pair) -> None:
    """Two pictures have the words of their wire format in common, and so half of each message."""
    assert not continues_turn(told(pair.before).text, pair.closing, told(pair.text).text)


@pytest.mark.parametrize("told", EVERY_FORM)
def test_what_was_said_beside_a_picture_is_what_was_said(told: Callable[[str], Message]) -> None:
    assert typed_text_of(told("mend the login form").text) == "mend the login form"
    assert first_user_text([told("mend the login form").text], 400) == "mend the login form"
    assert first_user_text([told("").text, "mend it"], 400) == "mend it"
    assert first_user_text([told("").text], 400).strip() in ("[image]", "[file]")


def test_a_picture_alone_goes_on_and_is_a_word_of_the_users() -> None:
    picture = with_messages_picture("<system-reminder>\nBe brief.\n</system-reminder>")
    assert continues_turn("Write the parser", "It is written.", picture.text)
    assert ends_with_user_message([picture])


@pytest.mark.parametrize(
    "text",
    [
        'parse {"type":"user","name":"ann"} and {"file":"a.py"}',
        'why is {"image_url":{"url":"x"},"type": refused?',
        '{"source":' * 5_000 + '"type":"image"',
    ],
    ids=["other objects", "broken", "deep"],
)
def test_json_that_is_no_part_is_what_the_user_typed(text: str) -> None:
    assert typed_text_of(text) == text[:4_000]


@pytest.mark.parametrize("unit", ["<system-a ", "<a_info ", "# AGENTS.md instructions "])
def test_a_task_is_found_in_linear_time(unit: str) -> None:
    with within(1):
        task_text_of(unit * 15_000)


def test_the_quotes_around_a_long_message_are_found_at_once() -> None:
    """To step back to each character took 140 bytes for it, and most of the time."""
    with within(0.05):
        told = typed_text_of(f'"{"a" * 2_000_000}"')

    assert told == "a" * MAX_TURN_TEXT_LENGTH
