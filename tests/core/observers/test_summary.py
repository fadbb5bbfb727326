"""Whether a message asks for a summary of the conversation it stands in (S1-66, X-06)."""

from __future__ import annotations

import pytest

from proxy.core.observers.turns import SUMMARY_REQUEST_WINDOW, asks_for_summary
from tests.pace import within


@pytest.mark.parametrize(
    "text",
    [
        "Summarize the conversation so far.",
        "Please write a detailed summary of our whole chat, I will go on in a new one.",
        "Create a handoff note for another agent that will continue. Hand-off for another model: all of it.",
        "Your context window is nearly full. Compact what was done before you go on with the context window empty.",
        "Recap this session in ten lines.",
        "You are now given a task to compact this conversation context according to specific priorities.",
        "Summarize the conversation history so far, paying special attention to the most recent tool results.",
        "First, reason in your scratchpad. Then, generate the <state_snapshot>.",
        "Condense everything so far; keep every path.",
        "TEXT ONLY.\n\nProduce a summary of the above conversation\n" + "with these sections\n" * 900,
        "Rules\n" * 2_000 + "Now give me the summary of this conversation.",
        "<system-reminder>today is Monday</system-reminder>\nSummarise our discussion.",
        "What was said:\n```\nfine, go on\n```\nSummarize the conversation so far.",
        "What was said:\n```python\nfine, go on\nNow summarize the conversation so far.",
    ],
)
def test_who_wants_all_of_it_in_short_asks_for_a_summary(text: str) -> None:
    assert asks_for_summary(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Summarize README.md in two sentences.",
        "Add a summary line to the report of the session handling tests.",
        "Make the compact view of the list the default.",
        "Show a summary above the conversation history component of the page.",
        "<state_snapshot><overall_goal>A retry in net.py.</overall_goal></state_snapshot>",
        "The conversation view is broken: fix it.",
        "Write a summary of the last commit.",
        "Here is a summary of the conversation to date:\n\nGoal: notes.",
        "This session is being continued from a previous conversation. The summary below covers it.",
        "<system-reminder>x</system-reminder>\nThis conversation was compacted. Summary of the conversation so far: a.",
        "Another language model started to solve this and produced a summary of its conversation so far.",
        "I ran it and got:\n\n```\nsave.py: # a summary of the conversation so far\n```",
        "I ran it and got:\n~~~text\n```\nA summary of the whole session\n~~~\n",
        "word " * SUMMARY_REQUEST_WINDOW + "summarize this conversation" + " word" * SUMMARY_REQUEST_WINDOW,
    ],
)
def test_a_summary_of_something_else_or_one_that_is_brought_is_no_question(text: str) -> None:
    assert not asks_for_summary(text)


def test_no_text_takes_long() -> None:
    """Every request that ends with the user's words is looked at."""
    asked = "Summarize the conversation so far.\n"
    fences = (asked + "```x\n" * 10_000, asked + "```\n```x\n" * 10_000)
    for text in (
        *fences,
        "summary " * 800,
        "this whole work of the team and another file " * 140,
        "the " * 2_000,
        "a" * 10**6,
    ):
        with within(0.05):
            asks_for_summary(text)
