"""Settings for the property tests of this room."""

from hypothesis import settings

# A busy machine may pause any example for longer than Hypothesis's default deadline of 200 ms; the timeout of
# the whole test is what stops a hang.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
