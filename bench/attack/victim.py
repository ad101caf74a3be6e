"""The node that is attacked: a process of its own, with listeners of all kinds."""

from __future__ import annotations

from pathlib import Path

from bench.attack.wires import Way
from bench.soak.broker import BrokerProcess
from tidegate.testing.certificates import make_authority
from tidegate.testing.ports import free_port
from tidegate.testing.raw import RawClient

PATIENCE = 10.0  # seconds the operator waits for an answer
KINDS = ("tcp", "tls", "ws", "wss", "unix", "proxied")
WEBSOCKETS = ("ws", "wss")


class Victim(BrokerProcess):
    """A node with a memory bound, and a socket for its operator in `folder`; `ways` are those of `KINDS` into it."""

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
        self.ways = {
            "tcp": Way(name="tcp", port=self.port),
            "tls": Way(name="tls", port=free_port(), is_tls=True),
            "ws": Way(name="ws", port=free_port(), is_websocket=True),
            "wss": Way(name="wss", port=free_port(), is_tls=True, is_websocket=True),
            "unix": Way(name="unix", path=folder / "clients.sock"),
            "proxied": Way(name="proxied", port=free_port(), is_proxied=True),
        }
        config = folder / "tidegate.toml"
        config.write_text("".join(self._listeners(folder)))
        self._command += ["--config", str(config)]

    def _listeners(self, folder: Path) -> list[str]:
        issued = make_authority(folder).issue("localhost")
        keys = f'certfile = "{issued.certificate}"\nkeyfile = "{issued.key}"\n'
        found = []
        for name, way in self.ways.items():
            place = f'path = "{way.path}"\n' if way.path is not None else f"port = {way.port}\n"
            kind = {"proxied": "tcp"}.get(name, name)
            found.append(f'[[listeners]]\ntype = "{kind}"\n{place}')
            found.append(keys if way.is_tls else "")
            found.append("proxy_protocol = true\nallow_anonymous = true\n" if way.is_proxied else "")
        return found

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
