"""What the documents point at is there: files of the project, and the commands they tell a reader to type."""

import re
from pathlib import Path

import pytest

from proxy.commands.lazy import COMMANDS

HOUSE = Path(__file__).resolve().parents[1]
DOCUMENTS = (
    "README.md", "docs/configuration.md", "docs/how-it-works.md", "docs/money.md", "docs/operation.md", "docs/probes.md",
    "docs/provider.md", "docs/replay.md", "CONTRIBUTING.md", "Dockerfile",
)  # fmt: skip


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_a_document_names_exists(document: str) -> None:
    named = re.findall(r"\b(?:proxy|tests|docs|bench|\.ci)/[\w./-]*[\w/]", (HOUSE / document).read_text())

    assert [path for path in named if not (HOUSE / path).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_a_document_names_exists(document: str) -> None:
    named = re.findall(r"(?:`|bin/|^|or: )callstack (\w+)", (HOUSE / document).read_text(), re.MULTILINE)

    assert [name for name in named if name not in COMMANDS] == []
