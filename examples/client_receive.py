"""Three ways to receive: a callback, a block with an iterator of its own, and the client's common queue.

A message has one taker: of the callbacks and blocks that match, the one made last; the queue gets what no other wants.
The filters overlap, and a broker may then send a message once for each that matches, as Mosquitto does: there some
lines are printed twice. Tidegate sends it once. Start a broker (`tidegate serve`), then:

    python examples/client_receive.py --url mqtt://127.0.0.1:1883
"""

import argparse
import asyncio

from tidegate.client import Client, Message
from tidegate.errors import TidegateError


async def main(url: str) -> None:
    rung = asyncio.Event()

    async def ring(message: Message) -> None:  # a plain function will do as well
        print("callback:", message.topic, message.text)
        rung.set()

    async with Client(url) as client, asyncio.timeout(30):
        await client.subscribe("harbour/alarms/#", qos=1, callback=ring)
        await client.subscribe("harbour/#", qos=1)
        async with client.subscribed("harbour/tide/+", qos=1) as tide:
            await client.publish("harbour/tide/north", "2.1 m", qos=1)
            await client.publish("harbour/tide/south", "1.9 m", qos=1)
            async for message in tide:
                print("block:", message.topic, message.text)
                if message.topic.endswith("south"):
                    break
        await client.publish("harbour/tide/north", "2.2 m", qos=1)  # the block is over
        await client.publish("harbour/alarms/fire", "pier 3", qos=1)
        async for message in client.messages:
            print("queue:", message.topic, message.text)
            break
        await rung.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default="mqtt://127.0.0.1:1883")
    try:
        asyncio.run(main(parser.parse_args().url))
    except TidegateError as error:
        raise SystemExit(f"error: {error}\nhint: {error.hint}") from None
