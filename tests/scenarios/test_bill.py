"""The report equals the bill: a session of a client, played in every mode, beside the bill of a run without a proxy."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from llm_test_provider import Model, ScriptedProvider, says
from llm_test_provider.tokens import default_counter
from proxy.accounting import tariff_for
from tests.bill import sum_charged
from tests.client_dialects import CHAT, TestDialect
from tests.harness import Conversation, RecordingProvider, bash, does, running_stage, tool
from tests.scenarios.test_money import CACHED_MODELS, charged_without_a_proxy

MODES = ("shadow", "passive", "active")
SAME = 0.005
"""Share by which the untouched cost may differ between modes."""
CLOSE = 0.02
"""Share of the bill of a direct run by which it may be off."""
WORDS = tuple(f"{a}{b}" for a in ("order", "queue", "batch", "token", "cache") for b in ("Row", "Key", "Log"))
SYSTEM = " ".join(f"Rule {n}: keep the {WORDS[n % 15]} of every {WORDS[n % 7]} short." for n in range(1500))
TOOLS = ("bash", "read", *(f"{a}_{b}" for a in WORDS for b in WORDS[:6] if a != b))
"""With the system text a head as coding agents have it, of some 25,000 tokens."""


@dataclass(frozen=True)
class Counts:
    """A provider that counts `ratio` times as many tokens as o200k, and `in_head` times in tools and system text."""

    ratio: float
    in_head: float = 0.0

    def __call__(self, text: str) -> int:
        is_head = text.startswith((SYSTEM[:20], '[{"'))
        return round((self.in_head if self.in_head and is_head else self.ratio) * default_counter()(text))


def play_session(provider: ScriptedProvider, chat: Conversation, seed: int = 7) -> None:
    """Four tasks of a user, each with a handful of files and commands, as a coding agent does them."""
    chance = random.Random(seed)

    def text(words: int) -> str:
        return " ".join(f"{chance.choice(WORDS)}_{chance.choice(WORDS)}({chance.randrange(999)})" for _ in range(words))

    for task in range(4):
        steps = chance.randrange(3, 7)
        calls = [does(bash(f"cat {WORDS[task]}/{step}.py"), text=text(12)) for step in range(steps)]
        provider.will(*calls, says(f"Task {task} is done. {text(40)}"))
        chat.says(f"Please change {WORDS[task]}.py so that {text(30)}")
        for _ in range(steps):
            chat.returns(text(chance.randrange(60, 600)))


@pytest.mark.rows("X-41", "X-77")
def test_with_brief_tools_the_untouched_cost_stays_what_it_is(
    tmp_path: Path, tongue: TestDialect, streamed: bool
) -> None:
    """Although the provider never counts the descriptions that are not sent."""
    model = "claude-opus-4-8"
    tools = [tool(name) for name in TOOLS]
    for at, each in enumerate(tools):
        each["function"]["description"] += "\n" + SYSTEM[1000 * at : 1000 * at + 800]
    untouched, paid = [], []
    for way in ("full", "brief"):
        with (
            RecordingProvider(models=[Model(model, cache=CACHED_MODELS[model])], count=Counts(1.14)) as provider,
            running_stage(provider, tmp_path / way, streamed=streamed, tongue=tongue) as stage,
        ):
            asks = {"stream_options": {"include_usage": True}} if tongue is CHAT and streamed else {}
            chat = stage.chat(
                stage.proxy(client_tools=way), model=model, system=SYSTEM, options={"tools": tools, **asks}
            )
            play_session(provider, chat)
            total = chat.proxy.get("/stack/totals")["total"]
            assert total["cost"] == pytest.approx(sum_charged(provider.asked, tariff_for(model)), rel=CLOSE)
            untouched.append(total["cost_untouched"])
            paid.append(total["cost"])

    assert untouched[1] == pytest.approx(untouched[0], rel=CLOSE)
    assert paid[1] < 0.9 * paid[0]


@pytest.mark.rows("X-41")
@pytest.mark.parametrize(
    "counts",
    [Counts(1.0), Counts(1.14), Counts(0.9), Counts(1.14, 1.5), Counts(1.14, 0.8)],
    ids=["1.0", "1.14", "0.9", "1.14 and 1.5 in the head", "1.14 and 0.8 in the head"],
)
@pytest.mark.parametrize("model", ["gpt-5.4", "claude-opus-4-8"])
def test_the_untouched_cost_is_the_same_in_every_mode_and_equals_the_bill_of_a_direct_run(
    tmp_path: Path, tongue: TestDialect, streamed: bool, model: str, counts: Counts
) -> None:
    told, bills = {}, {}
    for mode in MODES:
        with (
            RecordingProvider(models=[Model(model, cache=CACHED_MODELS[model])], count=counts) as provider,
            running_stage(provider, tmp_path / mode, streamed=streamed, tongue=tongue) as stage,
        ):
            asks = {"stream_options": {"include_usage": True}} if tongue is CHAT and streamed else {}
            about = {"model": model, "system": SYSTEM, "tools": TOOLS, "options": asks}
            chat = stage.chat(stage.proxy(mode=mode), **about)
            play_session(provider, chat)
            total = chat.proxy.get("/stack/totals")["total"]
            assert total["cost"] == pytest.approx(sum_charged(provider.asked, tariff_for(model)), rel=CLOSE)
            told[mode] = total["cost_untouched"]
            bills[mode] = charged_without_a_proxy(stage, provider, model, count=counts)
            assert mode == "shadow" or any("folded" in e for r in chat.proxy.receipts() for e in r["events"])
    # How it counts our own tools beside the client's it tells nobody.
    same = 2 * SAME if counts.in_head else SAME
    assert told == pytest.approx(dict.fromkeys(MODES, told["shadow"]), rel=same)
    assert told == pytest.approx(bills, rel=CLOSE)
