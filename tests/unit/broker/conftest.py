"""Settings for the property tests of this room."""

from hypothesis import settings

# Deadlines per example measure the machine; the timeout of the whole test is what stops a hang.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
