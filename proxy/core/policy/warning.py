"""What is said of a loop: to the model behind the results that closed it, and as the result of a call that is refused.

The law: **a warning is kept to what was counted**. It names the pattern, how often it ran and what to do instead, and
shows the calls in a few words; a note stands in an element with the nonce, so no text of a tool can forge it.

What this module does not do: it finds no loop, and chooses no call that is refused (`loops` does both).
"""

from __future__ import annotations

from proxy.core.frames.frames import Loop
from proxy.core.observers.commands import command_lines
from proxy.core.observers.step import Done
from proxy.core.observers.tool_roles import Names
from proxy.core.text import element, escape_xml

SHOWN = 120
"""Characters of a call as it is told."""


def shown(done: Done, names: Names) -> str:
    """A call in a few words: the command, or the name with its arguments."""
    lines = command_lines(done, names)
    return short(f"{done.call.name}: {'; '.join(lines)}" if lines else f"{done.call.name} {done.call.arguments}")


def short(text: str) -> str:
    """The beginning of a text, on one line."""
    words = " ".join(text[: 4 * SHOWN].split())
    return words if len(words) <= SHOWN else words[: SHOWN - 1] + "…"


LOOPING = (
    "Error: not run. This call is part of a loop, and would give the same again. Use the results above. Change "
    "something first (edit a file, look elsewhere, check an assumption), or tell the user what is missing. Every other "
    "call is run."
)
"""The result of a call that is refused (S3-24)."""


def note(loop: Loop, nonce: str) -> str:
    """What the model is told of it: the pattern, the count, and what to do instead. No text of a tool can forge it, for
    none knows the nonce."""
    named = ", ".join(f"`{each}`" for each in loop.shown)
    match loop.kind:
        case "failures":
            what = f"The task {named} has now failed {loop.count} times."
            instead = (
                "Before another attempt, say what was different each time and what the failures have in common; then "
                "choose another way, split the task, or tell the user what blocks it."
            )
        case "alternation":
            what = f"These steps have taken turns {loop.count} times, each with the same result as before: {named}."
            instead = (
                "Another turn will show the same. Use these results, or change something else first: look elsewhere, "
                "check an assumption, or tell the user what is missing."
            )
        case _:
            what = f"This was called {loop.count} times and gave the same result each time: {named}."
            instead = (
                "Calling it again will give the same again. Use that result, or change something else first: look "
                "elsewhere, check an assumption, or tell the user what is missing."
            )
    return element("stack-context", {"note": "loop", "nonce": nonce}, escape_xml(f"{what} {instead}"))
