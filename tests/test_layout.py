"""The layout that docs/architecture.md describes: few entries at the top, small folders, packages with one face."""

import ast
from collections.abc import Iterator
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
ENGINE, DOORS = HOUSE / "proxy", HOUSE / "callstack_proxy"
MOST_ENTRIES, MOST_MODULES = 16, 18
SHIPPED = DOORS / "cli" / "demo" / "files"
"""Files that the demo copies; nothing of them is imported."""
SPLIT = ("core", "management")
"""Packages that are only a folder of packages: each of those has a face of its own."""
APART = (
    *("proxy.config.runtime", "proxy.config.for_core"),
    *("proxy.store.sql", "proxy.store.memory", "proxy.store.database_errors"),
)
"""Modules apart from their face: a command reads a configuration without the store and the tools that the first need,
and asks a running proxy without the database library that the others need."""


def modules() -> Iterator[Path]:
    for path in sorted([*ENGINE.rglob("*.py"), *DOORS.rglob("*.py")]):
        if not path.is_relative_to(SHIPPED):
            yield path


def package_of(name: str) -> str:
    """The package whose face the module `name` stands behind, such as `proxy.core.frames`; empty for a lone module."""
    parts = name.split(".")
    depth = 3 if len(parts) > 1 and parts[1] in SPLIT else 2
    head = parts[:depth]
    return ".".join(head) if (HOUSE / Path(*head)).is_dir() and len(head) == depth else ""


def is_package(name: str) -> bool:
    return (HOUSE / Path(*name.split("."))).is_dir()


def test_the_root_has_few_entries() -> None:
    for package in (ENGINE, DOORS):
        entries = [path.name for path in package.iterdir() if path.name != "__pycache__"]

        assert len(entries) <= MOST_ENTRIES, entries


def test_no_folder_is_crowded() -> None:
    folders = {path.parent for path in modules()}
    crowded = {str(f.relative_to(HOUSE)): n for f in folders if (n := len(list(f.glob("*.py")))) > MOST_MODULES}

    assert crowded == {}


def test_a_package_is_imported_through_its_face() -> None:
    """Imports inside functions load something heavy only where it is needed, and may reach behind the face."""
    assert [line for path in modules() for line in imports_behind_a_face(path)] == []


def imports_behind_a_face(path: Path) -> Iterator[str]:
    own = path.relative_to(HOUSE).with_suffix("").as_posix().replace("/", ".")
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(("proxy.", "callstack_proxy.")):
            continue
        package = package_of(node.module or "")
        if (
            package
            and not own.startswith(f"{package}.")
            and not is_package(node.module or "")
            and node.module not in APART
        ):
            yield f"{own}, line {node.lineno}: {node.module}"
