"""Lines that stand in the context already, left out of new outputs: what is left out, what not, and what comes back."""

from __future__ import annotations

import pytest

from proxy.core.compaction.repeated_blocks import MIN_LINES, leave_out_repeats, tell_whole_again
from proxy.core.compaction.truncate_outputs import CLEARED_PREFIX, NO_OUTPUT_RULES, OutputRule, OutputRules
from proxy.core.context.message_list import build_context
from proxy.core.frames.events import ResultReplaced
from proxy.dialects.body import holds_text_alone
from tests.core.compaction.test_truncate_outputs import WRITER, Wired, worked
from tests.core.forest import count

pytestmark = pytest.mark.rows("X-75")
LINES = [f"line {n} says something about the number {n}" for n in range(60)]
FILE = "\n".join(LINES)


def found_in(talk: Wired, *absent: str, rules: OutputRules = NO_OUTPUT_RULES) -> tuple[ResultReplaced, ...]:
    """What is decided about the newest output when the outputs that begin with `absent` are not in the context."""
    gone = {e.id for e in talk.ledger.entries.values() if e.message and e.message.text.startswith(absent or "-")}
    in_context = build_context(talk.story, WRITER).entries - gone
    repeats = leave_out_repeats(talk.story, in_context, holds_text_alone, count, rules)
    return (*tell_whole_again(talk.story, in_context), *repeats)


def test_each_long_block_is_left_out_once_with_its_ends_in_sight() -> None:
    other = "\n".join(f"another file, line {n} of it, which is long enough" for n in range(20))
    grep = f"{other}\n--\nnew\n{FILE}\nend"
    (event,) = found_in(worked(FILE, other, grep, answered=False))

    first, second = event.text.split("\n--\nnew\n")
    assert first.startswith(f"{other.splitlines()[0]}\n[18 lines left out: they stand in the earlier result of read ")
    assert second.startswith(f"{LINES[0]}\n[58 lines left out: ")
    assert f"]\n{LINES[-1]}\nend\n[lines that stand above are left out; " in second


def test_what_is_short_or_has_left_or_a_rule_keeps_is_sent_again() -> None:
    twice = worked(FILE, FILE, answered=False)
    assert found_in(twice)
    assert not found_in(worked(FILE, "\n".join(LINES[: MIN_LINES - 1]), answered=False))
    assert not found_in(worked(FILE, "\n".join(line[:6] for line in LINES), answered=False))
    assert not found_in(twice, "line 0", rules=OutputRules((OutputRule("read", keep_whole=True),)))
    assert not found_in(twice, rules=OutputRules((OutputRule("read", keep_whole=True),)))
    assert not found_in(worked(FILE, FILE)), "what the model has answered to is not changed"


def test_an_output_is_whole_again_once_what_it_refers_to_has_left() -> None:
    """While that is in the context, nothing changes; and the stored text is not repeated in the event."""
    talk = worked(f"first\n{FILE}", FILE, answered=False)
    (short,) = found_in(talk)
    talk.tells(short)
    talk.model(("I see.", ()))
    talk.client("user", "go on")
    assert found_in(talk) == ()

    (whole,) = found_in(talk, "first")
    assert (whole.entry, whole.text) == (short.entry, "")
    talk.tells(whole)
    assert FILE in [message.text for message in build_context(talk.story, WRITER).messages]
    assert found_in(talk, "first") == ()


def test_an_output_is_whole_again_once_what_it_refers_to_was_cleared() -> None:
    talk = worked(f"first\n{FILE}", FILE, answered=False)
    (short,) = found_in(talk)
    talk.tells(short)
    first = next(e.id for e in talk.ledger.entries.values() if e.message and e.message.text.startswith("first"))
    talk.tells(ResultReplaced(first, f"{CLEARED_PREFIX} read", "pruned"))

    (whole,) = found_in(talk)
    assert (whole.entry, whole.text) == (short.entry, "")


def test_an_output_that_quotes_a_line_of_ours_is_sent_as_it_came() -> None:
    """Such a line names an entry of another conversation, which is never in the context."""
    (short,) = found_in(worked(FILE, FILE, answered=False))
    assert not found_in(worked(FILE, f"{short.text}\n{FILE}", answered=False))


def test_a_run_of_equal_lines_is_one_block() -> None:
    same = "\n".join(["the same line again and again, and it is quite long"] * 20_000)
    (event,) = found_in(worked(same, same, answered=False))
    assert "[19998 lines left out: " in event.text
