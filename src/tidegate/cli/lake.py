"""`tidegate lake`: what was recorded, and lakes to play with."""

import typer

from tidegate.cli import lake_generate

app = typer.Typer(
    no_args_is_help=True, help="Look after recorded traffic, or make some up.", rich_markup_mode=None
)
app.command("generate")(lake_generate.command)


@app.callback()
def _lake() -> None:
    """Keeps `generate` a command of its own while it is the only one."""
