"""Options of the commands that are MQTT clients: mosquitto's letters where it has one, and what they mean.

`-h` is help here, as everywhere in Tidegate, so the host is `-H`.
"""

import asyncio
import inspect
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.status import ExitStatus, report
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.client import Client, Will

Command = Callable[..., None]
VERSIONS = {"5": 5, "mqttv5": 5, "3.1.1": 4, "311": 4, "4": 4, "mqttv311": 4}
SIGTERM_STATUS = 128 + signal.SIGTERM

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-L",
        envvar="TIDEGATE_URL",
        help="mqtt://host:port, mqtts://…, ws://host:port/path, wss://… or unix:/path.",
    ),
]
Host = Annotated[str | None, typer.Option("--host", "-H", help="Server, unless --url. Default localhost.")]
Port = Annotated[int | None, typer.Option("--port", "-p", min=1, max=65_535, help="Default 1883, or 8883.")]
ClientId = Annotated[str, typer.Option("--id", "-i", help="Client identifier. Default: from the server.")]
Username = Annotated[str | None, typer.Option("--username", "-u", envvar="TIDEGATE_USERNAME")]
Password = Annotated[
    str | None,
    typer.Option(
        "--password", "-P", help="Others can see it in the list of processes: prefer one of the next."
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(help="First line of this file is the password; so is the variable TIDEGATE_PASSWORD."),
]
Version = Annotated[str, typer.Option("--protocol-version", "-V", help="5 or 3.1.1.")]
KeepAlive = Annotated[int, typer.Option("--keep-alive", "-k", min=0, max=65_535, help="Seconds.")]
ConnectTimeout = Annotated[float, typer.Option(min=0.1, help="Seconds until the connection must be open.")]
CaFile = Annotated[
    Path | None, typer.Option("--cafile", help="Trust these authorities, not the system's; implies --tls.")
]
CertFile = Annotated[Path | None, typer.Option("--cert", help="Client certificate, a PEM file.")]
KeyFile = Annotated[Path | None, typer.Option("--key", help="Its private key.")]
Tls = Annotated[bool, typer.Option("--tls", help="Use TLS with --host.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Do not check the server's certificate.")]
WillTopic = Annotated[str | None, typer.Option(help="Where the server speaks for us if we vanish.")]
WillPayload = Annotated[str, typer.Option(help="What it says.")]
WillQos = Annotated[int, typer.Option(min=0, max=2, help="Its QoS.")]
WillRetain = Annotated[bool, typer.Option("--will-retain", help="The server keeps it.")]
Pairs = Annotated[
    list[str] | None, typer.Option("--user-property", "-D", metavar="NAME=VALUE", help="May be repeated.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No words about errors; the exit status tells.")]


def secret(username: str | None, password: str | None, password_file: Path | None) -> str | None:
    """The password that was given in one of the ways there are; raises a usage error."""
    if password is not None:
        return password
    if password_file is not None:
        try:
            return password_file.read_text().partition("\n")[0]
        except OSError as error:
            raise typer.BadParameter(f"--password-file {password_file}: {error.strerror}") from None
    # Without a user name the variable is for somebody else.
    return os.environ.get("TIDEGATE_PASSWORD") if username is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where and how to connect, as the command line says; every field is an option of that name."""

    url: Url = None
    host: Host = None
    port: Port = None
    client_id: ClientId = ""
    username: Username = None
    password: Password = None
    password_file: PasswordFile = None
    protocol_version: Version = "5"
    keep_alive: KeepAlive = 60
    connect_timeout: ConnectTimeout = 10.0
    cafile: CaFile = None
    cert: CertFile = None
    key: KeyFile = None
    tls: Tls = False
    insecure: Insecure = False
    will_topic: WillTopic = None
    will_payload: WillPayload = ""
    will_qos: WillQos = 0
    will_retain: WillRetain = False

    def client(self, **options: Any) -> "Client":
        """A client for it; raises `TidegateError` or a usage error. To be called inside the running loop."""
        from tidegate.client import Client
        from tidegate.net.addresses import parse_address
        from tidegate.net.tls import MQTT_ALPN, client_context

        endpoint = parse_address(self._address())
        context = None
        if endpoint.tls:
            alpn = ("http/1.1",) if endpoint.websocket else MQTT_ALPN
            context = client_context(self.cafile, self.cert, self.key, insecure=self.insecure, alpn=alpn)
        elif self.cert or self.key or self.insecure or (self.url and (self.tls or self.cafile)):
            raise typer.BadParameter(f"{endpoint} has no TLS; use mqtts:// or wss://")
        return Client(
            endpoint,
            client_id=self.client_id,
            username=self.username,
            password=self._secret(),
            protocol_version=self._level(),
            keep_alive=self.keep_alive,
            connect_timeout=self.connect_timeout,
            ssl=context,
            will=self._will(),
            **options,
        )

    def as_operator(self) -> "Server":
        """By the operator's socket if the node runs here for this user, and nothing says how else to come."""
        if self.username is not None or self.tls or self.cafile or self.cert or self.key or self.insecure:
            return self
        from tidegate.net.operators import operators_way

        address = self._address()
        way = operators_way(address)
        return self if way == address else replace(self, url=way, host=None, port=None)

    def _address(self) -> str:
        if self.url is not None and self.host is None and self.port is None:
            return self.url
        if self.url is not None and os.environ.get("TIDEGATE_URL") != self.url:
            raise typer.BadParameter("give either --url or --host and --port")
        from tidegate.net.addresses import DEFAULT_PORTS, join_host_port

        scheme = "mqtts" if self.tls or self.cafile else "mqtt"
        host = (self.host or "localhost").strip("[]")
        return f"{scheme}://{join_host_port(host, self.port or DEFAULT_PORTS[scheme])}"

    @property
    def is_version_5(self) -> bool:
        return self._level() == 5

    def _level(self) -> int:
        try:
            return VERSIONS[self.protocol_version.lower()]
        except KeyError:
            raise typer.BadParameter(f"protocol version {self.protocol_version!r}: use 5 or 3.1.1") from None

    def _secret(self) -> str | None:
        return secret(self.username, self.password, self.password_file)

    def _will(self) -> "Will | None":
        from tidegate.client import Will

        if self.will_topic is None:
            return None
        return Will(
            topic=self.will_topic,
            payload=self.will_payload.encode(),
            qos=self.will_qos,
            retain=self.will_retain,
        )


def with_server(*, has_will: bool = True, **defaults: Any) -> Callable[[Command], Command]:
    """For a command whose parameter `server` is a `Server`: its fields become options, behind the command's own.

    `defaults` are those that differ from the fields'.
    """

    def decorate(command: Command) -> Command:
        wanted = {
            field.name: inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=field.type,
                default=defaults.get(field.name, field.default),
            )
            for field in fields(Server)
            if has_will or not field.name.startswith("will_")
        }

        def with_options(**values: Any) -> None:
            server = Server(**{name: values.pop(name) for name in wanted})
            command(server=server, **values)

        own = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for each in inspect.signature(command).parameters.values()
            if each.name != "server"
        ]
        shown = [*own, *wanted.values()]
        with_options.__doc__ = command.__doc__
        # The library that makes options of parameters looks at both.
        with_options.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        with_options.__annotations__ = {each.name: each.annotation for each in shown}
        return with_options

    return decorate


def report_refusal(error: TidegateError, username: str | None) -> ExitStatus:
    """As `report`; a refusal for want of rights gets a hint that says whose rights, and how they are given."""
    from tidegate.client import PublishRefused, SubscribeRefused
    from tidegate.mqtt.codes import ReasonCode

    is_right = getattr(error, "reason_code", None) == ReasonCode.NOT_AUTHORIZED
    if is_right and isinstance(error, PublishRefused | SubscribeRefused):
        if username is None:
            error.hint = "no user name was given: add --username and --password-file if you have an account"
        else:
            word = "write" if isinstance(error, PublishRefused) else "read"
            error.hint = (
                f"{username!r} has no right to {word} there: ask the administrator for it "
                f"(Tidegate: a line `topic {word} …` for this user in accounts.rights_file)"
            )
    return report(error)


def parse_pairs(texts: list[str] | None) -> tuple[tuple[str, str], ...]:
    """User Properties out of NAME=VALUE."""
    pairs = []
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator:
            raise typer.BadParameter(f"user property {text!r}: write NAME=VALUE")
        pairs.append((name, value))
    return tuple(pairs)


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run a client to its end; Ctrl-C and SIGTERM cancel it, so that it still says goodbye to the server."""
    import uvloop

    was_terminated = False

    async def guarded() -> int:
        nonlocal was_terminated
        task = asyncio.current_task()
        assert task is not None

        def terminate() -> None:
            nonlocal was_terminated
            was_terminated = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        return await work

    try:
        return uvloop.run(guarded())
    except asyncio.CancelledError:
        if was_terminated:
            return SIGTERM_STATUS
        raise
