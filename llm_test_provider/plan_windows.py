"""A plan that is paid by window: what requests take of 5 hours and 7 days, and the headers that say so.

What a token weighs is hidden from the client, as of real plans: it sees only how much of a window is used, in steps of
one percent.
"""

from __future__ import annotations

from dataclasses import dataclass

from llm_test_provider.answer import Headers, Usage

FIVE_HOURS_S, WEEK_S = 5 * 3600, 7 * 24 * 3600
LONG_WRITE = 1.6
"""What is kept for an hour weighs so many times as much as what is kept for five minutes, as its price does."""


@dataclass
class HiddenPlan:
    """One account. The weights are shares of the window of 5 hours that a million tokens take."""

    fresh: float
    read: float
    written: float
    output: float
    week: float = 0.1
    """What takes the whole window of 5 hours takes so much of the week."""
    used: float = 0.0
    """Of the window of 5 hours, as it stands; a full one begins anew."""
    used_week: float = 0.0
    resets: int = 0

    def weigh(self, usage: Usage) -> float:
        """The share of the window of 5 hours that an answer takes."""
        fresh = usage.prompt - usage.cached - usage.written
        written = usage.written + (LONG_WRITE - 1) * usage.written_long
        weighed = self.fresh * fresh + self.read * usage.cached + self.written * written
        return (weighed + self.output * usage.completion) / 1_000_000

    def take(self, usage: Usage, dialect: str, now_s: float) -> Headers:
        """The headers of an answer. They leave before its end, so they tell what was used before it."""
        taken = self.weigh(usage)
        if self.used + taken > 1:
            self.used, self.resets = 0.0, self.resets + 1
        headers = self._headers(dialect, now_s)
        self.used, self.used_week = self.used + taken, self.used_week + taken * self.week
        return headers

    def _headers(self, dialect: str, now_s: float) -> Headers:
        ends = [int(now_s) // span * span + span + self.resets * FIVE_HOURS_S for span in (FIVE_HOURS_S, WEEK_S)]
        ends[1] -= self.resets * FIVE_HOURS_S
        windows = zip((self.used, self.used_week), ends, ("5h", "7d"), (300, 10080), strict=True)
        told: list[tuple[str, str]] = []
        if dialect == "messages":
            told += [("anthropic-ratelimit-unified-status", "allowed")]
            for used, end, name, _ in windows:
                start = f"anthropic-ratelimit-unified-{name}"
                told += [
                    (f"{start}-utilization", f"{round(used, 2):g}"),
                    (f"{start}-reset", str(end)),
                    (f"{start}-status", "allowed"),
                ]
            return (*told, ("anthropic-organization-id", "organization-of-the-plan"))
        for (used, end, _, minutes), name in zip(windows, ("primary", "secondary"), strict=True):
            told += [
                (f"x-codex-{name}-used-percent", f"{round(100 * used)}"),
                (f"x-codex-{name}-window-minutes", str(minutes)),
                (f"x-codex-{name}-reset-at", str(end)),
            ]
        return tuple(told)
