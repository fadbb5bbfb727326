"""What the cache keep-alive would save in recorded sessions, by the judge of `docs/comparison.md` with pings in pauses.

    python bench/cache_pauses.py ../../shared      # the folder with `yardstick` and `trajectories`; two minutes

The judge plays the recordings through a proxy, and prices what was sent on the recorded clock. This adds the pings that
the proxy would have sent then, which it cannot know itself: it lives through no pause. As in the product, a
conversation spends on them what it has saved. Other arguments go to the judge. Prints what sessions cost with and
without, as a share of the untouched cost, by Anthropic-like prices.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

accounting: Any = importlib.import_module("proxy.accounting")
PRICES = accounting.Tariff(("anthropic-like",), input=1.0, read=0.1, write=1.25, ttl_s=300)
"""As the judge's tariff of that name."""
START = "{python} -m callstack_proxy serve --port {{port}} --upstream {{upstream}} --data {data}"
Sent = dict[str, Any]


class Pings:
    """Adds pings to what the judge has seen of a session. `balances` has the money saved by request, by session."""

    def __init__(self, judge: Any, balances: dict[str, list[float]]) -> None:
        self.judge, self.balances = judge, balances
        self.as_seen = judge.upstream_requests
        self.count = self.behind_the_end = 0

    def __call__(self, session: Any) -> list[Sent]:
        found: list[Sent] = self.as_seen(session)
        last = {sent["turn"]: sent for sent in found if not sent.get("aux")}
        pings = list(self.in_session(session, last))
        self.count += len(pings)
        return sorted([*found, *pings], key=lambda sent: (sent["ts"], sent.get("ping", False)))

    def in_session(self, session: Any, last: dict[int, Sent]) -> Iterator[Sent]:
        messages, spent, step = session.conv["messages"], 0.0, accounting.PING_SHARE * PRICES.ttl_s
        balance = self.balances[session.conv["id"]]
        for request, follower in zip(session.requests, [*session.requests[1:], None], strict=True):
            sent, answer = last.get(request["turn"]), messages[request["k"]]
            people = sum(message["role"] == "user" for message in messages[: request["k"]])
            ends_with_call = follower is None and answer.get("tool_calls")  # a recording that was cut there
            if sent is None or ends_with_call or (people < 2 and not answer.get("tool_calls")):
                continue
            cost = PRICES.read * importlib.import_module("yardstick.metrics").request_tokens(sent, session.tok)
            for number in range(1, accounting.pings_that_pay(PRICES, PRICES.write) + 1):
                at = sent["ts"] + number * step
                if (follower is not None and at >= follower["ts"]) or balance[request["turn"]] - spent < cost:
                    break
                spent += cost
                self.behind_the_end += follower is None
                yield {**sent, "ts": at, "aux": True, "hidden": False, "out": 1, "ping": True}


def played(judge: Any, arguments: list[str], folder: Path, name: str) -> list[dict[str, Any]]:
    """The judge's figures of each session."""
    data = folder / name
    start = START.format(python=sys.executable, data=data)
    written = folder / f"{name}.json"
    files = ["--json", str(written), "--log", str(folder / "proxy.log")]
    with contextlib.redirect_stdout(io.StringIO()):
        judge.main(["--start", start, "--quiet", *files, *arguments])
    rows = json.loads(written.read_text())["conversations"]
    return [row for group in rows.values() for row in group]


def share_paid(rows: list[dict[str, Any]]) -> float:
    """Of the untouched cost."""
    paid, untouched = (sum(float(row[name][-1]) for row in rows) for name in ("paid_anthropic", "untouched_anthropic"))
    return paid / untouched


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path)
    asked, others = parser.parse_known_args()
    sys.path.insert(0, str(asked.shared))
    judge: Any = importlib.import_module("yardstick.replay")
    with tempfile.TemporaryDirectory() as place:
        without = played(judge, others, Path(place), "without")
        balances = {
            row["id"]: [u - p for u, p in zip(row["untouched_anthropic"], row["paid_anthropic"], strict=True)]
            for row in without
        }
        judge.upstream_requests = pings = Pings(judge, balances)
        with_pings = played(judge, others, Path(place), "with")
    print("paid, as a share of the untouched cost:")
    for name, rows in (("without", without), (f"with {pings.count} pings", with_pings)):
        interactive = [row for row in rows if row["group"] == "interactive"]
        print(f"{name:16}{share_paid(interactive):6.3f} interactive {share_paid(rows):6.3f} all")
    print(f"pings behind the last request of a session: {pings.behind_the_end}")
    dearer = sum(row["paid_anthropic"][-1] > row["untouched_anthropic"][-1] * 1.02 for row in with_pings)
    print(f"sessions dearer by more than 2 %: {dearer} of {len(with_pings)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
