"""Load reports on the wire: by extended PINGREQ, on PUBACK, as messages, or not at all."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop

from tests.integration.client.servers import DEADLINE, Peer, scripted, wait_until
from tidegate.client import Client, Message, ReportOptions
from tidegate.client.load_reports import LOAD_PROPERTY, LOAD_TOPIC
from tidegate.flow.load_report import NEGOTIATION, LoadReport, parse_pingreq, parse_value
from tidegate.mqtt import Connack, Connect, Packet, Property, Puback, Publish, Suback, Subscribe
from tidegate.mqtt.decode import decode_packet

AGREED = {Property.USER_PROPERTY: [NEGOTIATION]}


class Server:
    """Accepts one client, sends it messages when it subscribes or at once, and keeps what it says of its load."""

    def __init__(
        self, messages: int, qos: int, connack: dict[Property, Any], *, at_once: bool = False
    ) -> None:
        self._messages = messages
        self._qos = qos
        self._connack = connack
        self.is_sending_at_once = at_once
        self.connect: Connect | None = None
        self.pings: list[LoadReport | None] = []
        self.packets: list[Packet] = []
        self.acknowledged = 0

    async def serve(self, peer: Peer) -> None:
        packet = await peer.receive()
        assert isinstance(packet, Connect)
        self.connect = packet
        version = packet.protocol_level
        peer.send(Connack(properties=self._connack if version == 5 else {}))
        if self.is_sending_at_once:
            self._send_messages(peer)
        async for first_byte, body in self._raw(peer):
            if first_byte == 0xC0:
                self.pings.append(parse_pingreq(body) if body else None)
                peer.writer.write(b"\xd0\0")
            else:
                packet = decode_packet(first_byte, body, version)
                self.packets.append(packet)
                self.acknowledged += isinstance(packet, Puback)
                if isinstance(packet, Subscribe):
                    peer.send(Suback(packet_identifier=packet.packet_identifier, reason_codes=[self._qos]))
                    self._send_messages(peer)

    def _send_messages(self, peer: Peer) -> None:
        for index in range(self._messages):
            identifier = index + 1 if self._qos else None
            peer.send(Publish(topic="jobs", qos=self._qos, packet_identifier=identifier))

    @staticmethod
    async def _raw(peer: Peer) -> AsyncIterator[tuple[int, bytes]]:
        """Packets undecoded: an extended PINGREQ is none that MQTT knows."""
        while True:
            first_byte, length = await peer._reader.readexactly(2)
            assert length < 0x80
            yield first_byte, await peer._reader.readexactly(length)

    @property
    def reports(self) -> list[LoadReport]:
        """All reports, whatever carried them."""
        found = [ping for ping in self.pings if ping is not None]
        for packet in self.packets:
            if isinstance(packet, Publish) and packet.topic == LOAD_TOPIC:
                report = parse_value(packet.payload)
                assert report is not None
                found.append(report)
            if isinstance(packet, Puback):
                for name, value in packet.properties.get(Property.USER_PROPERTY, ()):
                    report = parse_value(value)
                    assert name == LOAD_PROPERTY and report is not None
                    found.append(report)
        return found

    @property
    def processed(self) -> int:
        """What the client says it has done in all. Its counts add up to less if its speed changed on the way."""
        reports = self.reports
        return (reports[-1].processed or 0) if reports else 0


def run(server: Server, take: Any, **options: Any) -> Client:
    """Let a client with these options work off what the server sends, by `take`."""

    async def main() -> Client:
        async with asyncio.timeout(DEADLINE), scripted(serve) as port:
            async with Client(f"127.0.0.1:{port}", **options) as client:
                await take(client)
            return client

    async def serve(peer: Peer) -> None:
        try:
            await server.serve(peer)
        except asyncio.IncompleteReadError:
            pass  # The client left.

    return uvloop.run(main())


def take_all(server: Server, number: int, seconds: float, *, manual: bool = False) -> Any:
    async def take(client: Client) -> None:
        if not server.is_sending_at_once:
            await client.subscribe("jobs", qos=1)
        for _ in range(number):
            message = await anext(client.messages)
            await asyncio.sleep(seconds)  # the work
            if manual:
                message.ack()
        client.messages.get_nowait()  # as a loop would ask for the next one
        if client.statistics()["reports"] != "off":
            await wait_until(lambda: server.processed == number)

    return take


@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize("qos", [0, 1])
def test_by_extended_pingreq_when_the_server_agreed(qos: int, manual: bool) -> None:
    server = Server(30, qos, AGREED)
    client = run(server, take_all(server, 30, 0.004, manual=manual), manual_ack=manual)
    assert server.connect is not None
    assert NEGOTIATION in server.connect.properties[Property.USER_PROPERTY]
    reports = server.reports
    assert client.statistics()["reports"] == "ping"
    assert client.statistics()["reports_sent"] == len(reports) == len(server.pings)
    first, *_, last = reports
    assert first.count == 1  # at once after the first message
    assert first.queue_length in (28, 29)
    assert (last.queue_length, last.processed) == (0, 30)
    for report in reports:
        assert report.processing_time >= 0.003 or not report.count  # uvloop sleeps whole milliseconds


def test_messages_right_behind_connack_count_for_this_connection() -> None:
    server = Server(20, 0, AGREED, at_once=True)
    run(server, take_all(server, 20, 0.001))
    assert server.reports[-1].processed == 20


def test_reports_are_sent_when_something_changes_and_not_for_every_message() -> None:
    server = Server(200, 0, AGREED)
    options = ReportOptions(interval=0.3, min_interval=0.05)
    run(server, take_all(server, 200, 0.001), reports=options)
    assert 2 <= len(server.reports) <= 30


def test_callbacks_are_measured_from_call_to_return() -> None:
    server = Server(10, 1, AGREED)

    async def take(client: Client) -> None:
        async def work(message: Message) -> None:
            await asyncio.sleep(0.005)

        await client.subscribe("jobs", qos=1, callback=work)
        await wait_until(lambda: server.processed == 10)

    run(server, take)
    assert server.reports[-1].processed == 10
    assert all(report.processing_time >= 0.004 for report in server.reports if report.count)


def test_on_puback_as_a_user_property() -> None:
    server = Server(30, 1, {})

    async def take(client: Client) -> None:
        await client.subscribe("jobs", qos=1)
        for _ in range(30):
            message = await anext(client.messages)
            await asyncio.sleep(0.002)
            message.ack()
        await wait_until(lambda: server.acknowledged == 30)

    client = run(server, take, reports="puback", manual_ack=True)
    assert client.statistics()["reports"] == "puback"
    assert server.connect is not None
    assert Property.USER_PROPERTY not in server.connect.properties
    assert not server.pings
    assert server.reports[0].count == 1
    assert all((report.processed or 0) >= (report.count or 0) > 0 for report in server.reports)


@pytest.mark.parametrize("version", [4, 5])
def test_as_messages_for_clients_that_can_do_nothing_else(version: int) -> None:
    server = Server(20, 0, {})
    client = run(server, take_all(server, 20, 0.002), reports="publish", protocol_version=version)
    assert client.statistics()["reports"] == "publish"
    assert server.reports[-1].processed == 20
    assert not server.pings


@pytest.mark.parametrize("reports", ["auto", "ping", "off"])
@pytest.mark.parametrize("version", [4, 5])
def test_a_server_that_does_not_agree_gets_none(reports: str, version: int) -> None:
    server = Server(20, 1, AGREED if reports == "off" else {})
    client = run(server, take_all(server, 20, 0), reports=reports, protocol_version=version)
    assert client.statistics()["reports"] == "off"
    assert not server.reports
    assert not server.pings


def test_keep_alive_carries_a_report_once_there_was_one() -> None:
    server = Server(1, 0, AGREED)

    async def take(client: Client) -> None:
        await client.subscribe("jobs")
        await anext(client.messages)
        client.messages.get_nowait()
        await wait_until(lambda: len(server.pings) >= 2)

    run(server, take, keep_alive=1)
    assert all(ping is not None and ping.processed == 1 for ping in server.pings)


def test_as_in_the_thesis_every_interval_has_its_report() -> None:
    server = Server(0, 0, AGREED)

    async def take(client: Client) -> None:
        await wait_until(lambda: len(server.reports) >= 3)

    run(server, take, reports=ReportOptions(interval=0.1, on_change=False, when_idle=True, min_interval=0.05))
    assert {(report.queue_length, report.count, report.processed) for report in server.reports} == {(0, 0, 0)}


def test_real_brokers_are_left_in_peace_by_default(port: int, version: int) -> None:
    async def main() -> None:
        async with Client(f"127.0.0.1:{port}", protocol_version=version, reports="auto") as client:
            await client.subscribe("t", qos=1)
            for index in range(50):
                await client.publish("t", str(index), qos=1)
                async with asyncio.timeout(DEADLINE):
                    await anext(client.messages)
            assert client.is_connected

    uvloop.run(main())
