"""What does not work here stays in sight when the work that found it out leaves, until a call of its kind works."""

from __future__ import annotations

import re

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Stage, as_one_text, bash, does, pop, push, texts
from tests.scenarios.sessions import TOOLS, Session, made_by

pytestmark = pytest.mark.rows("S0-54", "S0-55")
MISSING = "python: No module named flake8"


def told(provider: ScriptedProvider) -> list[str]:
    """The sections on the newest line, oldest first."""
    line = "\n".join(texts(provider.received[-1].messages))
    return [part.strip() for part in re.findall(r"<does-not-work-here>(.*?)</does-not-work-here>", line, re.DOTALL)]


def test_a_missing_program_is_told_in_the_note_and_not_after_it_was_there(
    stage: Stage, provider: ScriptedProvider
) -> None:
    session = Session(stage.chat(tools=TOOLS), provider)
    lint = f"run pytest -q | tail -1; python -m flake8 agate -> 393 passed\n{MISSING}"
    session.turn("Lint the package.", "read src/a.py", lint, "edit src/a.py", closing="The tests pass; no flake8 here.")
    session.turn("Implement a rate limiter for the public API.", "read src/limit.py", closing="Not yet.")
    (section,) = told(provider)
    assert "flake8" in section
    assert "No module named flake8" in section

    session.turn("Now write the installer.", "run pip install flake8 -> installed", "read b.py", closing="Ok.")
    session.turn("Translate the onboarding email.", "read mail.txt", "edit mail.txt", closing="Done.")
    session.turn("Draw the architecture.", "read arch.md", closing="Done.")
    assert "flake8: works again" in told(provider)[-1]


def test_a_tool_that_cannot_run_is_told_with_the_results_of_a_pushed_frame(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat(tools=("bash", "grep"))
    provider.will(does(push("Find it")), does(bash("hadolint Dockerfile")), does(pop("Not linted.")), says("ok"))
    chat.says("Lint the Dockerfile.")
    chat.returns("sh: 1: hadolint: not found")

    (section,) = told(provider)
    assert "hadolint: not found" in section


def test_what_a_pushed_frame_found_out_stays_when_the_request_around_it_leaves(
    stage: Stage, provider: ScriptedProvider
) -> None:
    session = Session(stage.chat(tools=TOOLS), provider)
    session.turn("Fix the title of the handbook.", "read handbook.md", "edit handbook.md", closing="It is right.")
    linted = (does(push("Lint it")), does(bash("hadolint Dockerfile")), does(pop("Not linted.")))
    steps = ("read src/a.py", "read src/b.py", "edit src/b.py")
    provider.will(*linted, *(does(made_by(step)[0]) for step in steps), says("No linter here."))
    session.chat.says("Implement a rate limiter for the public API.")
    session.chat.returns("sh: 1: hadolint: not found")
    for step in steps:
        session.chat.returns(session.output(made_by(step)[1]))
    session.turn("Translate the onboarding email.", "read mail.txt", "edit mail.txt", closing="Done.")

    assert "<frame-results" not in as_one_text(provider.received[-1].messages)
    assert told(provider) == ["- hadolint: not found"]


def test_a_short_note_names_each_program_that_is_not_there(stage: Stage, provider: ScriptedProvider) -> None:
    session = Session(stage.chat(tools=TOOLS), provider)
    missing = [f"run {name} src -> /bin/sh: 1: {name}: not found" for name in ("rg", "ruff", "jq", "fdfind")]
    session.turn("Look for the cart.", "read src/a.py", *missing, closing="It is in a.py.")
    session.turn("Implement a rate limiter for the public API.", "read src/limit.py", closing="Not yet.")

    (section,) = told(provider)
    assert section.splitlines() == ["- rg: not found", "- ruff: not found", "- jq: not found", "- fdfind: not found"]


def test_a_note_of_work_in_which_all_worked_has_no_such_part(stage: Stage, provider: ScriptedProvider) -> None:
    session = Session(stage.chat(tools=TOOLS), provider)
    session.turn("Lint the package.", "read src/a.py", "run pytest -q -> 2 failed", "edit src/a.py", closing="Mended.")
    session.turn("Implement a rate limiter for the public API.", "read src/limit.py", closing="Not yet.")

    assert "<stack-context" in as_one_text(provider.received[-1].messages)
    assert not told(provider)
