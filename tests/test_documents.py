"""What the documents point at is there: files of the project, the commands they tell a reader to type, and the settings
with their defaults."""

import re
from pathlib import Path

import pytest

from callstack_proxy.cli.main import COMMANDS, GROUPS
from callstack_proxy.config_sources import load_config
from proxy.config.model import Config
from proxy.server.runner import MAX_HEADER_BYTES
from proxy.upstream.http import _MAX_HEADER_LINE_BYTES, MAX_REFUSAL_BYTES

HOUSE = Path(__file__).resolve().parents[1]
DOCUMENTS = (
    "README.md", "docs/configuration.md", "docs/export.md", "docs/how-it-works.md", "docs/loops.md", "docs/money.md",
    "docs/autonomy.md", "docs/looking-back.md", "docs/speaking.md",
    "docs/operation.md", "docs/probes.md", "docs/provider.md", "docs/replay.md", "docs/summaries.md",
    "docs/savings.md", "docs/wrap.md", "docs/library.md", "docs/console.md",
    "CONTRIBUTING.md", "Dockerfile",
)  # fmt: skip


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_a_document_names_exists(document: str) -> None:
    text = (HOUSE / document).read_text()
    named = re.findall(r"\b(?:proxy|callstack_proxy|tests|docs|bench|\.ci)/[\w./-]*[\w/]", text)
    written = re.findall(r"^```python\n# (\S+)$", text, re.MULTILINE)  # by a recipe

    assert [path for path in named if path not in written and not (HOUSE / path).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_a_document_names_exists(document: str) -> None:
    named = re.findall(r"(?:`|bin/|^|or: )callstack (\w+)", (HOUSE / document).read_text(), re.MULTILINE)

    assert [name for name in named if name not in COMMANDS and name not in GROUPS] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_of_a_group_that_a_document_names_exists(document: str) -> None:
    groups = "|".join(GROUPS)
    named = re.findall(rf"(?:`|bin/|^|or: )callstack ({groups}) ([a-z]+)", (HOUSE / document).read_text(), re.MULTILINE)

    assert [f"{group} {name}" for group, name in named if group != "branch" and name not in GROUPS[group][1]] == []


def test_the_page_on_settings_names_keys_that_exist_with_their_defaults() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", (HOUSE / "docs/configuration.md").read_text(), re.MULTILINE)
    settings = {key: told.strip(" `").replace(",", "") for key, told in rows if key in Config.model_fields}

    assert len(settings) > 5
    assert settings | {"summaries": "off"} == {key: _default(key) for key in settings}


def test_the_page_on_operation_has_the_limits_of_what_is_read() -> None:
    text = (HOUSE / "docs/operation.md").read_text()
    limits = re.findall(r"^\| [^|]+ \| (\d+) ([KM])iB \|", text, re.MULTILINE)

    of_client, of_provider = (MAX_HEADER_BYTES, MAX_HEADER_BYTES), (_MAX_HEADER_LINE_BYTES, MAX_REFUSAL_BYTES)
    assert [int(count) << {"K": 10, "M": 20}[unit] for count, unit in limits] == [*of_client, *of_provider]


def _default(key: str) -> str:
    value = getattr(load_config(), key)
    return (
        "unset"
        if value is None
        else "off"
        if key == "summaries" and not value.is_enabled
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
