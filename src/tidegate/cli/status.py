"""How a command ends: its exit code, and the two lines that explain a failure.

Scripts and service managers rely on these numbers: they never change their meaning.
"""

import sys
from enum import IntEnum

from tidegate.errors import TidegateError


class ExitStatus(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILURE = 1  # the command ran, and its answer is no: doctor found a fault, a message was not delivered
    USAGE = 2  # the command line makes no sense; nothing was done
    STARTUP = 3  # a node could not start: address in use, certificate unreadable
    CONFIG = 78  # a setting was refused; the number is EX_CONFIG of sysexits.h
    INTERRUPTED = 130  # ended by Ctrl-C, as shells count it


def report(error: TidegateError) -> ExitStatus:
    """Writes an error as one line, and a hint if it carries one; returns the status to exit with."""
    print("error:", " ".join(str(error).split()), file=sys.stderr)
    if hint := getattr(error, "hint", ""):
        print("hint:", hint, file=sys.stderr)
    # By module: importing the settings here would slow down every command that needs none.
    is_setting = type(error).__module__.startswith("tidegate.settings")
    return ExitStatus.CONFIG if is_setting else ExitStatus.FAILURE
