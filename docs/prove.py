"""Breaks the code of a requirement row and checks that a test which names the row fails.

    python docs/prove.py                            every constant and condition of every row
    python docs/prove.py S1-56 S4-20                those of these rows
    python docs/prove.py --minutes 8 --seed COMMIT  as many as can be tried in that time, in an order by the seed
    python docs/prove.py --find                     for rows without a proof: which tests that touch the row would fail

`docs/constants.toml` says which constants a row has, as `"path:NAME"`: their numbers grow. The proof of a row is the
test marked `@pytest.mark.proves("S1-56")`. `docs/conditions.toml` says which conditions a row has, as
`"path:function: condition"`: they are negated, and one of the tests marked `@pytest.mark.rows("S1-56")` or as the proof
has to fail. Each change is made in a copy of the tree, so the checkout is never touched.
The exit code is 1 where something can change and no such test fails.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue

HOUSE = Path(__file__).resolve().parents[1]
CONSTANTS, CONDITIONS = "docs/constants.toml", "docs/conditions.toml"
COPIED = ("proxy", "callstack_proxy", "llm_test_provider", "tests", "docs", "pyproject.toml", "proxy.yaml", "README.md")
PROOF, TOUCH = "pytest.mark.proves", "pytest.mark.rows"
EXIT_CODES = (0, 1, 2, 4)
"""Of pytest: all passed, some failed, and two for a module that does not even load with the change."""
TIMEOUT_S = 300


@dataclass(frozen=True)
class Change:
    """One way to break a row. `condition` is empty where `name` is a constant, else `name` is a function."""

    row: str
    path: str
    name: str
    condition: str
    tests: tuple[str, ...]
    """Those of which one has to fail."""

    def __str__(self) -> str:
        return f"{self.row}  {self.path}:{self.name}" + (f": {self.condition}" if self.condition else "")

    def changed(self, source: str) -> str:
        """Raises LookupError where the source has no such constant or condition."""
        if self.condition:
            return negated_source(source, self.name, self.condition)
        return changed_source(source, self.name)


def listed_changes(house: Path, *, find: bool = False) -> list[Change]:
    """All of both lists. `find`: rows without a proof are tried with the tests that touch them."""
    proofs, touching = marked_tests(house, PROOF), marked_tests(house, TOUCH)
    changes = []
    for row, place in _listed(house / CONSTANTS):
        path, _, name = place.partition(":")
        tests = proofs.get(row) or (touching.get(row, []) if find else [])
        changes.append(Change(row, path, name, "", tuple(tests)))
    for row, place in _listed(house / CONDITIONS):
        path, name, condition = (part.strip() for part in place.split(":", 2))
        tests = sorted({*proofs.get(row, ()), *touching.get(row, ())})
        changes.append(Change(row, path, name, condition, tuple(tests)))
    return changes


def _listed(file: Path) -> Iterator[tuple[str, str]]:
    rows: Mapping[str, Sequence[str]] = tomllib.loads(file.read_text())
    return ((row, place) for row, places in rows.items() for place in places)


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


def negated_source(source: str, function: str, condition: str) -> str:
    """`source` with the opposite of a condition of `function` (`Class.method` for a method), wherever it stands there.

    Raises LookupError where the function has no such condition.
    """
    places = [
        node
        for body in _functions_named(ast.parse(source), function.split("."))
        for node in ast.walk(body)
        if isinstance(node, ast.expr) and ast.unparse(node) == condition and _is_read(node)
    ]
    if not places:
        raise LookupError(f"no condition {condition!r} in a function {function}")
    lines = source.encode().split(b"\n")  # columns of the tree count bytes
    for node in sorted(places, key=lambda each: (each.lineno, each.col_offset), reverse=True):
        last, end = (node.end_lineno or node.lineno) - 1, node.end_col_offset or 0
        lines[last] = lines[last][:end] + b"))" + lines[last][end:]
        first, start = node.lineno - 1, node.col_offset
        lines[first] = lines[first][:start] + b"(not (" + lines[first][start:]
    return b"\n".join(lines).decode()


def _is_read(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


def _functions_named(tree: ast.AST, names: Sequence[str]) -> Iterator[ast.AST]:
    """The functions that the last name stands for, in the classes that those before it stand for."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == names[0]:
            yield from _functions_named(node, names[1:]) if names[1:] else (node,)


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
    """The first of the tests that fails in `copy`; none where all pass. Raises RuntimeError where they cannot run."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", "--take", "all", *tests]
    try:
        done = subprocess.run(  # noqa: S603  our own tests
            command, cwd=copy, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return ["not ending"]
    if done.returncode not in EXIT_CODES:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    if done.returncode == 0:
        return []
    return sorted(
        {line.split(" - ")[0].split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))}
    )


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 where a change went unnoticed."""
    parser = argparse.ArgumentParser(description="Checks that a test of a row fails when its code is broken.")
    parser.add_argument("rows", nargs="*", help="rows to check; all of them by default")
    parser.add_argument("--find", action="store_true", help="try the tests that touch a row which has no proof")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further change after that time")
    parser.add_argument("--seed", default="", help="another seed is another order of the changes")
    asked = parser.parse_args(arguments)
    deadline = time.monotonic() + asked.minutes * 60
    changes = [each for each in listed_changes(HOUSE, find=asked.find) if not asked.rows or each.row in asked.rows]
    if asked.seed:
        changes.sort(key=lambda change: sha256(f"{asked.seed} {change}".encode()).digest())
    with tempfile.TemporaryDirectory() as folder:
        outcomes = list(_try_all(Path(folder), changes, deadline))
    unnoticed = sum(outcome.startswith("no ") for outcome in outcomes)
    sys.stdout.write(f"{len(outcomes)} of {len(changes)} changes tried, {unnoticed} unnoticed\n")
    return 1 if unnoticed else 0


def _try_all(folder: Path, changes: Sequence[Change], deadline: float) -> Iterator[str]:
    """What came of each change that was begun before `deadline` (of the monotonic clock); one a core at a time."""
    copies: SimpleQueue[Path] = SimpleQueue()
    workers = os.cpu_count() or 1
    for number in range(workers):
        copies.put(_copied_tree(folder / f"copy{number}" / "callstack"))

    def outcome_of(change: Change) -> str:
        if time.monotonic() > deadline:
            return ""
        copy = copies.get()
        try:
            return _try(copy, change)
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(workers) as pool:
        for change, outcome in zip(changes, pool.map(outcome_of, changes), strict=True):
            if outcome:
                sys.stdout.write(f"{change}: {outcome}\n")
                sys.stdout.flush()
                yield outcome


def _copied_tree(copy: Path) -> Path:
    copy.mkdir(parents=True)
    for each in COPIED:
        source = HOUSE / each
        shutil.copytree(source, copy / each) if source.is_dir() else shutil.copy(source, copy / each)
    return copy


def _write(file: Path, source: str) -> None:
    """Without the byte code of before: by time in seconds and size, two changes at once can look the same to Python."""
    file.write_text(source)
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def _try(copy: Path, change: Change) -> str:
    if not change.tests:
        return "no test is marked as its proof"
    source = (copy / change.path).read_text()
    _write(copy / change.path, change.changed(source))
    try:
        found = failing(copy, change.tests)
    finally:
        _write(copy / change.path, source)
    return "proved by " + found[0] if found else "no test fails when it changes: " + ", ".join(change.tests[:3])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
