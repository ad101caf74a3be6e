"""Options that several commands share, and how they become settings."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tidegate.settings import Settings

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="TIDEGATE_CONFIG", metavar="FILE", help="Settings, a TOML file."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change one setting; may be repeated. limits.max_connections=500"
    ),
]


def read_settings(
    config: Path | None, overrides: list[str] | None, options: Mapping[str, object] | None = None
) -> "Settings":
    """The settings in effect for a command: file, environment, `--set`, options."""
    from tidegate.settings import load_settings

    return load_settings(config, overrides or (), os.environ, options)


def names_a_port(config: Path | None, overrides: list[str] | None) -> bool:
    """Whether anybody chose the port of a listener; if not, a node may take another one when it is in use."""
    from tidegate.settings import given_keys

    keys = given_keys(config, overrides or (), os.environ)
    return any(key.startswith("listeners.") and key.endswith(".port") for key in keys)
