"""Entry point: finds the command, runs it, and turns what went wrong into an exit code and two lines.

Only the module of the command that was named is imported; a list of commands imports them all, which is why
each keeps its heavy imports inside the function. A command module holds `command`, a function that typer
reads, or `app`, a Typer with commands of its own.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from tidegate import __version__
from tidegate.cli.status import ExitStatus, report
from tidegate.errors import TidegateError

# Command name: its module in this folder. The order is that of `tidegate --help`.
COMMANDS = {
    "serve": "serve",
    "console": "console",
    "demo": "demo",
    "cluster": "cluster",
    "pub": "pub",
    "sub": "sub",
    "top": "top",
    "clients": "clients",
    "rpc": "rpc",
    "bench": "bench",
    "space": "space",
    "lake": "lake",
    "pipeline": "pipeline",
    "policy": "policy",
    "lab": "lab",
    "passwd": "passwd",
    "store": "store",
    "check-config": "check_config",
    "import-mosquitto": "import_mosquitto",
    "doctor": "doctor",
    "completion": "completion",
}


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """The command line for these arguments; every command unless the first argument names one."""
    app = typer.Typer(
        name="tidegate",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        # Boxes are for terminals; plain text survives pipes, narrow windows and NO_COLOR.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    named = arguments[0] if arguments else ""
    for name in [named] if named in COMMANDS else COMMANDS:
        module = importlib.import_module(f"tidegate.cli.{COMMANDS[name]}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(module.command)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits the process with its status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        build_app(arguments)(args=arguments, prog_name="tidegate")
    except TidegateError as error:
        sys.exit(report(error))
    except KeyboardInterrupt:
        sys.exit(ExitStatus.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output left, as `head` does. Python would complain again while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitStatus.FAILURE)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit(ExitStatus.OK)


def _root(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """An MQTT 3.1.1 and 5.0 broker."""
