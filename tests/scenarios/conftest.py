"""Every scenario runs in every dialect, and ends before the judge of `tests.laws`.

In chat completions it runs streamed and not; in the others too where it is about what a client is shown (`BOTH`), else
streamed alone, which is how agents ask. A scenario about the bytes of single dialects says so, with its reason.
A quick run takes every eighth scenario and the long profiles the others, each in one of these ways (two where all six
matter); `--take all`, before a release, has all of them. Which ones, hangs on the name, so that all dialects are asked.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from llm_test_provider import Model, ScriptedProvider
from tests.client_dialects import CHAT, TONGUES, TestDialect
from tests.harness import Conversation, RecordingProvider, Stage, running_stage
from tests.postgresql_server import PostgresServer

QUICK_SHARE = 8
"""A quick run takes one scenario of so many."""
TURNS = (0, 4)
"""Which of a scenario's ways are taken before a release is made: the first, and a second where there are six."""
BOTH = ("test_call_groups", "test_hidden_rounds", "test_frames", "test_identity", "test_last_rung")
SPOKEN_IN, ASKED, ONE_PROCESS = "spoken_in", "asked", "one_process"


@dataclass(frozen=True)
class Manner:
    """How a client asks."""

    tongue: TestDialect
    streamed: bool

    @property
    def form(self) -> str:
        return "streamed" if self.streamed else "plain"

    @property
    def name(self) -> str:
        return self.form if self.tongue is CHAT else f"{self.tongue.short}-{self.form}"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{SPOKEN_IN}(*dialects, reason): a scenario about the bytes of these dialects")
    config.addinivalue_line("markers", f"{ONE_PROCESS}(why): a scenario that is left out with `--replicas`")
    config.addinivalue_line("markers", f"{ASKED}(form): a scenario for one form of answers, `streamed` or `plain`")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "manner" not in metafunc.fixturenames:
        return
    bound = metafunc.definition.get_closest_marker(SPOKEN_IN)
    spoken = [each for each in TONGUES.values() if bound is None or each.short in bound.args]
    both = metafunc.module.__name__.rpartition(".")[2] in BOTH
    manners = [Manner(tongue, streamed) for tongue in spoken for streamed in (True, False)]
    if form := metafunc.definition.get_closest_marker(ASKED):
        wanted = [each for each in manners if each.form in form.args]
    else:
        wanted = [each for each in manners if each.streamed or both or each.tongue is CHAT]
    drawn = crc32(metafunc.definition.nodeid.encode())
    first, is_quick = drawn % len(wanted), drawn // len(manners) % QUICK_SHARE == 0
    turns = {each: (at - first) % len(wanted) for at, each in enumerate(wanted)}
    taken = {"quick": TURNS[:1], "rest": TURNS}.get(metafunc.config.getoption("--take"), range(len(wanted)))
    metafunc.parametrize(
        "manner",
        [
            pytest.param(each, id=each.name, marks=_depth(turn, is_quick=is_quick))
            for each, turn in turns.items()
            if turn in taken  # the others are not even made: collecting them took a sixth of the time to collect all
        ],
    )


def _depth(turn: int, *, is_quick: bool) -> tuple[pytest.MarkDecorator, ...]:
    """How deep a run must be to take a scenario in the way whose turn it is."""
    if turn not in TURNS:
        return (pytest.mark.long, pytest.mark.whole)
    return () if turn == 0 and is_quick else (pytest.mark.long,)


@pytest.fixture
def tongue(manner: Manner) -> TestDialect:
    return manner.tongue


@pytest.fixture
def streamed(manner: Manner) -> bool:
    return manner.streamed


@pytest.fixture
def provider(request: pytest.FixtureRequest, tongue: TestDialect) -> Iterator[ScriptedProvider]:
    """The scripted provider; parametrised indirectly it gets these arguments. Where reasoning is signed, every model
    refuses what no longer fits (L8)."""
    arguments: dict[str, Any] = dict(getattr(request, "param", {}))
    if tongue.signs:
        models = arguments.get("models") or [Model("scripted-model")]
        arguments["models"] = [replace(model, binding="error") for model in models]
    with RecordingProvider(**arguments) as running:
        yield running


@pytest.fixture
def new_database(request: pytest.FixtureRequest) -> Callable[[], str] | None:
    """With `--replicas`: makes an empty PostgreSQL database and returns its URL."""
    if not request.config.getoption("--replicas"):
        return None
    if marker := request.node.get_closest_marker(ONE_PROCESS):
        pytest.skip(f"one process: {marker.args[0]}")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database


@pytest.fixture
def stage(
    provider: ScriptedProvider,
    tmp_path: Path,
    streamed: bool,
    tongue: TestDialect,
    new_database: Callable[[], str] | None,
) -> Iterator[Stage]:
    with running_stage(provider, tmp_path, streamed=streamed, tongue=tongue, new_database=new_database) as running:
        yield running


@pytest.fixture
def chat(stage: Stage) -> Conversation:
    """A client in front of a proxy as it comes, awake from the first request."""
    return stage.chat()
