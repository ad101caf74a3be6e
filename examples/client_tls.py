"""TLS and WebSocket: the same program, another address.

`--url` is mqtts://host:port or wss://host:port/path for TLS, ws://host:port/path for WebSocket alone. `--cafile` names
an authority of your own; with `--cert` and `--key` the client shows who it is. Start a broker with certificates
(docs/security.md), then:

    python examples/client_tls.py --url mqtts://broker.example:8883 --cafile ca.pem --cert pump-7.crt --key pump-7.key
"""

import argparse
import asyncio
import ssl

from tidegate.client import Client
from tidegate.errors import TidegateError
from tidegate.net.tls import MQTT_ALPN, client_context


def context(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    if not arguments.url.startswith(("mqtts:", "wss:")):
        return None
    alpn = ("http/1.1",) if arguments.url.startswith("wss:") else MQTT_ALPN
    return client_context(arguments.cafile, arguments.cert, arguments.key, alpn=alpn)


async def main(arguments: argparse.Namespace) -> None:
    try:
        async with Client(arguments.url, ssl=context(arguments)) as client, asyncio.timeout(30):
            await client.subscribe("sensors/#")
            await client.publish("sensors/1", "21.5")
            print(client.endpoint.scheme, (await anext(client.messages)).text)
    except TidegateError as error:
        raise SystemExit(f"error: {error}\nhint: {error.hint}") from None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", required=True)
    for name in ("cafile", "cert", "key"):
        parser.add_argument(f"--{name}")
    asyncio.run(main(parser.parse_args()))
