"""`tidegate import-mosquitto`: settings from a mosquitto.conf."""

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.status import ExitStatus


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Mosquitto's configuration file.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to write the settings. Default: standard output."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
) -> None:
    """Turn a mosquitto.conf into settings for Tidegate.

    Listeners, TLS, accounts, rights, persistence and limits are converted; password_file and acl_file are used as they
    are. Each line that cannot be converted, or means something a little different, is named on standard error with a
    hint. Where a line that guarded a listener has no counterpart, that listener stays on the loopback address.

    Exit status 1 means that settings were written, but something was not converted.
    """
    if output is not None and output.exists() and not force:
        raise typer.BadParameter(f"{output} exists; --force writes over it", param_hint="--output")
    from tidegate.migrate import MigrationError, convert_mosquitto

    result = convert_mosquitto(file)
    for remark in result.remarks:
        typer.echo(str(remark), err=True)
    if output is None:
        typer.echo(result.toml, nl=False)
    else:
        try:
            output.write_text(result.toml, encoding="utf-8")
        except OSError as error:
            problem = (error.strerror or "cannot be written").lower()
            raise MigrationError(problem, file=str(output), hint="choose another --output") from error
        typer.echo(f"{output}: written; see `tidegate check-config {output}` and `tidegate doctor`", err=True)
    if not result.is_complete:
        raise typer.Exit(ExitStatus.FAILURE)
