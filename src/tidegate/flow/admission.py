"""Who may connect now: a steady rate for the node and for each address, decided from the time alone.

A storm of clients that reconnect in step is spread out: those over the rate are told how long to wait for their
turn; those for whom there is no turn soon enough are refused, and the caller delays that answer by a random time
so that they do not come back in step.
"""

from collections import OrderedDict
from enum import Enum

ROUNDING = 1e-9  # seconds; five steps of 0.2 are one second, whatever the arithmetic says
MAX_ADDRESSES = 65_536  # addresses remembered; the longest unseen is forgotten first


class Admission(Enum):
    """Why a client is not let in."""

    RATE = "rate"
    ADDRESS_RATE = "address rate"
    ADDRESS_COUNT = "address count"


class Admitter:
    """Virtual scheduling (GCRA) per node and per address, and a count of connections per address.

    `rate` and `address_rate` in connections per second, 0 for no limit. A node may be `max_wait` seconds behind.
    """

    __slots__ = (
        "_address_due",
        "_connections",
        "_due",
        "address_connections",
        "address_rate",
        "max_wait",
        "rate",
    )

    def __init__(
        self, *, rate: float, max_wait: float, address_rate: float = 0.0, address_connections: int = 0
    ) -> None:
        self.rate = rate
        self.max_wait = max_wait
        self.address_rate = address_rate
        self.address_connections = address_connections
        self._due = 0.0
        self._address_due: OrderedDict[str, float] = OrderedDict()
        self._connections: dict[str, int] = {}

    def ask(self, now: float, address: str) -> float | Admission:
        """Seconds until the client's turn (0: now), or why it is refused. An address "" has no limits of its own.

        One second's worth of connections is admitted at once before any has to wait.
        """
        if address:
            if not self.has_room(address):
                return Admission.ADDRESS_COUNT
            if self.address_rate and not self._admit_address(now, address):
                return Admission.ADDRESS_RATE
        if not self.rate:
            return 0.0
        step = 1.0 / self.rate
        due = max(self._due, now - max(1.0, step))
        wait = due + step - now
        if wait > self.max_wait + ROUNDING:
            return Admission.RATE
        self._due = due + step
        return min(max(0.0, wait), self.max_wait)

    def _admit_address(self, now: float, address: str) -> bool:
        step = 1.0 / self.address_rate
        due = max(self._address_due.pop(address, 0.0), now - max(1.0, step)) + step
        is_admitted = due <= now + ROUNDING
        self._address_due[address] = due if is_admitted else due - step
        if len(self._address_due) > MAX_ADDRESSES:
            self._address_due.popitem(last=False)
        return is_admitted

    def has_room(self, address: str) -> bool:
        """Whether the address may have one more connection."""
        limit = self.address_connections if address else 0
        return not limit or self._connections.get(address, 0) < limit

    def connected(self, address: str) -> None:
        if address:
            self._connections[address] = self._connections.get(address, 0) + 1

    def disconnected(self, address: str) -> None:
        if address:
            count = self._connections.get(address, 0) - 1
            if count > 0:
                self._connections[address] = count
            else:
                self._connections.pop(address, None)
