"""The other end of a test: a raw client that shows every packet, so that counts and flags are those of the wire."""

from tidegate.mqtt import Publish
from tidegate.testing.raw import RawClient

MARKER = b"-- end of what is counted --"


def collect(client: RawClient, marker: bytes = MARKER) -> list[Publish]:
    """Acknowledge and give every PUBLISH before the one with the marker, which must come on the same topic and QoS.

    Messages of one topic and QoS stay in order, so whatever would come twice or too much is in the list.
    """
    found: list[Publish] = []
    while True:
        message = client.take(Publish, timeout=20.0)
        client.acknowledge(message)
        if message.payload == marker:
            return found
        found.append(message)
