"""Limits per address, seen by clients that are not on loopback: a program for a network namespace of its own.

Loopback has no limits of its own, so the clients need other addresses. In a namespace they can be given to the
loopback device, where nobody else sees them; who connects to such an address also comes from it. Prints JSON.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.soak.broker import BrokerProcess
from tidegate.testing.raw import RawClient

ONE, OTHER = "10.255.0.1", "10.255.0.2"
OPEN = "listeners.0.allow_anonymous=true"


def rate() -> dict[str, Any]:
    """More clients at once from one address than it may have in a second, then one from another."""
    with (
        BrokerProcess("limits.address_connection_rate=4", OPEN, host="0.0.0.0") as broker,
        ExitStack() as stack,
    ):
        clients = [stack.enter_context(RawClient(broker.port, host=ONE)) for _ in range(20)]
        answers: list[tuple[int, float]] = []
        began = time.monotonic()

        def connect(client: RawClient) -> None:
            code = client.connect().reason_code
            answers.append((code, time.monotonic() - began))

        threads = [threading.Thread(target=connect, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        other = stack.enter_context(RawClient(broker.port, host=OTHER)).connect().reason_code
        for thread in threads:
            thread.join()
        return {"answers": answers, "other": other}


def count() -> dict[str, Any]:
    """One client more than an address may have, one from elsewhere, and one after another has left."""
    with (
        BrokerProcess("limits.max_address_connections=3", OPEN, host="0.0.0.0") as broker,
        ExitStack() as stack,
    ):

        def dial(address: str) -> RawClient:
            return stack.enter_context(RawClient(broker.port, host=address))

        clients = [dial(ONE) for _ in range(4)]
        codes = [client.connect().reason_code for client in clients]
        other = dial(OTHER).connect().reason_code
        loopback = [dial("127.0.0.1").connect().reason_code for _ in range(5)]
        clients[0].disconnect()
        return {
            "codes": codes,
            "other": other,
            "loopback": loopback,
            "after one left": dial(ONE).connect().reason_code,
        }


def waiting() -> dict[str, Any]:
    """Clients of one address that wait for their turn count, too: no more get in than it may have."""
    limits = ("limits.max_address_connections=3", "limits.connection_rate=2", "limits.connection_wait=10")
    with BrokerProcess(*limits, OPEN, host="0.0.0.0") as broker, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.port, host=ONE, timeout=15)) for _ in range(8)]
        codes: list[int] = []
        threads = [
            threading.Thread(target=lambda client=client: codes.append(client.connect().reason_code))
            for client in clients
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"codes": codes}


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (ONE, OTHER):
        subprocess.run(["ip", "addr", "add", f"{address}/32", "dev", "lo"], check=True)
    experiments: dict[str, Callable[[], dict[str, Any]]] = {"rate": rate, "count": count, "waiting": waiting}
    print(json.dumps(experiments[sys.argv[1]]()))


if __name__ == "__main__":
    main()
