"""What sessions of real agents cost with the proxy and without it, by the bill of their provider and by our report.

Default settings, and what `callstack wrap` sets. A provider of Anthropic's kind charges what is written to its cache.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.session import REQUESTS_BY_PROMPT, SESSION_AGENTS, play_session
from tests.clients.test_wrap import AGENTS

CLOSE = 0.02
"""Share by which the report may be off the bill."""
EXACT = 0.004
"""Share of the bill by which the line of `wrap` may be off, whose whole amount may be a hundredth of it: a cache counts
in blocks of 128 tokens, and two or three of them fall otherwise in another run (measured: up to 0.0032)."""
NEVER_BEHIND = 1.01
"""What a session may cost at most, as a share of the run without the proxy."""
LONG_IN_CI = ("claude", "codex")
"""Agents whose long session CI plays, one of each of two APIs; the others' take minutes more, with `--take all`."""
PLAYED = [
    pytest.param(
        name, requests, marks=() if requests == min(REQUESTS_BY_PROMPT) or name in LONG_IN_CI else pytest.mark.whole
    )
    for name in SESSION_AGENTS
    for requests in REQUESTS_BY_PROMPT
]


def told_saving(line: str) -> float:
    """USD that the line of `wrap` says were saved, negative for lost ones."""
    found = re.search(r"requests?, (?:(saved|lost) \$([0-9.]+)|nothing saved)", line)
    assert found, line
    return float(found[2] or 0) * (-1 if found[1] == "lost" else 1)


@pytest.mark.rows("X-41")
@pytest.mark.parametrize(("name", "requests"), PLAYED)
def test_a_session_is_never_dearer_and_the_report_is_the_bill(
    name: str, requests: int, npm: Callable[..., Path], tmp_path: Path
) -> None:
    program = npm(AGENTS[name].folder or name, *AGENTS[name].packages) / "node_modules" / ".bin" / name

    played = play_session(name, program, requests, tmp_path)

    assert played.requests == requests
    assert played.share <= NEVER_BEHIND
    assert played.told["cost"] == pytest.approx(played.proxied, rel=CLOSE)
    assert played.told["cost_untouched"] == pytest.approx(played.direct, rel=CLOSE)
    assert told_saving(played.first_line) == pytest.approx(played.first_saved, abs=EXACT * played.direct), played
