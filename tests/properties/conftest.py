"""How long properties are searched for: a short fixed walk by default, `--hypothesis-profile=long` for a night."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "long",
    max_examples=1_500,
    deadline=None,
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
    print_blob=True,  # what a night has found can be played again
)
