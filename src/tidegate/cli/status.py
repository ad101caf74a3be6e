"""How a command ends. Scripts and service managers rely on these numbers: they never change their meaning."""

from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILURE = 1  # the command ran, and its answer is no: doctor found a fault, a message was not delivered
    USAGE = 2  # the command line makes no sense; nothing was done
    STARTUP = 3  # a node could not start: address in use, certificate unreadable
    CONFIG = 78  # a setting was refused; the number is EX_CONFIG of sysexits.h
    INTERRUPTED = 130  # ended by Ctrl-C, as shells count it
