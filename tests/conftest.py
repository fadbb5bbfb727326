"""What holds for every test, and which tests a run takes.

pytest                 the quick ones: every eighth scenario, in one of the ways a client may ask; of other tests that
                       speak HTTP, start programs or open databases every second one; samples of grids
pytest --take rest     what that leaves out: the other scenarios, and real clients, crashes, recordings
pytest --take rest --turn COMMIT
                       the same, but of `IN_TURN` the half whose turn it is at this commit: CI has 45 minutes
pytest --take all      both, and every scenario in all of its ways
pytest --replicas      of the scenarios a third, on two proxies that share a database; with --take all, all of them
"""

import gc
import os
import sys
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import settings

from callstack_proxy.management.loggers import LOGGERS
from tests.postgresql_server import PostgresServer, program

# How long an example takes says how busy the machine is: speed is measured by `bench/`, never by a test.
settings.register_profile("callstack", deadline=None)
settings.load_profile("callstack")

# A process that loads readline sets it for its children, workers of pytest-xdist among them.
os.environ.pop("COLUMNS", None)
# Without byte code, each process that a test starts would compile the product anew: 2.6 CPU seconds instead of 1.0.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """What runs a replay in this process keeps its log quiet for good; the next test may look into it."""
    levels = [log.level for log in LOGGERS]
    yield
    for log, level in zip(LOGGERS, levels, strict=True):
        log.setLevel(level)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of this process."""
    if program("postgres") is None:
        pytest.skip("no PostgreSQL here: neither the wheel of the test requirements nor the system has one")
    server = PostgresServer()
    yield server
    server.close()


LONG = (
    "cli/demo/",
    "cli/snapshots/",
    "cli/test_autonomy.py",
    "cli/test_branches.py",
    "cli/test_configuring.py",
    "cli/test_hand.py",
    "cli/test_request_lines.py",
    "cli/test_savings.py",
    "cli/test_serving.py",
    "cli/test_speaking.py",
    "cli/wrap/",
    "clients/",
    "contracts/",
    "core/policy/test_frame_inference.py",
    "crash/",
    "dialects/test_every_answer.py",
    "dialects/test_every_request.py",
    "dialects/test_grown.py",
    "failures/",
    "llm_test_provider/test_strict_profiles.py",
    "management/api/test_bad_input.py",
    "management/api/test_guard.py",
    "management/export/test_real_runs.py",
    "management/export/test_surfaces.py",
    "mcp/",
    "packaging/",
    "properties/",
    "replay/test_probes.py",
    "replay/test_replay_command.py",
    "requirements/test_retention.py",
    "scenarios/test_belonging.py",
    "scenarios/test_bill.py",
    "scenarios/test_flow_crash_resume.py",
    "scenarios/test_model_bills.py",
    "scenarios/test_money.py",
    "security/test_spoken_by_data.py",
    "server/test_admission.py",
    "server/test_serving.py",
    "store/test_file.py",
    "telemetry/test_log_output.py",
    "test_house.py",
    "test_layout.py",
    "upstream/litellm/",
    "wire/test_bad_input.py",
    "wire/test_leaving.py",
    "wire/test_live_traces.py",
    "wire/test_load.py",
    "wire/test_typed_streams.py",
    "yardstick/",
)
"""Places below `tests` whose tests take minutes, start dozens of processes, download packages, or try random input
again and again. A quick run, which leaves them out, has to end within five
minutes on two cores, installation included."""
FIRST = (
    "requirements/test_cases.py",
    "yardstick/",
    "crash/",
    "requirements/",
    "clients/",
    "test_recipes.py",
    "packaging/",
    "replay/test_recorded_sessions.py",
)
"""Places whose tests take a minute each, the longest first: at the end of a run they would leave the other cores
idle."""
APART = ("crash/", "requirements/test_cases.py", "requirements/test_door_cases.py", "yardstick/test_captures.py")
"""Places whose tests share no server: each test may run in another process than the one before it."""
EVERY_SECOND = (
    "cli/",
    "exchange/",
    "llm_test_provider/",
    "management/",
    "replay/",
    "security/",
    "server/",
    "store/",
    "upstream/",
    "wire/",
)
"""Places whose tests wait for sockets, processes and disks: a quick run takes half of each, chosen by their names."""
IN_TURN = (
    "cli/",
    "clients/local_model/",
    "clients/test_bill.py",
    "contracts/",
    "dialects/",
    "exchange/",
    "llm_test_provider/",
    "management/",
    "packaging/",
    "replay/test_told_savings.py",
    "scenarios/",
    "server/",
    "store/",
    "upstream/",
    "wire/",
)
"""Places of many small tests, and some of minutes. Of the 5,100 here that a quick run leaves out, CI takes half at each
commit, drawn anew. Laws, attacks, cases, crashes, wrapped clients and recordings run at every commit."""
SHARE_FOR_REPLICAS = 3
"""Every third scenario runs on two replicas; all of them take seven minutes."""
TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--take", choices=["quick", "rest", "all"], default="quick", help="which tests to run")
    turn = "with --take rest: of the places in turn, the half that this commit's hash chooses"
    parser.addoption("--turn", metavar="COMMIT", default="", help=turn)
    words = "scenarios run against two proxies on one PostgreSQL database, which take turns with every request"
    parser.addoption("--update-snapshots", action="store_true", help="write anew what tests/cli/snapshots compares")
    parser.addoption("--replicas", action="store_true", help=words)


@pytest.hookimpl(optionalhook=True)  # an environment without pytest-xdist does not know it
def pytest_xdist_auto_num_workers() -> int:
    """A run waits on sockets and clocks for half of its time: `-n auto` is two processes more than cores. Three on two
    cores used 3,190 s of CPU in 2,100 s, half a core each."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Gives the tests of a file to one process, because they share a server, but those of `APART` one by one."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class FilesAndSingleTests(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            """The name of the group of tests that `nodeid` belongs to."""
            file = super()._split_scope(nodeid)
            return nodeid if file.removeprefix("tests/").startswith(APART) else file

    return FilesAndSingleTests(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A quick run does not even import what it leaves out, unless the command names it: then it is told of."""
    if config.getoption("--take") != "quick" or not collection_path.is_relative_to(TESTS):
        return None
    place = collection_path.relative_to(TESTS).as_posix() + ("/" if collection_path.is_dir() else "")
    left_out = next((TESTS / long for long in LONG if place.startswith(long)), None)
    named = (config.rootpath / argument.partition("::")[0] for argument in config.args)
    return None if left_out is None or any(path.is_relative_to(left_out) for path in named) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    take = config.getoption("--take")
    if take == "all":
        return
    taken = [item for item in items if _is_long(item) is (take == "rest") and not item.get_closest_marker("whole")]
    if turn := config.getoption("--turn"):
        taken = [item for item in taken if not _place_of(item).startswith(IN_TURN) or _has_turn(item, turn)]
    if config.getoption("--replicas"):
        taken = [item for item in taken if crc32(item.nodeid.encode()) % SHARE_FOR_REPLICAS == 0]
    taken.sort(key=_rank)
    kept = set(taken)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = taken


def pytest_collection_finish() -> None:
    """What was collected stays; a full collection of garbage in a test need not walk through it, in 0.3 s each time."""
    gc.freeze()


def _has_turn(item: pytest.Item, commit: str) -> bool:
    """Whether a test is in the half of this commit, which shares half of its tests with that of another commit."""
    return sha256(f"{commit} {item.nodeid}".encode()).digest()[0] % 2 == 0


def _rank(item: pytest.Item) -> int:
    """The place of a test in the order of `FIRST`."""
    place = _place_of(item)
    return next((rank for rank, first in enumerate(FIRST) if place.startswith(first)), len(FIRST))


def _is_long(item: pytest.Item) -> bool:
    place = _place_of(item)
    return (
        place.startswith(LONG)
        or item.get_closest_marker("long") is not None
        or (place.startswith(EVERY_SECOND) and crc32(item.nodeid.encode()) % 2 == 1)
    )


def _place_of(item: pytest.Item) -> str:
    """The path of its file below `tests`."""
    return _place_below_tests(item.path)


@cache
def _place_below_tests(path: Path) -> str:
    return path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""
