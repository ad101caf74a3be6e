"""A device that loses nothing: messages go to a file first, and to the server when it is there.

The first run may find no server: what it publishes is in the file all the same. Run it again when there is one
(`tidegate serve`), and it delivers what both runs published:

    python examples/client_outbox.py --url mqtt://127.0.0.1:1883 --file pump-7.outbox --wait 2
"""

import argparse
import asyncio

from tidegate.client import Client, OperationTimeout
from tidegate.errors import TidegateError


async def main(url: str, file: str, wait: float) -> None:
    async with Client(
        url,
        client_id="pump-7",
        clean_start=False,
        session_expiry_interval=86_400,
        reconnect=True,
        reconnect_min_delay=0.1,
        outbox=file,
    ) as client:
        for level in ("3.1", "3.2", "3.3"):
            await client.publish("pumps/7/level", level, qos=2)  # returns when it is on disk
        try:
            await client.flush(timeout=wait)
        except OperationTimeout:
            pass  # no server, or a slow one: the next run goes on
        print("left in the outbox:", client.statistics()["outbox_messages"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default="mqtt://127.0.0.1:1883")
    parser.add_argument("--file", default="pump-7.outbox")
    parser.add_argument(
        "--wait", type=float, default=5.0, metavar="SECONDS", help="for the server, at the end"
    )
    arguments = parser.parse_args()
    try:
        asyncio.run(main(arguments.url, arguments.file, arguments.wait))
    except TidegateError as error:
        raise SystemExit(f"error: {error}\nhint: {error.hint}") from None
