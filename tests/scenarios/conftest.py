"""Every scenario runs in every dialect, and ends before the judge of `tests.laws`.

In chat completions it runs streamed and not; in the others too where it is about what a client is shown (`BOTH`), else
streamed alone, which is how agents ask. A scenario about the bytes of single dialects says so, with its reason.
A quick run takes each scenario in one of these ways; which one hangs on its name, so that all dialects are asked.
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

BOTH = ("test_call_groups", "test_hidden_rounds", "test_frames", "test_identity")
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
    config.addinivalue_line(
        "markers", f"{ONE_PROCESS}(reason): a scenario about what one process knows; not for replicas"
    )
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
    quick = crc32(metafunc.definition.nodeid.encode()) % len(wanted)
    metafunc.parametrize(
        "manner",
        [
            pytest.param(each, id=each.name, marks=() if at == quick else pytest.mark.long)
            for at, each in enumerate(wanted)
        ],
    )


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
    if marked := request.node.get_closest_marker(ONE_PROCESS):
        pytest.skip(f"one process: {marked.kwargs['reason']}")
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
