"""Where a history stands that comes whole: what is decided at its end is told as if all of it were told anew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.config.sources import load_config
from proxy.core.frames import path_state as stories
from proxy.core.frames.path_state import Story, follow
from proxy.exchange.rounds import read_request, weighed
from proxy.exchange.thread.placement import Arrival, Standing
from proxy.replay.services import TENANT, wired

TOOL = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
STEPS = 60


def worked(steps: int) -> list[dict[str, Any]]:
    """Two wishes of a user, and so many steps of work at the first."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "Make the importer read the tariff tables."}]
    for at in range(steps):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"src/tariff_{at}.py"})}
        said.append({"role": "assistant", "tool_calls": [{"id": f"c{at}", "type": "function", "function": function}]})
        said.append({"role": "tool", "tool_call_id": f"c{at}", "content": f"def read_tariff_{at}(): ...\n" * 60})
    said.append({"role": "assistant", "content": "The importer reads the tariff tables now."})
    return [*said, {"role": "user", "content": "Now write a changelog entry about the gateway of the audit."}]


async def stood(steps: int) -> Standing:
    parts = wired(load_config({})).parts
    body = json.dumps({"model": "gpt-5", "tools": [TOOL], "messages": worked(steps)}).encode()
    request = await weighed(parts, await read_request(parts, body))
    return await parts.reception.stand(Arrival(TENANT, [], request, parts.now(), ""))


async def test_what_is_decided_at_the_end_of_a_whole_history_is_told_as_if_all_were_told_anew() -> None:
    standing = await stood(STEPS)
    anew = follow(standing.ledger, standing.ledger.path(standing.node), {})

    assert standing.story.tree.trims
    assert standing.story == anew
    for tip, story in standing.shelved.stories.items():
        assert story == follow(standing.ledger, standing.ledger.path(tip), {})


async def test_what_is_decided_at_the_end_of_a_whole_history_tells_only_its_newest_entry_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To tell all of it anew held up everybody for a millisecond more (300 messages)."""
    told: list[int] = []

    def counted(ledger: Any, story: Story, entries: Any, *fresh: Any) -> Story:
        told.append(len(entries := tuple(entries)))
        return extended(ledger, story, entries, *fresh)

    extended = stories.extend
    monkeypatch.setattr(stories, "extend", counted)  # as `follow` asks for it
    await stood(STEPS)

    assert told
    assert set(told) == {1}
