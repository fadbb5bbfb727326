"""Counts how the house stands: how large it is, what is told twice, and which words name nothing.

    python docs/house.py             the counts; exit code 1 where one is above its limit
    python docs/house.py --places    and where each of those is that have a place

It reads the sources as syntax trees and runs none of them. The limits are in `LIMITS`: 0 for what is not true (names
that do not exist, needless aliases, orphan docstrings), and for sizes what they are now with a little room.
"""

from __future__ import annotations

import ast
import builtins
import re
import statistics
import string
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[1]
ENGINE, DOORS = "proxy", "callstack_proxy"
COPIED = "callstack_proxy/cli/demo/files/"
"""The project that the demo copies: data."""
DATA = ("proxy.yaml", "proxy/**/*.toml", "callstack_proxy/**/*.html", "callstack_proxy/**/*.js")
"""Files whose words are names too: settings, prices, pages."""
VAGUE = ("told", "came", "heard", "kept", "parts", "line")
"""Locals that do not say what they hold."""
TWIN_FIELDS = 6
"""Two records with so many fields in common are twins."""
RECORDS = frozenset({"Struct", "TypedDict", "NamedTuple", "BaseModel"})
CONVENTIONAL = {"sqlalchemy": "sa"}
"""Aliases that everybody uses."""
FOREIGN = frozenset(
    {
        # of HTTP, shells and systems
        *("Via", "nohup", "pipefail", "shlex", "idle_in_transaction_session_timeout", "OTEL_EXPORTER_OTLP_HEADERS"),
        # of providers and clients
        *("headroom", "compaction_trigger", "model_prices_and_context_window", "last_mini_run", "traj"),
        # a file beside the module, versions in an address, words of an example
        *("NOTICE", "v1", "v1beta", "v4", "parseXMLTree", "mcp__disk__Read_File", "null", "with"),
    }
)
"""Names in docstrings that are no names of ours."""
SETTING = re.compile(r"STACK_[A-Z_]+")
NAME = re.compile(r"[A-Za-z_][\w.]*(?:\(\))?")
QUOTED = re.compile(r"`([^`\n]+)`")
RAISED = re.compile(r"\bRaises\s+((?:`?[A-Z_]\w+`?(?:,\s+|\s+or\s+|\s+and\s+)?)+)")
WORD = re.compile(r"\w+")
COMMENT = re.compile(r"^(?:.*  |[ ]*)# (?!type:|noqa|fmt:|---).*$", re.MULTILINE)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.ClassDef | Function


@dataclass(frozen=True)
class Record:
    """A class that is only data, with the names of its fields."""

    name: str
    where: str
    fields: frozenset[str]
    bases: frozenset[str]


@dataclass(frozen=True)
class Text:
    """A docstring or a comment. `scopes` are the nodes whose names it may use; empty: the whole module."""

    where: str
    words: str
    scopes: tuple[Scope, ...] = ()


@dataclass
class Source:
    """One module, read once."""

    path: str
    text: str
    tree: ast.Module

    @cached_property
    def scoped_nodes(self) -> list[tuple[ast.AST, tuple[Scope, ...]]]:
        """Every node in the order of the source, with the classes and functions around it, the innermost last."""
        found: list[tuple[ast.AST, tuple[Scope, ...]]] = []
        waiting: list[tuple[ast.AST, tuple[Scope, ...]]] = [(self.tree, ())]
        while waiting:
            node, around = waiting.pop()
            found.append((node, around))
            inside = (*around, node) if isinstance(node, Scope) else around
            waiting.extend((each, inside) for each in reversed([*ast.iter_child_nodes(node)]))
        return found

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return [node for node, _ in self.scoped_nodes]

    @cached_property
    def strings(self) -> list[ast.Expr]:
        """Strings that stand as statements: docstrings, and orphans."""
        return [node for node in self.nodes if isinstance(node, ast.Expr) and is_string(node)]

    @cached_property
    def docstrings(self) -> frozenset[int]:
        return frozenset(id(each.value) for each in self.strings)

    @cached_property
    def values_and_fields(self) -> frozenset[str]:
        """The one-word strings of the module, and the fields of its classes."""
        words = {node.value for node in self.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        classes = (node for node in self.nodes if isinstance(node, ast.ClassDef))
        return frozenset(words).union(*(targets(node.body) for node in classes))

    def names_in(self, node: ast.AST) -> frozenset[str]:
        """All names and all words of strings in `node`, but for docstrings."""
        return frozenset(word for each in ast.walk(node) for word in self._names_of(each))

    def _names_of(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg() | ast.keyword():
                yield node.arg or ""
            case ast.Name():
                yield node.id
            case ast.Attribute():
                yield node.attr
            case ast.alias():
                yield from (*node.name.split("."), node.asname or "")
            case ast.ImportFrom():
                yield from (node.module or "").split(".")
            case ast.Constant(value=str(words)) if id(node) not in self.docstrings:
                yield from WORD.findall(words)
            case ast.Constant(value=bytes(raw)):
                yield from WORD.findall(raw.decode("latin-1"))
            case _:
                pass


def sources_in(house: Path, *packages: str) -> list[Source]:
    """The modules of these packages, without what the demo copies."""
    found = []
    for path in sorted(each for package in packages for each in (house / package).rglob("*.py")):
        name = path.relative_to(house).as_posix()
        if not name.startswith(COPIED):
            text = path.read_text()
            found.append(Source(name, text, ast.parse(text)))
    return found


def is_string(node: ast.AST) -> bool:
    """Whether a statement is a bare string."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


class House:
    """All counts, each as the list of places that are counted."""

    def __init__(self, house: Path = HOUSE) -> None:
        self.house = house
        self.engine = sources_in(house, ENGINE)
        self.doors = sources_in(house, DOORS)

    @property
    def sources(self) -> list[Source]:
        return [*self.engine, *self.doors]

    def function_lengths(self) -> list[int]:
        """Lines of each function, from its `def` to its end, shortest first."""
        return sorted(
            (node.end_lineno or node.lineno) - node.lineno + 1
            for source in self.sources
            for node in source.nodes
            if isinstance(node, Function)
        )

    def comment_lines(self) -> int:
        """Lines with a comment for readers: rulers and words to tools do not count."""
        return sum(len(COMMENT.findall(source.text)) for source in self.sources)

    def test_functions(self) -> int:
        """Functions of `tests/` that pytest runs."""
        tests = (self.house / "tests").rglob("test_*.py")
        return sum(len(re.findall(r"^\s*(?:async )?def test_", path.read_text(), re.MULTILINE)) for path in tests)

    def twins(self) -> list[str]:
        """Pairs of records with six or more fields in common, of which neither is the base of the other."""
        kinds = record_kinds(self.sources)
        found = (each for source in self.sources for each in records_of(source, kinds))
        records = [each for each in found if len(each.fields) >= TWIN_FIELDS]
        return [
            f"{one.where} {one.name} = {other.where} {other.name}: {len(both)}"
            for one, other in combinations(records, 2)
            if len(both := one.fields & other.fields) >= TWIN_FIELDS
            and one.name not in other.bases
            and other.name not in one.bases
        ]

    @cached_property
    def known(self) -> frozenset[str]:
        """Names that a docstring anywhere may use: what is defined at the top of a module or in a class, modules, whole
        strings (tools, JSON members, headers), settings, and the words of the data files."""
        found = set(dir(builtins)) | FOREIGN
        for source in self.sources:
            found.update(Path(source.path).with_suffix("").parts)
            found.update(defined_names(source))
            found.update(one_word_strings(source))
        for pattern in DATA:
            for path in self.house.glob(pattern):
                found.update(WORD.findall(path.read_text()))
        project = tomllib.loads((self.house / "pyproject.toml").read_text())["project"]
        found.update(WORD.findall(" ".join(project["dependencies"])))
        return frozenset(found)

    @cached_property
    def members(self) -> frozenset[str]:
        """What may stand behind a dot: fields, and all attributes that are used somewhere."""
        nodes = [node for source in self.sources for node in source.nodes]
        used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        return frozenset(used.union(*(targets(node.body) for node in nodes if isinstance(node, ast.ClassDef))))

    @cached_property
    def classes(self) -> frozenset[str]:
        """What can be raised: classes here, those that are imported, and those of imported modules."""
        found = {*dir(builtins), *self.members}
        for source in self.sources:
            for node in source.nodes:
                if isinstance(node, ast.ClassDef):
                    found.add(node.name)
                elif isinstance(node, ast.alias):
                    found.add(node.asname or node.name)
        return frozenset(found)

    @cached_property
    def settings(self) -> frozenset[str]:
        """Names of settings: the fields of the configuration."""
        config = [source for source in self.engine if source.path.startswith("proxy/config/")]
        return frozenset(name for source in config for name in source.names_in(source.tree))

    def unknown_names(self) -> list[str]:
        """Names in backticks, and errors behind "Raises", that do not exist."""
        return [fault for source in self.sources for text in texts_of(source) for fault in self._faults(source, text)]

    def _faults(self, source: Source, text: Text) -> Iterator[str]:
        for quoted in QUOTED.findall(text.words):
            if NAME.fullmatch(quoted):
                first, *members = quoted.removesuffix("()").split(".")
                known = self._is_known(first, source, text)
                if not known or not all(each in self.members or each in self.known for each in members if each):
                    yield f"{text.where} `{quoted}`"
        for raised in RAISED.findall(text.words):
            for name in WORD.findall(raised):
                if name[0] in string.ascii_uppercase + "_" and name not in self.classes:
                    yield f"{text.where} Raises {name}"

    def _is_known(self, name: str, source: Source, text: Text) -> bool:
        if SETTING.fullmatch(name):
            return name.rpartition("_")[2].lower() in {part for each in self.settings for part in each.split("_")}
        if name in self.known or name in self.settings:
            return True
        return any(name in source.names_in(scope) for scope in text.scopes or (source.tree,)) or (
            bool(text.scopes) and name in source.values_and_fields
        )

    def needless_aliases(self) -> list[str]:
        """`import X as Y` where nothing else in the module is named X."""
        return [fault for source in self.sources for fault in needless_aliases(source)]

    def orphan_docstrings(self) -> list[str]:
        """Strings that stand behind nothing they could document."""
        return [fault for source in self.sources for fault in orphans(source)]

    def vague_locals(self) -> list[str]:
        """Functions that give a local or a parameter one of the names that say nothing."""
        found = {
            f"{source.path}:{around[-1].lineno} {around[-1].name}: {name}"
            for source in self.sources
            for node, around in source.scoped_nodes
            if (name := bound_name(node)) in VAGUE and around and isinstance(around[-1], Function)
        }
        return sorted(found)


def record_kinds(sources: Iterable[Source]) -> frozenset[str]:
    """The bases by which a class is a record: those of `RECORDS`, and records that others are made from."""
    classes = [node for source in sources for node in source.nodes if isinstance(node, ast.ClassDef)]
    found, grown = frozenset[str](), RECORDS
    while grown != found:
        found = grown
        grown |= {node.name for node in classes if {last_name(base) for base in node.bases} & found}
    return found


def records_of(source: Source, kinds: frozenset[str] = RECORDS) -> Iterator[Record]:
    """The data classes of a module: of msgspec, dataclasses, typing and pydantic, with the fields that each adds."""
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            bases = frozenset(last_name(base) for base in node.bases)
            if bases & kinds or any(last_name(each) == "dataclass" for each in node.decorator_list):
                fields = frozenset(
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                )
                yield Record(node.name, source.path, fields, bases)


def last_name(node: ast.expr) -> str:
    """`Struct` of `msgspec.Struct`, `dataclass` of `dataclass(frozen=True)`."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def defined_names(source: Source) -> Iterator[str]:
    """Functions, classes, constants of a module; methods, not fields, of its classes."""
    for node in source.nodes:
        if isinstance(node, Scope):
            yield node.name
        elif isinstance(node, ast.alias):
            yield from node.name.split(".")
    yield from targets(source.tree.body)


def targets(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that statements assign."""
    for node in body:
        if isinstance(node, ast.Assign):
            yield from (each.id for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.If | ast.Try):
            yield from targets(node.body)


def one_word_strings(source: Source) -> Iterator[str]:
    """Words of strings that are one name, such as `stack_recall` or `x-stack-status`."""
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in source.docstrings:
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if re.fullmatch(r"[\w./-]+", text) and ("_" in text or "-" in text or "." in text):
                yield from WORD.findall(text)


def texts_of(source: Source) -> Iterator[Text]:
    """The docstrings and comments of a module.

    A docstring of a function may use the names of the function and of its class, one of a class those of the class;
    both the fields and the one-word strings of the module. Every other text may use all names of the module.
    """
    scopes = {id(scope.body[0]): (*around, scope) for scope, around in source.scoped_nodes if isinstance(scope, Scope)}
    for statement in source.strings:
        if isinstance(statement.value, ast.Constant):
            where = f"{source.path}:{statement.lineno}"
            yield Text(where, str(statement.value.value), scopes.get(id(statement), ()))
    yield from (Text(f"{source.path}:{at}", comment) for at, comment in comments_in(source))


def comments_in(source: Source) -> Iterator[tuple[int, str]]:
    """Comments with a name in backticks, and their lines."""
    if not any("#" in line and "`" in line for line in source.text.splitlines()):
        return
    lines = iter(source.text.splitlines(keepends=True))
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        if token.type == tokenize.COMMENT and "`" in token.string:
            yield token.start[0], token.string


def needless_aliases(source: Source) -> Iterator[str]:
    """Imports under another name in a module where the name itself is free."""
    imports = [node for node in source.nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    renamed = [(node, each) for node in imports for each in node.names if each.asname and each.asname != each.name]
    if not renamed:
        return
    taken = set(dir(builtins)) | {each.name for node in imports for each in node.names if not each.asname}
    for node in source.nodes:
        if isinstance(node, ast.Name):
            taken.add(node.id)
        elif isinstance(node, ast.arg):
            taken.add(node.arg)
        elif isinstance(node, Scope):
            taken.add(node.name)
    for node, each in renamed:
        # A class that two libraries name alike bears the library's name here, even where only one is imported.
        if each.name not in taken and CONVENTIONAL.get(each.name) != each.asname and not each.name[0].isupper():
            yield f"{source.path}:{node.lineno} {each.name} as {each.asname}"


def orphans(source: Source) -> Iterator[str]:
    """Strings that are neither the first statement of what they describe nor directly below an assignment."""
    for parent in source.nodes:
        if isinstance(parent, ast.stmt | ast.Module | ast.ExceptHandler):
            for body in (getattr(parent, name, ()) for name in ("body", "orelse", "finalbody")):
                for before, statement in zip((None, *body), body, strict=False):
                    if is_string(statement) and not documents(parent, before, statement):
                        yield f"{source.path}:{statement.lineno}"


def documents(parent: ast.AST, before: ast.stmt | None, statement: ast.stmt) -> bool:
    """Whether the bare string `statement` is a docstring of `parent` or of the assignment `before` it."""
    if before is None:
        return isinstance(parent, ast.Module | Scope)
    return isinstance(before, ast.Assign | ast.AnnAssign) and statement.lineno == (before.end_lineno or 0) + 1


def bound_name(node: ast.AST) -> str:
    """The name that a node binds: a parameter, or a name that is assigned."""
    if isinstance(node, ast.arg):
        return node.arg
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ""


def lines_of(sources: Iterable[Source]) -> int:
    return sum(source.text.count("\n") for source in sources)


LIMITS = {
    "lines of the engine": 63_931,
    "modules of the engine": 324,
    "lines beside it": 34_953,
    "modules beside it": 230,
    "functions, p50 of lines": 7,
    "functions, p90 of lines": 18,
    "pairs of records with six or more common fields": 20,
    "names in docstrings that do not exist": 0,
    "imports under a needless other name": 0,
    "docstrings of nothing": 0,
    "locals named told, came, heard, kept, parts, line": 488,
}
"""The most that each count may be. What a change makes smaller, it writes smaller here too; one that has to be larger
raises its limit in the same commit, whose body says what the lines are for."""


def counts_of(house: House) -> dict[str, int | list[str]]:
    """Every count by its name: a number, or the places that are counted."""
    lengths = house.function_lengths()
    return {
        "lines of the engine": lines_of(house.engine),
        "modules of the engine": len(house.engine),
        "lines beside it": lines_of(house.doors),
        "modules beside it": len(house.doors),
        "functions": len(lengths),
        "functions, p50 of lines": round(statistics.median(lengths)),
        "functions, p90 of lines": lengths[len(lengths) * 9 // 10],
        "comment lines": house.comment_lines(),
        "test functions": house.test_functions(),
        "pairs of records with six or more common fields": house.twins(),
        "names in docstrings that do not exist": house.unknown_names(),
        "imports under a needless other name": house.needless_aliases(),
        "docstrings of nothing": house.orphan_docstrings(),
        "locals named told, came, heard, kept, parts, line": house.vague_locals(),
    }


def number(count: int | list[str]) -> int:
    return count if isinstance(count, int) else len(count)


def over_limit(counts: Mapping[str, int | list[str]]) -> list[str]:
    """The counts above their limits; where the limit is 0, with the places."""
    return [
        f"{name}: {number(count):,}, at most {LIMITS[name]:,}" + "".join(f"\n    {place}" for place in places)
        for name, count in counts.items()
        if number(count) > LIMITS.get(name, sys.maxsize)
        for places in [count if isinstance(count, list) and not LIMITS[name] else []]
    ]


def main(arguments: Sequence[str]) -> int:
    counts = counts_of(House())
    for name, count in counts.items():
        limit = f"  (at most {LIMITS[name]:,})" if name in LIMITS else ""
        sys.stdout.write(f"{number(count):>7,} {name}{limit}\n")
        if isinstance(count, list) and "--places" in arguments:
            sys.stdout.write("".join(f"            {place}\n" for place in count))
    broken = over_limit(counts)
    sys.stderr.write("".join(f"{line}\n" for line in broken))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
