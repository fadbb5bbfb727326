"""What a model can still know of a conversation that the proxy rewrote: five probes over recordings.

    python docs/probes.py FILE...                         recordings, or folders; what `callstack replay` reads
    python docs/probes.py FOLDER --write docs/probes.md   put the table between the two marks of that page
    python docs/probes.py FILE --details                  what was missed

The script needs no network. `probing.py` has the probes, `printing.py` the command line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from printing import Script  # beside this file, which is run as a script
from probing import Probed, Share, probed

MISSES = 12
"""Misses shown with --details, for each probe and recording."""
PROBES = (
    ("artifact", "files listed as changed that the calls did change (precision)", "files precise"),
    ("artifact", "files the calls did change that are listed (recall)", "files listed"),
    ("recall", "messages of the user still there, word for word", "user messages"),
    ("recall", "names of what left that are still in sight", "facts in sight"),
    ("recall", "of those out of sight, a sample: one recall by the name brings its line back", "facts by name"),
    ("recall", "the same, asked only with words that stood beside it", "facts by surroundings"),
    ("continuation", "open items of the plan in sight", "open items"),
    ("continuation", "the item that is next in sight", "next item"),
    ("continuation", "the test, linter, build or type check that ran last and failed, in sight", "failing check"),
    ("continuation", "the last command of any kind that failed, in sight", "failing command"),
    ("decision", "decisions that left, in sight", "decisions in sight"),
    ("decision", "in sight, or brought back by one recall", "decisions reached"),
    ("edit", "next edits whose old text is in sight, of those the client's messages show", "edits"),
    ("edit", "the same, where nothing of the last ten requests shows it", "far edits"),
)
"""Probe, what is counted, and the name under which `probing` counts it."""


def summed(done: Sequence[Probed], key: str) -> Share:
    """One probe over all recordings."""
    shares = [one.shares[key] for one in done if key in one.shares]
    return Share(sum(s.hit for s in shares), sum(s.of for s in shares))


def table(done: Sequence[Probed]) -> Iterator[str]:
    """Cost first, because what is known means little without what it costs to know it; then the probes."""
    cost, untouched = sum(one.row.cost for one in done), sum(one.row.cost_untouched for one in done)
    sent, came = sum(one.row.tokens_sent for one in done), sum(one.row.tokens_in for one in done)
    rewritten = sum(one.rewritten for one in done)
    yield "| probe | | of | share |"
    yield "|---|---|---:|---:|"
    yield f"| cost | money, of the untouched run's ${untouched:,.2f} | | {_ratio(cost, untouched)} |"
    yield f"| cost | input tokens, of the {came:,} the clients sent | | {_ratio(sent, came)} |"
    for probe, words, key in PROBES:
        share = summed(done, key)
        yield f"| {probe} | {words} | {share.of:,} | {_ratio(share.hit, share.of)} |"
    yield ""
    requests = sum(one.requests for one in done)
    touched = sum(one.rewritten > 0 for one in done)
    yield (
        f"{len(done)} recordings with {requests:,} requests; in {touched} of them something left the context, "
        f"in {rewritten:,} requests it was missing."
    )


def _ratio(part: float, whole: float) -> str:
    return f"{part / whole:.3f}" if whole else "-"


def misses(done: Iterable[Probed]) -> Iterator[str]:
    """What each recording missed, probe by probe."""
    for one in done:
        for _, words, key in PROBES:
            share = one.shares.get(key)
            if share and share.missed:
                yield f"{one.name}: {words}: {share.hit} of {share.of}"
                yield from (f"    {' '.join(subject.split())[:100]}" for subject in share.missed[:MISSES])


SCRIPT = Script(
    "docs/probes.py",
    "What a model can still know of a conversation that the proxy rewrote: five probes over recordings.",
    probed,
    table,
    misses,
    "what was missed",
)

if __name__ == "__main__":
    sys.exit(SCRIPT.run(sys.argv[1:]))
