"""What holds for every test."""

import logging
from collections.abc import Iterator
from functools import lru_cache

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# How long an example takes says how busy the machine is: speed is measured by `bench/`, never by a test.
settings.register_profile("callstack", deadline=None)
settings.load_profile("callstack")


@lru_cache
def _none_is(path: str) -> bool:
    del path
    return False


# Hypothesis also draws the constants of whatever modules of ours are loaded by then, so that a walk which is to be the
# same everywhere hung on the folder the tests ran in, and on which had run before. There is no setting for it.
providers.is_local_module_file = _none_is  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """What runs a replay in this process keeps its log quiet for good; the next test may look into it."""
    log = logging.getLogger("proxy")
    level = log.level
    yield
    log.setLevel(level)
