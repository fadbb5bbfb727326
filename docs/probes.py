"""What a model can still know of a conversation that the proxy rewrote: four probes over recordings.

    python docs/probes.py FILE...                           recordings, or folders of them; what `callstack replay`
    reads python docs/probes.py FOLDER --write docs/probes.md     put the table between the two marks of that page
    python docs/probes.py FILE --details                    what was missed

Nothing is asked of a network. The probes and their law stand in `probing.py`. Exit code 0: all were played; 1: some
file could not be; 2: none was.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from probing import Probed, Share, probed  # beside this file, which is run as a script

from proxy.config import Config
from proxy.config_sources import load_config, parse_assignments
from proxy.errors import ProxyError
from proxy.replaying.formats import recordings_in
from proxy.replaying.reading import files_in

MARK = "<!-- printed by docs/probes.py -->"
MISSES = 12
"""Told with --details, of each probe and recording."""
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
)
"""Probe, what was counted, and under which name `probing` counts it."""


def of_file(file: Path, model: str, config: Config) -> list[Probed] | str:
    """All recordings of a file, or what is wrong with it."""
    logging.getLogger("proxy").setLevel(logging.CRITICAL)
    try:
        return [asyncio.run(probed(one, config)) for one in recordings_in(file, model=model, dialect="chat")]
    except ProxyError as error:
        return str(error)


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


def written(page: str, lines: Iterable[str]) -> str:
    """`page` with these lines between its marks. Raises ValueError where it has none."""
    before, mark, rest = page.partition(MARK)
    _, again, behind = rest.partition(MARK)
    if not mark or not again:
        raise ValueError(f"the page has no two lines {MARK}")
    return "\n".join([f"{before}{MARK}", *lines, f"{MARK}{behind}"])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__ or "")[0])
    parser.add_argument("files", nargs="+", type=Path, help="recordings, or folders of them")
    parser.add_argument("--model", default="", help="as if it were this model: its prices, cache and window")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of proxy.yaml")
    parser.add_argument("--write", type=Path, help="a page with two marks, to put the table between them")
    parser.add_argument("--details", action="store_true", help="what was missed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="files played at once")
    asked = parser.parse_args(arguments)
    config = load_config(parse_assignments(asked.set))
    files = files_in(asked.files)
    with ProcessPoolExecutor(max(1, asked.jobs), get_context("spawn")) as pool:
        results = list(pool.map(of_file, files, [asked.model] * len(files), [config] * len(files)))
    done = [one for result in results if not isinstance(result, str) for one in result]
    failed = [result for result in results if isinstance(result, str)]
    told = list(table(done)) if done else []
    if asked.write and done:
        asked.write.write_text(written(asked.write.read_text(), told))
    lines = [*told, *(misses(done) if asked.details else ())]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stderr.write("".join(f"{line}\n" for line in failed))
    return (1 if done else 2) if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
