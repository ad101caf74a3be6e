"""The two seams of the backbone: a queue for tasks, requests and replies, and a shared memory for return addresses.

Everything else (callers, workers, routers) is written against these, so a backend is these two classes. The queue is
at-least-once: `put` returns when the message is safe, and a delivery that was not acknowledged comes again, here or at
another consumer. What cannot be reached raises `Unavailable`, and was not done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

Take: TypeAlias = Callable[[bytes], None]


@dataclass(slots=True, eq=False)
class Delivery:
    """One message of a queue; `ack` says that it is dealt with, and never waits."""

    queue: str
    body: bytes
    ack: Callable[[], None]


class Consumer(Protocol):
    """Takes from several queues, the first named first."""

    async def take(self, limit: int) -> list[Delivery]:
        """Wait for at least one message and give those that are here, at most `limit`."""

    async def close(self) -> None:
        """What was not acknowledged goes to others."""


class Letter(NamedTuple):
    """A dead one."""

    id: str
    body: bytes


class TaskQueue(Protocol):
    """Named queues, each message to one consumer. `sends_at_once`: how many sends of a bundler may be under way before
    the next bundle gathers; `pause`: seconds between two of them."""

    sends_at_once: int
    pause: float

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def put(self, queue: str, body: bytes, *, deadline: float | None) -> None:
        """Returns when it is safe; raises `Unavailable`. Nobody gets it after `deadline` of the wall clock; without
        one it stays until somebody does."""

    async def consume(self, queues: Sequence[str], *, prefetch: int) -> Consumer:
        """At most `prefetch` messages are given before they are acknowledged."""

    async def open_inbox(self, caller: str, take: Take) -> str:
        """Replies to this caller go to `take`; gives the address others reply to. Before any request (hazard 9)."""

    async def reply(self, address: str, body: bytes, *, deadline: float) -> bool:
        """Whether somebody is there; a missing inbox harms nobody but the message (hazard 3)."""

    async def announce(self, kind: str, body: bytes) -> None:
        """Tell all who listen, best effort."""

    async def listen(self, kind: str, take: Take) -> None:
        """Hear what is announced from now on."""

    async def bury(self, queue: str, letter: Letter) -> None:
        """Keep among the dead letters of a queue until somebody takes it out."""

    async def dead(self, queue: str) -> list[Letter]:
        """All dead letters of a queue, left where they are."""

    async def exhume(self, queue: str, letter_ids: Collection[str]) -> set[str]:
        """Take some out, looking through all of them once; those that were there."""

    async def backlog(self, queue: str) -> int | None:
        """Messages that wait in it; None if the backend cannot tell."""


class Entry(NamedTuple):
    """A request about to be sent: its device, its correlation ("" if the device cannot echo one), where its reply
    goes, and how long, in seconds, that must be known."""

    device: str
    correlation: str
    reply_to: str
    seconds: float


class Address(NamedTuple):
    """Where a reply goes, and for which call: what the reply itself could not say."""

    reply_to: str
    correlation: str


class ReturnStore(Protocol):
    """Shared by all routers: return addresses, leases and routes."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def send_off(self, entries: Sequence[Entry], silent: Sequence[Entry]) -> list[str | None]:
        """Keep the return addresses and give the gateway of each, `entries` first; one round trip.

        `silent` are requests to devices whose reply names only the device; their `correlation` is kept as well.
        """

    async def take(self, keys: Sequence[tuple[str, str]]) -> list[Address | None]:
        """The return addresses of (device, correlation), each given once (hazard 2); None if there is none."""

    async def lease(self, device: str, holder: str, seconds: float) -> int | None:
        """Sole use of a device for a time, with a token larger than any before; None if somebody else has it."""

    async def release(self, device: str, holder: str) -> None:
        """Give it back; nothing if it is not ours any more."""

    async def set_routes(self, routes: dict[str, str | None]) -> None:
        """Devices have moved to these gateways; None: to nowhere."""

    async def routes(self) -> dict[str, str]:
        """All of them, for people and for a route manager that starts."""
