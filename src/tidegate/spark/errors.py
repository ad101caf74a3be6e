"""What can go wrong between Spark and MQTT. Spark shows the text alone, so the hint is part of it."""

from __future__ import annotations

from tidegate.errors import TidegateError


class SparkMqttError(TidegateError):
    """Base of this room's errors."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\nhint: {hint}" if hint else message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type[SparkMqttError], tuple[str], dict[str, str]]:
        # Errors cross processes, and pickle calls a class with `args` alone.
        return type(self), (str(self),), {"message": self.message, "hint": self.hint}


class OptionError(SparkMqttError):
    """An option is missing, unknown, or has a value that means nothing."""


class SpoolError(SparkMqttError):
    """The spool cannot be used: in use by another, lost, or its process ended with an error."""


class PayloadError(SparkMqttError):
    """A payload is not what the options say, and `mode` is FAILFAST; or no column holds one."""


class SourceError(SparkMqttError):
    """A batch could not be read: the broker is away, or refused."""


class SinkError(SparkMqttError):
    """A message could not be published, so the task must not commit."""
