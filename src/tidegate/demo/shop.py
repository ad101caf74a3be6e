"""A shop that sets prices on labels, for the demo: `python -m tidegate.demo.shop URL`. Needs the RPC room."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
from random import Random
from typing import Final

PAUSE: Final = 0.05
LABELS: Final = 50


async def main(url: str) -> None:
    rpc = importlib.import_module("tidegate.rpc")
    recording = importlib.import_module("tidegate.rpc.recording")
    options = importlib.import_module("tidegate.rpc.options").Options(url=url, default_gateway="gw0")
    random = Random(7)
    async with recording.Announcer(options) as observer, rpc.Backbone(options, observer=observer) as backbone:
        print("ready", flush=True)
        while True:
            price = f"{random.uniform(1, 20):.2f}"
            await backbone.call(f"{random.randrange(LABELS):012x}", "image", {"price": price}, deadline=5.0)
            await asyncio.sleep(PAUSE)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1]))
