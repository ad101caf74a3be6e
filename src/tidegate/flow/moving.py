"""How a node tells a client of ours that it is about to be sent elsewhere, so that it connects there before it leaves.

The client offers it in CONNECT. The node publishes the new address to `MOVING_TOPIC`; the client opens a connection
there, sends nothing over it, and publishes an empty message to the same topic. When DISCONNECT comes (0x9C, with the
same address as Server Reference), its CONNECT goes out at once.
"""

from typing import Final

MOVE_OFFER: Final = ("tidegate-moving", "1")
"""User Property of CONNECT: this client knows `MOVING_TOPIC`."""
MOVING_TOPIC: Final = "$tide/moving"
