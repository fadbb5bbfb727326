"""docs/provider.md names everything a script may say, and nothing else."""

import dataclasses
import re
from pathlib import Path

import pytest

import llm_test_provider as scripted
from llm_test_provider import Model, ScriptedAnswer, When
from llm_test_provider.apis import chat_calls as call_forms
from llm_test_provider.apis import chat_sse as event_forms
from llm_test_provider.apis import typed_sse as typed_events
from llm_test_provider.error_texts import OVERFLOWS, THROTTLES
from llm_test_provider.prompt_cache import AS_OF, CACHE_RULES, MINUTE
from llm_test_provider.scenario import read
from llm_test_provider.strict_profiles import PROFILES

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "provider.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"`([^`\n]+)`", PAGE))


@pytest.mark.parametrize(
    "names",
    [
        event_forms.FORMS,
        typed_events.FORMS,
        call_forms.FORMS,
        [wording.name for wording in (*OVERFLOWS, *THROTTLES)],
        CACHE_RULES,
        [field.name for field in dataclasses.fields(When)],
        {field.name for field in dataclasses.fields(ScriptedAnswer)} - {"instead"},
        {field.name for field in dataclasses.fields(Model)} - {"name"},
    ],
    ids=["event forms", "typed events", "call forms", "wordings", "caches", "conditions", "answers", "models"],
)
def test_every_name_is_documented(names: list[str]) -> None:
    assert set(names) <= WORDS


def test_every_builder_is_exported_and_documented() -> None:
    functions = {name for name in scripted.__all__ if name[0].islower()} - {"contains"}

    assert functions <= WORDS


def test_the_table_of_caches_says_what_the_code_does() -> None:
    for rule in CACHE_RULES.values():
        (row,) = re.findall(rf"^\| `{rule.name}` \| (\d.+?) \|$", PAGE, re.MULTILINE)
        read_price, write_price, minimum, step, lifetime, _ = row.split(" | ")
        assert (float(read_price), float(write_price)) == (rule.read, rule.write)
        assert (int(minimum), int(step)) == (rule.minimum, rule.step)
        seconds = {"min": MINUTE, "day": 24 * 60 * MINUTE}
        number, unit = lifetime.split()
        assert int(number) * seconds[unit] == rule.lifetime
    assert AS_OF in PAGE


def test_the_scenario_shown_is_a_scenario() -> None:
    (shown,) = re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)

    assert read(shown).models[0].name == "my-model"


def test_every_strict_profile_is_told() -> None:
    table = PAGE[PAGE.index("## Strict profiles") : PAGE.index("## Models")]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(PROFILES)
