"""The log of a running proxy on stderr: one line an event, its fields behind it as key=value.

    2026-01-31T12:00:00.123Z info proxy.app store opened where=...

Fields are made harmless and short; message content and keys are not logged by whoever calls. The log does not know
colour, nor files: whoever keeps it pipes it.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from functools import lru_cache

from proxy.commands.printing import one_line

LONGEST = 400
"""Characters of a field."""
OURS = "stack_"
"""What our fields begin with, so that none has the name of one of the library's."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Line(logging.Formatter):
    """A record as one line, and a traceback below it where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        moment = f"{_second(int(record.created))}.{int(record.msecs):03d}Z"
        fields = [
            f"{name.removeprefix(OURS)}={_shown(value)}"
            for name, value in vars(record).items()
            if name not in _STANDARD
        ]
        line = one_line(" ".join([moment, record.levelname.lower(), record.name, record.getMessage(), *fields]))
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


@lru_cache(8)
def _second(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _shown(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return f'"{text}"' if " " in text or not text else text


def keep_journal(level: str) -> None:
    """From now on, what is logged at `level` and above goes to stderr. Libraries are heard from warning on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Line())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("proxy").setLevel(level.upper())
    # Of threads and processes no line tells anything, and asking for them costs as much as the line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
