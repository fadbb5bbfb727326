"""Where a history stands that comes whole: what is decided at its end is told as if all of it were told anew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.replay.services import TENANT, build_replay
from proxy.config.for_core import tool_settings
from proxy.core.context import FLAT_FORMAT
from proxy.core.frames import path_state as stories
from proxy.core.frames.path_state import PathState, replay
from proxy.exchange.rounds import count_request_tokens, parse_client_request
from proxy.exchange.thread.placement import ParsedRequest, Placement

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


async def stood(steps: int) -> Placement:
    parts = build_replay(load_config({})).services
    body = json.dumps({"model": "gpt-5", "tools": [TOOL], "messages": worked(steps)}).encode()
    request = await count_request_tokens(parts, await parse_client_request(parts, body))
    return await parts.resolver.resolve(ParsedRequest(TENANT, [], request, parts.now(), ""))


async def test_what_is_decided_at_the_end_of_a_whole_history_is_told_as_if_all_were_told_anew() -> None:
    placement = await stood(STEPS)
    anew = replay(placement.ledger, placement.ledger.path(placement.entry_id), {})

    assert placement.path_state.tree.removals
    assert placement.path_state == anew
    for tip, path_state in placement.cached_conversation.path_states.items():
        assert path_state == replay(placement.ledger, placement.ledger.path(tip), {})


async def test_what_is_decided_at_the_end_of_a_whole_history_tells_only_its_newest_entry_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To tell all of it anew held up everybody for a millisecond more (300 messages)."""
    told: list[int] = []

    def counted(ledger: Any, path_state: PathState, entries: Any, *fresh: Any) -> PathState:
        told.append(len(entries := tuple(entries)))
        return extended(ledger, path_state, entries, *fresh)

    extended = stories.extend
    monkeypatch.setattr(stories, "extend", counted)  # as `follow` asks for it
    await stood(STEPS)

    assert told
    assert set(told) == {1}


def test_a_tool_reads_the_setting_of_the_same_name() -> None:
    set_here = {"recall_page_tokens": 500, "isolate_above": 7, "child_view": "auto", "block_format": "nested"}

    found = tool_settings(load_config(set_here))

    assert (found.recall_page_tokens, found.isolate_above, found.child_view) == (500, 7, "auto")
    assert found.block_format == FLAT_FORMAT  # by the model that is asked, not for all
