"""A rollout: an earlier version and this one serve the same conversations from one PostgreSQL database, until the last
process of the earlier version is replaced. The earlier version comes from the history of the repository."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, says
from proxy.store.schema import VERSION_TABLE, VERSIONS
from tests import laws
from tests.crash.killable import ROOT, KillableReplicas
from tests.harness import Answer, Conversation, Stage, bash, does, pop, push, recall
from tests.postgresql_server import PostgresServer
from tests.properties import disk

HISTORY = os.environ.get("CALLSTACK_HISTORY", str(ROOT))
"""The repository of this tree: `.ci/run` tests a copy, which has no history."""
SCHEMA = "proxy/store/schema.py"


def git(*words: str) -> bytes:
    """Skips the test where git cannot say it."""
    try:
        asked = subprocess.run(["git", "-C", HISTORY, *words], capture_output=True, check=False, timeout=60)
    except FileNotFoundError:
        pytest.skip("no git here, so no earlier version")
    if asked.returncode:
        pytest.skip(f"no earlier version in the history here: {asked.stderr.decode(errors='replace')[-200:]}")
    return asked.stdout


def commit_before() -> str:
    return "HEAD~1"


def commit_with_an_older_schema() -> str:
    newest = git("log", "-1", "--format=%H", "-G^VERSIONS = ", "--", SCHEMA).decode().strip()
    return f"{newest}~1" if newest else "HEAD~1"


def describe(folder: Path) -> None:
    """Writes beside the code what an installer would: which commands it has, and where. What is installed here are the
    commands of this version."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    installed = folder / "callstack_proxy-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    groups = project.get("entry-points", {}).items()
    rows = [f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in each.items()) for group, each in groups]
    (installed / "entry_points.txt").write_text("\n".join(rows))


@pytest.fixture(params=[commit_before, commit_with_an_older_schema])
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the earlier version."""
    folder = tmp_path / "earlier"
    version = request.param()
    parts = ("proxy", "callstack_proxy", "proxy.yaml", "pyproject.toml")
    there = git("ls-tree", "--name-only", version, *parts).decode().split()
    archive = git("archive", "--format=tar", version, *there)
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")
    describe(folder)
    where = [sys.executable, "-c", "import proxy; print(proxy.__file__)"]
    found = subprocess.run(where, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout
    assert Path(found.strip()).is_relative_to(folder), "this version would stand for the earlier one"
    return folder


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ScriptedProvider() as provider:
        running = Stage(provider, tmp_path, streamed=True, looks_into_store=False)
        yield running
        running.stop()


@dataclass
class Client:
    """An agent that does tasks, each in a frame of its own, and looks up what the first of them put out."""

    chat: Conversation
    name: str
    done: int = 0
    first_frame: str = ""
    said: list[str] = field(default_factory=list)

    def works(self) -> None:
        """A task: a frame is begun, works and is finished; then its output is off the line, and the first one's is
        asked back. Every request of it goes to another proxy."""
        self.done += 1
        title, output = f"Task {self.done} of {self.name}", f"output {self.done} of {self.name}"
        provider = self.chat.proxy.stage.provider
        provider.will(does(push(title)), does(bash(f"make {title}")), does(pop(f"{title} is done.")), says("Made."))
        self.managed(self.chat.says(f"Please do {title}."))
        self.managed(self.chat.returns(f"{output}: " + "word by word " * 60))
        self.first_frame = self.first_frame or str(self.chat.proxy.frames(self.conversation)[title]["sessionID"])
        provider.will(does(recall(self.first_frame)), says("Read."))
        self.managed(self.chat.says(f"What was the first output, after {title}?"))

        line = provider.received[-1].messages
        results = [str(message["content"]) for message in line if message["role"] == "tool"]
        assert f"output 1 of {self.name}: word by word" in results[-1]
        assert f"{title} is done." in str(line)
        assert not any(f"output {n} of {self.name}: word" in str(line[:-1]) for n in range(2, self.done + 1))
        self.said += [f"Please do {title}.", f"{output}: word", f"{title} is done."]

    @property
    def conversation(self) -> str:
        assert self.chat.last is not None
        return self.chat.last.headers["x-stack-conversation"]

    def managed(self, answer: Answer) -> None:
        assert (answer.status, answer.ended, answer.stack_status) == (200, True, "full"), answer.raw[-500:]


def test_an_earlier_version_and_this_one_serve_a_conversation_in_turns(
    stage: Stage, postgres: PostgresServer, earlier: Path
) -> None:
    """From two proxies of the earlier version to two of this one, each replaced while the other is at work. No request
    fails or passes untouched, nothing said is lost, and no line changes in its past."""
    store = postgres.new_database()
    proxy = KillableReplicas(stage, store, wake_at_tokens=0, infer_requests="false")
    proxy.runs_from(earlier)
    proxy.start()
    clients = [Client(Conversation(proxy, streamed=True), name) for name in ("ana", "bob")]
    all_work(clients, 2)
    assert schema_of(store, postgres) == earlier_schema(earlier)
    proxy.runs_from(ROOT)
    for _ in range(2):
        proxy.replace()
        all_work(clients, 1)
        proxy.until_both_are_back()
        assert schema_of(store, postgres) == VERSIONS[-1]
        all_work([*clients, Client(Conversation(proxy, streamed=True), f"eve {len(stage.notes)}")], 3)
    proxy.stop()

    kept = disk.texts(proxy.data, store)
    assert len(kept) == 4, "a conversation was doubled"
    for client in clients:
        stored = "".join(kept[client.conversation])
        assert [each for each in client.said if each not in stored] == []
    evidence = replace(stage.evidence(), kept=kept)
    assert not (found := laws.breaches(evidence)), "\n".join(found)


def schema_of(store: str, postgres: PostgresServer) -> str:
    return str(postgres.run(f"SELECT version_num FROM {VERSION_TABLE}", store)[0][0])


def earlier_schema(earlier: Path) -> str:
    last = [sys.executable, "-c", "from proxy.store.schema import VERSIONS; print(VERSIONS[-1])"]
    return subprocess.run(last, cwd=earlier, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def all_work(clients: list[Client], times: int) -> None:
    for _ in range(times):
        for client in clients:
            client.works()
