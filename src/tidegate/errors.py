"""The root of every error Tidegate raises on purpose; each room derives its own in its own `errors.py`."""


class TidegateError(Exception):
    """Base of all errors that are part of Tidegate's contract."""
