"""How many examples a property gets. By default the same few on every machine; under the profile `long`
(`pytest tests/properties --hypothesis-profile=long`) new ones each time, and many."""

from functools import lru_cache

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def searched(examples: int, steps: int = 1) -> settings:
    """The settings of a property that gets `examples` examples of `steps` steps in an ordinary run."""
    if settings.get_current_profile_name() == "long":
        return settings.get_profile("long")
    # Hypothesis also draws the constants of whatever modules of ours are loaded by then, so that a walk which is to be
    # the same everywhere hung on the folder the tests ran in, and on which had run before. There is no setting for it.
    providers.is_local_module_file = _none_is  # type: ignore[attr-defined]
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=SLOW,
    )


@lru_cache
def _none_is(path: str) -> bool:
    del path
    return False
