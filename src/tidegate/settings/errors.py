"""The one error of this room: a setting that cannot be used."""

from tidegate.errors import TidegateError


class SettingsError(TidegateError):
    """A key or value that was refused, where it came from, and what would be right.

    `key` is dotted, as `--set` takes it, and empty when a whole file is at fault; `value` is what was given.
    """

    def __init__(
        self, problem: str, *, key: str = "", value: object = None, hint: str, origin: str = ""
    ) -> None:
        self.problem = problem
        self.key = key
        self.value = value
        self.hint = hint
        self.origin = origin
        subject = f"{key} = {value!r}: " if key else ""
        super().__init__(f"{subject}{problem}{f' ({origin})' if origin else ''}")
