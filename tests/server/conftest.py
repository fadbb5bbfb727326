"""The served application, one for all tests that leave it running and one for each that does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.raw import Served, Start, end, start_process


@pytest.fixture(scope="session")
def server() -> Iterator[Served]:
    """One process for all that does not end it; short deadlines, 1 MiB of body."""
    served = start_process(
        "header_deadline_s=1", "body_deadline_s=1", "body_limit_bytes=1048576", "allowed_hosts=proxy.internal"
    )
    yield served
    end(served)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process with settings of the test's own."""
    started: list[Served] = []

    def one(*arguments: str) -> Served:
        started.append(start_process(*arguments))
        return started[-1]

    yield one
    for served in started:
        end(served)
