"""The brokers that are measured: as the lab starts them, but for what would cost CPU, and with a disk if wanted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import tidegate
from tidegate.lab.brokers import (
    MOSQUITTO,
    MOSQUITTO_SETTINGS,
    BrokerProcess,
    free_port,
    mosquitto_version,
)
from tidegate.lab.errors import LabError

__all__ = ["MOSQUITTO_SETTINGS", "Broker", "free_port", "version"]


@dataclass(kw_only=True)
class Broker(BrokerProcess):
    """`durable`: Tidegate with `--data`, which acknowledges after the commit; Mosquitto with `persistence true`.

    `record`: Tidegate alone, the level at which it records to a lake.
    """

    durable: bool = False
    record: str = ""

    def _mosquitto_settings(self, folder: Path) -> tuple[str, ...]:
        if not self.durable:
            return MOSQUITTO_SETTINGS
        kept = tuple(line for line in MOSQUITTO_SETTINGS if line != "persistence false")
        # Its snapshot is taken every 30 minutes by default; a crash loses what came since.
        return (*kept, "persistence true", f"persistence_location {folder}/")

    def _command(self, folder: Path) -> list[str]:
        command = super()._command(folder)
        if self.durable and self.name != MOSQUITTO:
            command += ["--data", str(folder / "data")]
        if self.record:
            command += ["--set", f"lake.path={folder / 'lake'}", "--set", f"lake.level={self.record}"]
        return command

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except LabError as error:
            raise SystemExit(f"error: {error}\nhint: {error.hint}") from None


def version(name: str) -> str:
    """Return the version of a broker."""
    return mosquitto_version() if name == MOSQUITTO else tidegate.__version__
