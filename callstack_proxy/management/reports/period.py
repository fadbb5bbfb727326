"""Which days of this machine's time zone a sum covers: all, today, the last 7 or 30, or from one date to another."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Literal, get_args

from proxy.errors import BadRequest

PeriodName = Literal["all", "today", "week", "month"]
PERIODS: tuple[PeriodName, ...] = get_args(PeriodName)
DAYS = {"today": 1, "week": 7, "month": 30}
"""Days of a period by name, today among them."""
FIRST_YEAR, LAST_YEAR = 1970, 2999
"""Moments of other years cannot be told on every machine."""
SHOWN = 40
"""Characters that are shown of a text that is no period or date."""


@dataclass(frozen=True, slots=True)
class Period:
    """Both dates are counted in; a side that is None is open. `words` stand behind "saved"."""

    first: date | None = None
    last: date | None = None
    words: str = "so far"

    @property
    def is_everything(self) -> bool:
        return self.first is None and self.last is None

    @property
    def starts_ms(self) -> float:
        """Milliseconds since the epoch; the first that is counted."""
        return _midnight_ms(self.first) if self.first else float("-inf")

    @property
    def ends_ms(self) -> float:
        """Milliseconds since the epoch; the first that is no longer counted."""
        return _midnight_ms(self.last + timedelta(days=1)) if self.last else float("inf")


ALL_TIME = Period()


def read_period(name: str = "", since: str = "", until: str = "") -> Period:
    """The period of a name, or from one date to another (`YYYY-MM-DD`, either may be empty). Raises BadRequest."""
    if name and name not in PERIODS:
        raise BadRequest(f"period {name[:SHOWN]!r}: there are {', '.join(PERIODS)}.")
    if name in DAYS:
        if since or until:
            raise BadRequest(f"period {name!r} ends today: leave out the dates, or the period.")
        days = DAYS[name]
        began = datetime.now().astimezone().date() - timedelta(days=days - 1)
        return Period(began, None, "today" if days == 1 else f"in the last {days} days")
    first, last = _read_date("since", since), _read_date("until", until)
    if first is not None and last is not None and last < first:
        raise BadRequest(f"until {last} is before since {first}: no day is in that.")
    return Period(first, last, _words(first, last))


def _read_date(name: str, text: str) -> date | None:
    if not text:
        return None
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{name} {text[:SHOWN]!r}: no date; write it as YYYY-MM-DD.") from None
    if not FIRST_YEAR <= found.year <= LAST_YEAR:
        raise BadRequest(f"{name} {text!r}: the year is none of {FIRST_YEAR} to {LAST_YEAR}.")
    return found


def _words(first: date | None, last: date | None) -> str:
    if first and last:
        return f"on {first}" if first == last else f"from {first} to {last}"
    return f"since {first}" if first else f"until {last}" if last else ALL_TIME.words


def _midnight_ms(day: date) -> float:
    return datetime.combine(day, time.min).astimezone().timestamp() * 1_000
