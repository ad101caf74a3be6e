"""The node that is attacked, a process of its own, and the client that notices what the others do to it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.soak.broker import BrokerProcess
from tidegate.mqtt import Pingresp
from tidegate.testing.raw import ConnectionEndedError, RawClient

PING = b"\xc0\x00"
PAUSE = 0.01  # seconds between a PINGRESP and the next PINGREQ
PATIENCE = 10.0  # seconds a PINGRESP may take before the witness gives up
SILENT = 60.0  # seconds that stand for a ping that was never answered


class Victim(BrokerProcess):
    """A node with a memory bound, and a socket for its operator in `folder`."""

    def __init__(self, folder: Path, bound_bytes: int, *settings: str, data: Path | None = None) -> None:
        self.bound_bytes = bound_bytes
        self.operator_path = folder / "operator.sock"
        super().__init__(
            f"limits.max_memory={bound_bytes}",
            "limits.connection_rate=0",
            f"operator_socket={self.operator_path}",
            *settings,
            data=data,
        )

    @property
    def peak_share(self) -> float:
        """The most it ever held, as part of its bound."""
        return self.peak_bytes() / self.bound_bytes

    def operator(self) -> RawClient:
        """Who runs the node, connected."""
        client = RawClient(self.operator_path, timeout=PATIENCE)
        connack = client.connect("boss")
        assert not connack.reason_code, connack
        return client


class Witness:
    """A client that pings as fast as it is answered. `pings` are (when, seconds), in order."""

    def __init__(self, port: int, client_id: str = "witness") -> None:
        self._client = RawClient(port, timeout=PATIENCE)
        self._client.connect(client_id, keep_alive=0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self.pings: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()

    @property
    def worst(self) -> float:
        return max(seconds for _, seconds in self.pings)

    def _run(self) -> None:
        while not self._stop.wait(PAUSE):
            began = time.monotonic()
            try:
                self._client.send_bytes(PING)
                self._client.expect(Pingresp)
            except (TimeoutError, ConnectionEndedError, OSError):
                self.pings.append((began, SILENT))
                return
            self.pings.append((began, time.monotonic() - began))
