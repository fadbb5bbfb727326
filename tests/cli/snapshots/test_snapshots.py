"""What the commands that look print on terminals of 80 and of 120 columns, about one stored session.

`pytest tests/cli/snapshots --update-snapshots` writes the files anew. Look at each that changed before you commit it:
they are what a user sees.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from callstack_proxy.cli import demo
from proxy.accounting.model_facts import MODELS_FILE, built_in_rows, read_facts, write_facts
from proxy.store import UsageRecord
from proxy.store.sql import open_store
from tests.cli.snapshots.demo_session import play_demo
from tests.forked_commands import environment, run_command
from tests.management.api.small_ledger import written
from tests.replay.sessions.logs import claude_log, codex_log

STORED = Path(__file__).parent
WIDTHS, UNCUT = (80, 120), 400
WIDE_TITLE = "請求書: make the suite green, rounding in billing and dates in the export, in three languages 📦"
SAID = "Keep the letter short: one page, one table, and the example that accounting asked for at the very beginning."
FOLDED_AT = "2026-11-19 08:03:20"
"""When the first request came of which something was left out."""
DATA, ACTED_ON = ("--data", "data"), ("--data", "acted-on")
"""The store as the session left it, and a copy in which something was done since."""
DEMO = {"demo": False, "demo-all": True}
COMMANDS = {
    "help": ("--help",),
    "help-frame": ("frame", "--help"),
    "help-branch": ("branch", "--help"),
    "help-inspect": ("inspect", "--help"),
    "help-key": ("key", "--help"),
    "help-user": ("user", "--help"),
    "tree": ("tree", *DATA),
    "tree-details": ("tree", "{conversation}", "--details", *DATA),
    "top": ("top", "--once", *DATA),
    "report": ("report", *DATA),
    "report-by-model": ("report", "--by", "model", *DATA),
    "report-by-conversation": ("report", "--by", "conversation", *DATA),
    "report-by-frame": ("report", "--by", "frame", *DATA),
    "report-by-request": ("report", "--by", "request", *DATA),
    "diff": ("diff", "{request}", *DATA),
    "log": ("log", "Prove it on the logs", *DATA),
    "search": ("search", "rounding", "cents", *DATA),
    "search-nothing": ("search", "xylophone", *DATA),
    "resume": ("inspect", "resume", "{conversation}", *DATA),
    "explain": ("inspect", "explain", "{conversation}", *DATA),
    "map": ("inspect", "map", "{conversation}", *DATA),
    "loops": ("inspect", "loops", *DATA),
    "regrets": ("inspect", "regrets", *DATA),
    "tariffs": ("inspect", "tariffs"),
    "tariffs-of-two": ("inspect", "tariffs", "gpt-5.4", "in-no-table"),
    "autonomy": ("frame", "autonomy", "{conversation}", *DATA),
    "checkpoints": ("branch", "checkpoint", "--list", "--in", "{conversation}", *ACTED_ON),
    "branches": ("branch", "--list", "--in", "{conversation}", *ACTED_ON),
    "branch-messages": ("branch", "main", "--list", "--in", "{conversation}", *ACTED_ON),
    "say-list": ("say", "{conversation}", "--list", *ACTED_ON),
    "config": ("config", *ACTED_ON),
    "key-list": ("key", "list", *ACTED_ON),
    "key-usage": ("key", "usage", *ACTED_ON),
    "key-usage-by-day": ("key", "usage", "--by", "day", *ACTED_ON),
    "user-list": ("user", "list", *ACTED_ON),
    "doctor": ("doctor", "--port", "0", *DATA),
    "doctor-upstream": ("doctor", "--port", "0", "--upstream", "http://127.0.0.1:9/v1", *DATA),
    "savings": ("savings", "--jobs", "1", "--details"),
    "replay": ("replay", "--conversation", "{conversation}", "--details", "--no-progress", *DATA),
}
"""Name of a file -> the command; `{conversation}` is the one of the demo, `{request}` one of its requests."""
DONE_BEFORE = (
    ("branch", "checkpoint", "before-the-letter", "--in", "{conversation}", *ACTED_ON),
    ("branch", "start", "shorter-letter", "--in", "{conversation}", *ACTED_ON),
    ("say", "{conversation}", SAID, *ACTED_ON),
    (
        "config",
        "--set",
        "subagent.min_duration=5000",
        "--add-pattern",
        "explor(e|ing)",
        *ACTED_ON,
    ),
    (
        "key",
        "add",
        "anna",
        "--usd",
        "50",
        "--model",
        "gpt-5*",
        "--model",
        "claude-sonnet-*",
        "--mode",
        "shadow",
        *ACTED_ON,
    ),
    ("key", "add", "build-server", "--tokens", "2000000", "--per", "day", "--admin", *ACTED_ON),
    ("user", "limit", "--usd", "20", *ACTED_ON),
    ("user", "limit", "ana@example.org", "--usd", "50", "--model", "gpt-5*", *ACTED_ON),
)
CASES = [(name, width) for name in (*DEMO, *COMMANDS) for width in WIDTHS]
WIDENED = (
    "demo-all", "tree", "tree-details", "top", "report-by-frame", "report-by-request", "report-by-conversation", "diff",
    "search", "explain", "tariffs", "branch-messages", "replay",
)  # fmt: skip
"""Outputs in which 80 columns shorten a text, break a line or leave a column away."""
SAME_LENGTH_HOME = "/home/user/callstack-99"


class Place:
    """The folder in which all commands run, with the two stores. The length of its path is the same in every run."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="callstack-", dir=Path("/tmp").resolve()))
        self._names: dict[str, str] = {}

    def run(self, words: tuple[str, ...], width: int) -> str:
        """What is printed on stdout. A finding of `doctor` is no failure."""
        said = tuple(word.format_map(self._names) if word[:1] == "{" else word for word in words)
        done = run_command(said, self.folder, environment(self.folder) | {"COLUMNS": str(width), "TZ": "UTC"})
        assert done.code in (0, 1 if words[0] == "doctor" else 0), f"{said}: {done.errors}"
        return done.out

    def prepare(self) -> Mapping[tuple[int, bool], str]:
        """Plays the demo, and does everything that is looked at later. Returns what the demo printed."""
        printed = play_demo(self.folder, WIDTHS)
        asyncio.run(self._add_records())
        claude_log(self.folder / ".claude/projects/p/one.jsonl", steps=30)
        codex_log(self.folder / ".codex/sessions/2026/11/20/rollout-1.jsonl")
        requests = json.loads(self.run(("report", "--by", "request", "--json", *DATA), 80))["rows"]
        (request,) = (row["key"] for row in requests if row["title"].startswith(FOLDED_AT))
        conversation = re.search(r"callstack tree (\w+)", printed[80, False])
        assert conversation is not None
        self._names = {"conversation": conversation[1], "request": request}
        shutil.copytree(self.folder / "data", self.folder / "acted-on")
        fresh = [replace(fact, checked=datetime.now(UTC).date()) for fact in read_facts(MODELS_FILE)]
        write_facts(self.folder / "data" / "models.json", fresh)  # or `doctor` would warn of old prices some day
        for words in DONE_BEFORE:
            self.run(words, 80)
        return printed

    async def _add_records(self) -> None:
        """A second conversation, with wide characters in its title, and what two keys used."""
        store = open_store("sqlite", self.folder / "data")
        await store.start()
        await written(store, "local", "b", WIDE_TITLE)
        for day, requests in ((20_390, 812), (20_411, 64)):
            store.write("key-anna", [UsageRecord(day, requests, requests * 41_000, requests * 0.021, requests * 0.05)])
        store.write("key-build-server", [UsageRecord(20_411, 7, 90_300, 0.31, 0.30)])
        await store.close()

    def normalized(self, text: str) -> str:
        """`text` without what differs from run to run, with as many characters as before."""
        now = datetime.now(UTC)
        for day in (now - timedelta(1), now, now + timedelta(1)):
            text = re.sub(
                rf"{day:%Y-%m-%d}( \d\d:\d\d:\d\d)?", lambda found: "2026-12-01 12:00:00"[: len(found[0])], text
            )
        for checked in {row.as_of for row in built_in_rows().exact}:
            text = text.replace(checked, "2026-12-01")
        text = text.replace(str(self.folder), SAME_LENGTH_HOME).replace("python -m tests.callstack", "callstack")
        text = re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:49152", text)
        text = re.sub(r" +\d+ d ago", lambda found: "9 d ago".rjust(len(found[0])), text)
        return re.sub(r"[\d,]+ bytes$", lambda found: re.sub(r"\d", "9", found[0]), text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def printed() -> Iterator[Mapping[tuple[str, int], str]]:
    """What each command printed at each width."""
    place = Place()
    if len(str(place.folder)) != len(SAME_LENGTH_HOME):
        # Only where the system keeps temporary files below another folder than /tmp, as macOS does.
        pytest.skip("lines with a path of another length break elsewhere")
    try:
        demos = place.prepare()
        texts = {(name, width): demos[width, whole] for name, whole in DEMO.items() for width in WIDTHS}
        texts |= {(name, width): place.run(words, width) for name, words in COMMANDS.items() for width in WIDTHS}
        texts |= {(name, UNCUT): place.run(COMMANDS[name], UNCUT) for name in ("diff", "tariffs")}
        yield {case: place.normalized(text) for case, text in texts.items()}
    finally:
        shutil.rmtree(place.folder)


Printed = Mapping[tuple[str, int], str]


@pytest.mark.parametrize(("name", "width"), CASES)
def test_a_command_prints_what_was_looked_at_by_a_person(
    printed: Printed, name: str, width: int, request: pytest.FixtureRequest
) -> None:
    file, text = STORED / str(width) / f"{name}.txt", printed[name, width]
    if request.config.getoption("--update-snapshots"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")

    assert text.splitlines() == file.read_text(encoding="utf-8").splitlines(), "see --update-snapshots"


def test_every_line_fits_the_terminal(printed: Printed) -> None:
    """A word that is longer than the line stays whole, as it may have to be copied."""
    lines = [(name, width, line) for name, width in CASES for line in printed[name, width].splitlines()]

    assert [each for each in lines if cell_len(each[2].expandtabs()) > each[1] and " " in each[2].strip()] == []


def test_no_text_is_cut_in_the_middle_of_a_word(printed: Printed, whole_words: set[str]) -> None:
    ends = [(case, end) for case in CASES for end in re.findall(r"(\w+)[^\w\s]*…", printed[case])]

    assert [(case, end) for case, end in ends if end not in whole_words] == []


@pytest.mark.parametrize("name", WIDENED)
def test_a_wider_terminal_shows_more_words_or_needs_fewer_lines(printed: Printed, name: str) -> None:
    (words, lines), (more_words, fewer_lines) = (
        (len(re.findall(r"\w+", printed[name, width])), len(printed[name, width].splitlines())) for width in WIDTHS
    )

    assert more_words > words or fewer_lines < lines


def test_every_stored_file_is_compared(printed: Printed) -> None:
    stored = {(file.stem, int(file.parent.name)) for file in STORED.glob("*/*.txt")}

    assert stored == set(CASES)


@pytest.fixture(scope="module")
def whole_words(printed: Printed) -> set[str]:
    """Every word of the session, of its files and of what the commands print uncut; of a name with underscores also its
    parts."""
    folder = Path(demo.__file__).parent
    texts = [
        file.read_text(encoding="utf-8") for file in folder.rglob("*") if file.suffix in (".py", ".md", ".csv", ".log")
    ]
    texts += [WIDE_TITLE, SAID, *(re.sub(r"\w+[^\w\s]*…", "", text) for text in printed.values())]
    return {part for text in texts for word in re.findall(r"\w+", text) for part in (word, *word.split("_"))}
