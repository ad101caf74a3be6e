"""A first connection that is tried again: the client itself only does so for later ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from tidegate.client import Client, ClientOptions
from tidegate.client.reconnect import DecorrelatedJitter, is_final
from tidegate.errors import TidegateError
from tidegate.net.addresses import Endpoint


async def connect(
    endpoint: Endpoint,
    options: ClientOptions,
    *,
    seconds: float | None = None,
    on_fault: Callable[[TidegateError], None] = lambda _: None,
) -> Client:
    """A connected client. Raises what cannot change (wrong password), and anything once `seconds` have passed."""
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    jitter = DecorrelatedJitter(0.05, 2.0, Random())
    while True:
        client = Client(endpoint, options)
        try:
            await client.connect()
            return client
        except TidegateError as error:
            delay = jitter.next_delay()
            if is_final(error) or (until is not None and loop.time() + delay > until):
                raise
            on_fault(error)
        await asyncio.sleep(delay)
