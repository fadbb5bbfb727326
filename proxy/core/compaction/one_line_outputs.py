"""Older results told in a line each, for models with a small window (S3-03).

Of the outputs on the line the newest three stand as they came, those the model has not read yet among them; what was
done before is `name → result`, with the ref that `stack_recall` takes. A call keeps its result and its place, only the
words change, once and for good.

The law: **the line changes at moments, not with every request** (L2). That is where something else breaks the prefix
anyway, where nothing of it is cached, or where a whole batch has grown old and the gate says that it pays.

What this module does not do: it cuts no arguments of a call, and nothing the model has not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.core.compaction.compaction_plan import Decision, Folding, Moment
from proxy.core.compaction.cost_gate import Rewrite, weighed
from proxy.core.compaction.segments import tokens_of, told_tokens
from proxy.core.compaction.truncate_outputs import NO_RULES, Output, OutputRules, outputs, ref_of, unread
from proxy.core.context.actions import in_a_line
from proxy.core.context.block_minimal import ACTIONS
from proxy.core.context.message_list import on_line
from proxy.core.frames.events import Replaced
from proxy.core.frames.path_state import Placed, Story
from proxy.core.observers.step import Done
from proxy.core.text import Count

BATCH = 7
"""Outputs that must have grown old before the line changes for their sake alone."""
MINIMAL = "minimal"
"""Why an output is told in other words."""
RECALLED_BY = '; all of it: stack_recall with ref="{ref}"'


def minimized(story: Story, moment: Moment, count: Count, *, breaks: bool, rules: OutputRules = NO_RULES) -> Folding:
    """The outputs that are told in a line from now on, none that a rule keeps whole. `breaks`: the prefix breaks with
    this request anyway."""
    line = on_line(story)
    read = outputs(story, {placed.at for placed in line})
    waiting = sum(1 for placed in unread(story) if placed.entry.message and placed.entry.message.answers)
    old = read[: max(0, len(read) - max(0, ACTIONS - waiting))]
    told = [(output, words) for output in old if len(words := told_of(output)) < len(output.text)]
    told = [each for each in told if each[0].placed.entry.id not in story.tree.replaced]
    if rules:
        told = [each for each in told if not ((rule := rules.of(each[0].call.name)) and rule.whole)]
    free = breaks or moment.cold
    if not told or (len(told) < BATCH and not free):
        return Folding()
    verdict = weighed(
        _rewrite(story, line, told, moment, count), moment.prices, moment.requests, cold=free, window=moment.window
    )
    decision = Decision("minimize", (story.tree.active,), verdict)
    if not verdict.worth:
        return Folding((), (decision,))
    return Folding(tuple(Replaced(o.placed.entry.id, words, MINIMAL) for o, words in told), (decision,))


def told_of(output: Output) -> str:
    """What stands for it: the tool, what came of the call, and how all of it is had again."""
    done = Done(output.call, output.text, failed=output.failed)
    return in_a_line(done) + RECALLED_BY.format(ref=ref_of(output.placed))


def _rewrite(
    story: Story, line: Sequence[Placed], told: Sequence[tuple[Output, str]], moment: Moment, count: Count
) -> Rewrite:
    tokens = [told_tokens(story, placed, count) for placed in line]
    first = told[0][0].placed
    start = next(at for at, placed in enumerate(line) if placed is first)
    removed = sum(tokens_of(output.placed) for output, _ in told)
    kept = sum(count(words) for _, words in told)
    behind = sum(tokens[start:]) - removed
    return Rewrite(removed, kept, behind, moment.head + sum(tokens))
