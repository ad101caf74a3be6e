"""`tidegate check-config`: is this file right, and what does it come to?"""

import os
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.options import Overrides, read_settings


def command(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Settings, a TOML file.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print every setting in effect, as TOML.")] = False,
    overrides: Overrides = None,
) -> None:
    """Check settings without starting anything.

    The environment and --set count, as they do for serve. Whether files exist and ports are free is what
    `tidegate doctor` looks at.
    """
    settings = read_settings(file, overrides)
    from tidegate.settings import dump, misspelt_variables

    for name, right in misspelt_variables(os.environ).items():
        typer.echo(f"warning: environment {name} is ignored\nhint: did you mean {right}?", err=True)
    # With --show, standard output is the settings and nothing else, so that it can be saved as a file.
    typer.echo(f"{file or 'built-in settings'}: OK", err=show)
    if show:
        typer.echo(dump(settings), nl=False)
