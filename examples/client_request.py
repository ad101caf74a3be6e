"""A question and its answer within a deadline (MQTT 5), and what there is if none comes.

The request carries the deadline as its expiry, so nobody works for one who has left. Start a broker (`tidegate serve`),
then:

    python examples/client_request.py --url mqtt://127.0.0.1:1883
"""

import argparse
import asyncio

from tidegate.client import Client, Message, NoResponder, OperationTimeout
from tidegate.errors import TidegateError


async def main(url: str) -> None:
    async with Client(url) as server, Client(url) as client, asyncio.timeout(30):

        async def answer(question: Message) -> None:
            if question.text == "how deep?":
                await server.respond(question, "3.2 m")
            # Anything else it does not understand, and says nothing.

        await server.subscribe("pier/questions", qos=1, callback=answer)

        print("answer:", (await client.request("pier/questions", "how deep?", timeout=10)).text)
        try:
            await client.request("pier/questions", "how wide?", timeout=0.5)
        except OperationTimeout as error:
            print("too late:", type(error).__name__)
        try:
            await client.request("quay/questions", "anybody there?", timeout=10)
        except NoResponder as error:
            print("nobody:", type(error).__name__)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default="mqtt://127.0.0.1:1883")
    try:
        asyncio.run(main(parser.parse_args().url))
    except TidegateError as error:
        raise SystemExit(f"error: {error}\nhint: {error.hint}") from None
