"""What holds for every test."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is: speed is measured by `bench/`, never by a test.
settings.register_profile("callstack", deadline=None)
settings.load_profile("callstack")


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """What runs a replay in this process keeps its log quiet for good; the next test may look into it."""
    log = logging.getLogger("proxy")
    level = log.level
    yield
    log.setLevel(level)
