"""How many examples a property gets. By default the same few on every machine; under the profile `long`
(`pytest tests/properties --hypothesis-profile=long`) new ones each time, and many."""

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def searched(examples: int, steps: int = 1) -> settings:
    """The settings of a property that gets `examples` examples of `steps` steps in an ordinary run."""
    if settings.get_current_profile_name() == "long":
        return settings.get_profile("long")
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=SLOW,
    )
