"""Tells when a client that reconnects on its own has lost its MQTT broker, and when it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidegate.client import Client

LOOK: Final = 0.2  # seconds between two looks: it is for people, and costs nothing


async def follow_link(client: Client, tell: Callable[[bool], None]) -> None:
    """For ever: `tell(False)` once it is lost, `tell(True)` once it is back, always in turn."""
    was_there, reconnects = True, _reconnects(client)
    while True:
        await asyncio.sleep(LOOK)
        is_there, now = client.is_connected, _reconnects(client)
        if was_there and (not is_there or now != reconnects):
            tell(False)
            was_there = False
        if is_there and not was_there:
            tell(True)
        was_there, reconnects = is_there, now


def _reconnects(client: Client) -> int:
    return int(client.statistics()["reconnects"])
