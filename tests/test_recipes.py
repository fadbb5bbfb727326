"""The recipes of CONTRIBUTING.md hold: built from its text in a copy of the tree, each passes its own check.

A `python` block that begins with a path is a new file, a `diff` block goes into the files that it names, and an `sh`
block says which tests must pass then.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[1]
COPIED = ("proxy", "callstack_proxy", "llm_test_provider", "tests", "docs", "pyproject.toml", "proxy.yaml", "README.md")
BLOCK = re.compile(r"^```(python|diff|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECIPES = 7


def recipes() -> str:
    """The part of CONTRIBUTING.md that has them."""
    text = (HOUSE / "CONTRIBUTING.md").read_text()
    return text[text.index("## Recipes") : text.index("## What we ask of a change")]


def blocks(language: str) -> Iterator[str]:
    yield from (text for name, text in BLOCK.findall(recipes()) if name == language)


def write_file(tree: Path, block: str) -> None:
    first, _, content = block.partition("\n")
    path = tree / first.removeprefix("# ")
    path.parent.mkdir(exist_ok=True)
    assert not path.exists(), f"{path} is there already"
    path.write_text(content)


def apply_diff(tree: Path, block: str) -> None:
    """Each part between two `@@`, or behind a `--- path`, replaces the one place that it describes."""
    for change in re.split(r"^--- ", block, flags=re.MULTILINE)[1:]:
        name, _, hunks = change.partition("\n")
        path = tree / name
        text = path.read_text()
        for hunk in re.split(r"^@@\n", hunks, flags=re.MULTILINE):
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] != "+")
            after = "".join(line[1:] for line in lines if line[0] != "-")
            assert text.count(before) == 1, f"{name}: not one place for\n{before}"
            text = text.replace(before, after)
        path.write_text(text)


@pytest.mark.long
def test_each_recipe_builds_and_passes_its_own_check(tmp_path: Path) -> None:
    for name in COPIED:
        if (HOUSE / name).is_dir():
            shutil.copytree(HOUSE / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "images"))
        else:
            shutil.copy(HOUSE / name, tmp_path / name)
    for block in blocks("python"):
        write_file(tmp_path, block)
    for block in blocks("diff"):
        apply_diff(tmp_path, block)
    checks = [shlex.split(block) for block in blocks("sh")]
    assert len(checks) == RECIPES
    assert all(check[0] == "pytest" for check in checks)

    files = [check[1] for check in checks]
    chosen = " or ".join(f"({check[3]})" if len(check) > 2 else Path(check[1]).stem for check in checks)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--take", "all", "-p", "no:cacheprovider", "-k", chosen]
    done = subprocess.run([*command, *files], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    written = [block.partition("\n")[0].removeprefix("# ") for block in blocks("python")]
    ruff = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--no-cache",
        *written,
    ]  # what a recipe shows is written as the rest is
    linted = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout
