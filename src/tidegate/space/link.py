"""The space's own place at its MQTT broker: when it is lost and back, and that it is not held for what others ask."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Final

from tidegate.client import Client, ClientError, operators_way

log = logging.getLogger("tidegate.space.mqtt")

LOOK: Final = 0.2  # seconds between two looks: it is for people, and costs nothing
RELEASE: Final = "$tide/control/release"
EXCUSED: Final = 3600.0  # seconds for which it is asked, twice in that time


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


async def stay_excused(client: Client, is_back: asyncio.Event) -> None:
    """For ever: order a Tidegate broker not to hold us. What we send is what others ask for, and its back-off has
    judged those. It obeys the user who runs it, or who has the right to give orders; to others this is nothing.
    """
    order = json.dumps({"client": client.client_id, "seconds": EXCUSED})
    own = str(client.endpoint)
    while True:
        is_back.clear()
        try:
            way = await asyncio.to_thread(operators_way, own)
            if way == own:
                await client.publish(RELEASE, order, qos=1)
            else:
                async with Client(way) as operator:
                    await operator.publish(RELEASE, order, qos=1)
        except ClientError as error:
            log.debug("the MQTT broker may hold this space: %s", error)
        try:
            async with asyncio.timeout(EXCUSED / 2.0):
                await is_back.wait()
        except TimeoutError:
            pass
