"""What holds for every test."""

from hypothesis import settings

# How long an example takes says how busy the machine is: speed is measured by `bench/`, never by a test.
settings.register_profile("callstack", deadline=None)
settings.load_profile("callstack")
