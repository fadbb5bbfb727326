"""Changes the constant of a requirement row and checks that the test which is said to prove the row fails.

    python docs/prove.py                every row of docs/constants.toml
    python docs/prove.py S1-56 S4-20    these rows
    python docs/prove.py --find         for rows without a proof: which of the tests that touch the row would fail

`docs/constants.toml` says which constants a row has, as `"path:NAME"`. The proof of a row is the test marked
`@pytest.mark.proves("S1-56")`. Each change is made in a copy of the tree, so the checkout is never touched.
The exit code is 1 where a constant can change and no proof fails.
"""

from __future__ import annotations

import argparse
import ast
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import cache_from_source
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[1]
DATA = "docs/constants.toml"
COPIED = ("proxy", "callstack_proxy", "llm_test_provider", "tests", "docs", "pyproject.toml", "proxy.yaml", "README.md")
PROOF, TOUCH = "pytest.mark.proves", "pytest.mark.rows"
TESTS_FAILED = 1
"""The exit code of pytest where tests ran and some failed."""


def marked_tests(house: Path, mark: str) -> dict[str, list[str]]:
    """Node ids of the tests that carry `mark`, by row."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(house.glob("tests/**/test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for call in node.decorator_list:
                    if isinstance(call, ast.Call) and ast.unparse(call.func) == mark:
                        for row in call.args:
                            node_id = f"{file.relative_to(house).as_posix()}::{node.name}"
                            found[str(getattr(row, "value", ""))].append(node_id)
    return found


def changed_source(source: str, name: str) -> str:
    """`source` with every number in the value of the constant `name` made larger by half and one.

    Raises LookupError where there is no such constant, or no number in it.
    """
    lines = source.split("\n")
    numbers = [number for value in _values_of(ast.parse(source), name) for number in _numbers_in(value)]
    if not numbers:
        raise LookupError(f"no number in a constant {name}")
    for number in sorted(numbers, key=lambda each: (each.lineno, each.col_offset), reverse=True):
        line = lines[number.lineno - 1]
        larger = _larger(number.value)
        lines[number.lineno - 1] = line[: number.col_offset] + larger + line[number.end_col_offset :]
    return "\n".join(lines)


def _larger(value: object) -> str:
    if isinstance(value, int):
        return str(value + value // 2 + 1)
    return repr(float(str(value)) * 1.5)


def _values_of(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """What the constant is set to; `Class.field` is a default of a class."""
    holder, _, field = name.rpartition(".")
    bodies = (
        [tree.body] if not holder else [n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == holder]
    )
    for statement in (each for body in bodies for each in body):
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == field for target in targets):
            yield value


def _numbers_in(value: ast.expr) -> Iterator[ast.Constant]:
    for node in ast.walk(value):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            yield node


def failing(copy: Path, tests: Sequence[str]) -> list[str]:
    """The tests that fail in `copy`. Raises RuntimeError where they could not be run."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "--take", "all", *tests]
    done = subprocess.run(  # noqa: S603  our own tests
        command, cwd=copy, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode not in (0, TESTS_FAILED, 2):  # 2: a module that does not even load with the change
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    if done.returncode == 0:
        return []
    return sorted(
        {line.split(" - ")[0].split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))}
    )


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 where a change went unnoticed."""
    parser = argparse.ArgumentParser(description="Checks that the proof of a row fails when its constant changes.")
    parser.add_argument("rows", nargs="*", help="rows to check; all of them by default")
    parser.add_argument("--find", action="store_true", help="try the tests that touch a row which has no proof")
    asked = parser.parse_args(arguments)
    constants: dict[str, list[str]] = tomllib.loads((HOUSE / DATA).read_text())
    proofs, touching = marked_tests(HOUSE, PROOF), marked_tests(HOUSE, TOUCH)
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "callstack"
        copy.mkdir()
        for each in COPIED:
            source = HOUSE / each
            shutil.copytree(source, copy / each) if source.is_dir() else shutil.copy(source, copy / each)
        for row in asked.rows or constants:
            tests = proofs.get(row) or (touching.get(row, []) if asked.find else [])
            for constant in constants[row]:
                told = _try(copy, constant, tests)
                unnoticed += told.startswith("no ")
                sys.stdout.write(f"{row}  {constant}: {told}\n")
                sys.stdout.flush()
    return 1 if unnoticed else 0


def _write(file: Path, source: str) -> None:
    """Without the byte code of before: by time in seconds and size, two changes at once can look the same to Python."""
    file.write_text(source)
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def _try(copy: Path, constant: str, tests: Sequence[str]) -> str:
    if not tests:
        return "no test is marked as its proof"
    path, _, name = constant.partition(":")
    source = (copy / path).read_text()
    _write(copy / path, changed_source(source, name))
    try:
        found = failing(copy, tests)
    finally:
        _write(copy / path, source)
    return "proved by " + ", ".join(found[:3]) if found else "no test fails when it changes: " + ", ".join(tests[:3])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
