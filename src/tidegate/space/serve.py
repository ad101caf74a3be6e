"""A space broker as a process: service and fronts, assembled, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import ssl
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidegate.client import Client
from tidegate.mqtt.errors import TopicFilterInvalid
from tidegate.mqtt.topics import validate_topic_filter
from tidegate.space.errors import Fault, SpaceError, malformed
from tidegate.space.link import follow_link, stay_excused
from tidegate.space.mqtt_front import MqttFront
from tidegate.space.requests import PREFIX
from tidegate.space.rights import SpaceRights, is_loopback, load_rights
from tidegate.space.service import SpaceService
from tidegate.space.settings import SpaceLimits

log = logging.getLogger("tidegate.space")

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # a level of a topic, a folder, a part of a URL
SWEEP: Final = 10.0  # seconds between two looks for watches that nobody wants


@dataclass(slots=True, kw_only=True)
class ServeOptions:
    """`client` makes the MQTT client, None for HTTP alone; `http_port` None for MQTT alone, 0 for any.

    `reply` are filters for the topics that answers over MQTT may go to.
    """

    spaces: list[str] = field(default_factory=lambda: ["default"])
    client: Callable[[], Client] | None = None
    http_host: str = "127.0.0.1"
    http_port: int | None = None
    tls: ssl.SSLContext | None = None
    data: Path | None = None
    sync: bool = True
    rights: SpaceRights = field(default_factory=SpaceRights)
    rights_file: Path | None = None  # to be read again on SIGHUP
    limits: SpaceLimits = field(default_factory=SpaceLimits)
    query_workers: int = 4
    queue: int = 256
    notification_qos: int = 1
    reply: list[str] = field(default_factory=lambda: ["#"])

    def check(self) -> None:
        for name in self.spaces:
            if not _NAME.fullmatch(name):
                raise malformed(f"{name!r} is no name for a space", "use letters, digits, - and _")
        for each in self.reply:
            try:
                validate_topic_filter(each)
            except TopicFilterInvalid as error:
                raise malformed(
                    f"--reply {each!r}: {error}", "give a topic filter such as replies/#"
                ) from None
        if self.client is None and self.http_port is None:
            raise malformed("neither MQTT nor HTTP is served", "leave out --no-mqtt, or give --http-port")
        if self.http_port is not None and self.rights.is_open and not is_loopback(self.http_host):
            raise SpaceError(
                Fault.FORBIDDEN,
                f"everybody who reaches {self.http_host} could change every space",
                hint="give --rights FILE, or listen on 127.0.0.1",
            )


async def serve(options: ServeOptions, ready: Callable[[str], None] = print) -> None:
    """Until SIGTERM or SIGINT; raises what makes serving impossible. `ready` gets one line."""
    options.check()
    for each in options.rights.oddities(options.spaces):
        log.warning("rights file: %s", each)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    service = SpaceService(
        options.spaces,
        limits=options.limits,
        rights=options.rights,
        data=options.data,
        sync=options.sync,
        query_workers=options.query_workers,
        queue=options.queue,
    )
    loop.add_signal_handler(signal.SIGHUP, lambda: _read_again(options, service))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(service.close)
        tasks = await stack.enter_async_context(_Background())
        places = []
        if options.http_port is not None:
            from tidegate.space.http_front import HttpFront

            front = await stack.enter_async_context(
                HttpFront(service, host=options.http_host, port=options.http_port, tls=options.tls)
            )
            scheme = "http" if options.tls is None else "https"
            places.append(f"{scheme}://{options.http_host}:{front.port}/<space>/sparql")
        if options.client is not None:
            client = options.client()
            await stack.enter_async_context(client)
            mqtt = MqttFront(service, client, qos=options.notification_qos, reply=options.reply)
            await mqtt.check_free()
            await mqtt.start()
            tasks.start(mqtt.run())
            is_back = asyncio.Event()
            tasks.start(follow_link(client, lambda is_there: _on_link(client, is_there, is_back)))
            tasks.start(stay_excused(client, is_back))
            places.append(f"{client.endpoint} {PREFIX}/<space>")
        tasks.start(_sweep(service))
        kept = "in memory" if options.data is None else f"in {options.data}"
        sizes = ", ".join(
            f"{name} ({len(each.engine.store)} triples)" for name, each in service.spaces.items()
        )
        ready(f"tidegate space ready on {' and '.join(places)}, {kept}: {sizes}")
        await tasks.wait_for(stop)
        log.info("stopping")
    if service.has_late_threads:
        _leave()


def _read_again(options: ServeOptions, service: SpaceService) -> None:
    """The rights file; those of before hold if it makes no sense."""
    if options.rights_file is None:
        log.info("there is no rights file to be read again")
        return
    try:
        rights = load_rights(options.rights_file)
    except SpaceError as error:
        log.error("the rights stay as they were: %s", error)
        return
    for each in rights.oddities(options.spaces):
        log.warning("rights file: %s", each)
    service.rights = rights
    log.info("the rights were read again", extra={"file": str(options.rights_file)})


def _leave() -> None:
    """All is closed; a query in a thread that cannot be stopped is not waited for."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def _on_link(client: Client, is_there: bool, is_back: asyncio.Event) -> None:
    if is_there:
        is_back.set()
        log.info("the MQTT broker is back", extra={"endpoint": str(client.endpoint)})
    else:
        log.warning("the MQTT broker is lost; trying again", extra={"endpoint": str(client.endpoint)})


async def _sweep(service: SpaceService) -> None:
    while True:
        await asyncio.sleep(SWEEP)
        ended = service.end_forgotten()
        if ended:
            log.info("watches ended", extra={"count": ended})


class _Background:
    """Tasks that run as long as the process; the first that fails ends it."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> _Background:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, work: object) -> None:
        self._tasks.append(asyncio.create_task(work))  # type: ignore[arg-type]

    async def wait_for(self, stop: asyncio.Event) -> None:
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([stopping, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except* Exception as group:  # noqa: BLE001
            raise _first(group) from None
        finally:
            stopping.cancel()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
