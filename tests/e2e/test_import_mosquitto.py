"""Mosquitto and Tidegate with one mosquitto.conf: the same clients get in, and may do the same.

Mosquitto runs with the file, everything is tried; it is stopped, Tidegate runs with what `import-mosquitto` made of the
same file, on the same ports, and everything is tried again.
"""

import os
import queue
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tidegate.cli.status import ExitStatus
from tidegate.lab.brokers import free_port, mosquitto_program
from tidegate.settings import load_settings
from tidegate.testing.certificates import Authority, make_authority

DEADLINE = 20.0
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}

RIGHTS = """\
# clients without a user name
topic read open/#
topic deny open/not-this

user admin
topic readwrite #

user ada
topic plant/#
topic deny plant/keys/#
topic write log/ada

user bob
topic read plant/+/level
topic readwrite with blank

user pump
topic readwrite pumps/#

pattern readwrite users/%u/#
pattern write clients/%c/state
pattern read end
"""
TOPICS = (
    "open/a", "open/not-this", "plant/1/level", "plant/keys/1", "log/ada", "with blank", "users/ada/x", "users/bob/x",
    "pumps/7", "clients/ada/state", "clients/bob/state", "elsewhere",
)  # fmt: skip
END = "end"


@dataclass(frozen=True)
class Person:
    """Somebody who tries to connect."""

    name: str
    user: str | None = None
    password: str | None = None
    way: str = "tcp"
    certificate: str = ""


PEOPLE = (
    Person("nobody"),
    Person("nobody-ws", way="ws"),
    Person("ada", "ada", "tide"),
    Person("ada-wrong", "ada", "wrong"),
    Person("ada-none", "ada"),
    Person("bob", "bob", "gate"),
    Person("bob-ws", "bob", "gate", way="ws"),
    Person("stranger", "eve", "tide"),
    Person("pump", way="mutual", certificate="pump"),
    Person("pump-as-ada", "ada", "tide", way="mutual", certificate="pump"),
    Person("no-certificate", "ada", "tide", way="mutual"),
    Person("ada-tls", "ada", "tide", way="tls"),
)


@dataclass
class Harbour:
    """The configuration, and how each listener of it is reached."""

    config: Path
    ports: dict[str, int]
    authority: Authority
    certificates: dict[str, tuple[str, str]] = field(default_factory=dict)


class Peer:
    """A paho client whose messages end in a queue."""

    def __init__(self, harbour: Harbour, person: Person, version: int) -> None:
        self.got: queue.Queue[tuple[str, bytes]] = queue.Queue(10_000)
        self._connected: queue.Queue[bool] = queue.Queue()
        self._granted: queue.Queue[object] = queue.Queue()
        transport = "websockets" if person.way == "ws" else "tcp"
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=person.name, protocol=version, transport=transport
        )
        if person.user is not None:
            self.client.username_pw_set(person.user, person.password)
        if person.way == "ws":
            self.client.ws_set_options(path="/mqtt")
        if person.way in ("tls", "mutual"):
            context = ssl.create_default_context(cafile=str(harbour.authority.certificate))
            if person.certificate:
                context.load_cert_chain(*harbour.certificates[person.certificate])
            self.client.tls_set_context(context)
        self.client.on_connect = lambda _client, _data, _flags, code, _properties: self._connected.put(
            not code.is_failure
        )
        self.client.on_disconnect = lambda *_: self._connected.put(False)
        self.client.on_connect_fail = lambda *_: self._connected.put(False)
        self.client.on_message = lambda _client, _data, message: self.got.put(
            (message.topic, message.payload)
        )
        self.client.on_subscribe = lambda *_: self._granted.put(None)
        self._port = harbour.ports[person.way]

    def connect(self) -> bool:
        try:
            self.client.connect("127.0.0.1", self._port, keepalive=60)
        except (OSError, ssl.SSLError, paho.WebsocketConnectionError):
            return False
        self.client.loop_start()
        return self._connected.get(timeout=DEADLINE)

    def subscribe(self, topic_filter: str) -> None:
        self.client.subscribe(topic_filter, qos=1)
        self._granted.get(timeout=DEADLINE)

    def publish(self, topics: Iterable[str], payload: str) -> None:
        for sent in [self.client.publish(topic, payload, qos=1) for topic in topics]:
            sent.wait_for_publish(DEADLINE)

    def take_until(self, topic: str) -> set[tuple[str, bytes]]:
        found: set[tuple[str, bytes]] = set()
        while True:
            message = self.got.get(timeout=DEADLINE)
            if message[0] == topic:
                return found
            found.add(message)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def try_everything(harbour: Harbour, version: int) -> dict[str, tuple[set[str], set[str]] | None]:
    """By person: the topics read and written, or None if not let in."""
    admin = Peer(harbour, Person("admin", "admin", "harbour"), version)
    assert admin.connect()
    admin.subscribe("#")
    found: dict[str, tuple[set[str], set[str]] | None] = {}
    for person in PEOPLE:
        peer = Peer(harbour, person, version)
        if not peer.connect():
            found[person.name] = None
            peer.close()
            continue
        peer.subscribe("#")
        admin.publish((*TOPICS, END), "to read")
        read = {topic for topic, _ in peer.take_until(END)}
        admin.take_until(END)
        peer.publish(TOPICS, person.name)
        admin.publish([END], "")
        written = {topic for topic, payload in admin.take_until(END) if payload == person.name.encode()}
        found[person.name] = (read, written)
        peer.close()
    admin.close()
    return found


@contextmanager
def running(command: list[str], ports: list[int], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=CLEAN, stdout=output, stderr=output)
    try:
        end = time.monotonic() + DEADLINE
        for port in ports:
            while not is_open(port):
                assert process.poll() is None and time.monotonic() < end, log.read_text(encoding="utf-8")
                time.sleep(0.02)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def import_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate", "import-mosquitto", *map(str, arguments)]
    return subprocess.run(command, env=CLEAN, capture_output=True, text=True, timeout=60)


@pytest.fixture
def harbour(tmp_path: Path) -> Harbour:
    authority = make_authority(tmp_path)
    server, pump = authority.issue("server"), authority.issue("pump")
    passwords = tmp_path / "passwords"
    passwords.touch(mode=0o600)
    for user, password, kind in (
        ("admin", "harbour", "sha512-pbkdf2"), ("ada", "tide", "sha512-pbkdf2"), ("bob", "gate", "sha512"),
    ):  # fmt: skip
        subprocess.run(
            ["mosquitto_passwd", "-H", kind, "-b", passwords, user, password], check=True, capture_output=True
        )
    (tmp_path / "acl").write_text(RIGHTS, encoding="utf-8")
    ports = {way: free_port() for way in ("tcp", "ws", "tls", "mutual")}
    config = tmp_path / "mosquitto.conf"
    config.write_text(
        f"user {os.environ.get('USER', 'root')}\n"
        f"set_tcp_nodelay true\npassword_file {passwords}\nacl_file {tmp_path}/acl\nallow_anonymous true\n"
        f"listener {ports['tcp']} 127.0.0.1\nmax_connections 50\n"
        f"listener {ports['ws']} 127.0.0.1\nprotocol websockets\n"
        f"listener {ports['tls']} 127.0.0.1\ncertfile {server.certificate}\nkeyfile {server.key}\n"
        f"listener {ports['mutual']} 127.0.0.1\ncertfile {server.certificate}\nkeyfile {server.key}\n"
        f"cafile {authority.certificate}\nrequire_certificate true\nuse_identity_as_username true\n",
        encoding="utf-8",
    )
    return Harbour(config, ports, authority, {"pump": (str(pump.certificate), str(pump.key))})


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
def test_the_same_people_may_do_the_same(harbour: Harbour, version: int, tmp_path: Path) -> None:
    ports = list(harbour.ports.values())
    with running([mosquitto_program(), "-c", str(harbour.config)], ports, tmp_path / "mosquitto.log"):
        before = try_everything(harbour, version)
    # The comparison means something only if both answers occur.
    assert before["nobody"] == ({"open/a"}, set()) and before["stranger"] is None
    settings = tmp_path / "tidegate.toml"
    result = import_command(harbour.config, "-o", settings)
    assert result.returncode == ExitStatus.OK, result.stderr
    serve = [sys.executable, "-m", "tidegate", "serve", "--config", str(settings)]
    with running(serve, ports, tmp_path / "tidegate.log"):
        assert try_everything(harbour, version) == before


def test_the_command_says_what_it_left_out_and_writes_what_loads(tmp_path: Path) -> None:
    source, target = tmp_path / "mosquitto.conf", tmp_path / "tidegate.toml"
    source.write_text("listener 1884\nconnection far\naddress 10.0.0.1\ntopic # out\n", encoding="utf-8")
    result = import_command(source, "-o", target)
    assert (result.returncode, result.stdout) == (ExitStatus.FAILURE, "")
    assert result.stderr.splitlines()[0] == f"{source}:2: connection: not converted: belongs to a bridge"
    assert [f"{source}:{number}: " in result.stderr for number in (1, 2, 3, 4)] == [False, True, True, True]
    assert load_settings(target).listeners[0].port == 1884
    assert import_command(source, "-o", target).returncode == ExitStatus.USAGE  # it exists by now
    assert import_command(source).stdout == target.read_text(encoding="utf-8")


def test_a_file_that_cannot_be_read_is_one_line_and_a_hint(tmp_path: Path) -> None:
    result = import_command(tmp_path / "absent.conf")
    assert result.returncode == ExitStatus.FAILURE
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["error", "hint"]
