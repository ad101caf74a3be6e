"""The broker inside another program: start, publish, ask, stop; its fixtures, its $SYS topics and its metrics page."""

import asyncio
import gzip
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tidegate.broker import Broker, Features, Listener
from tidegate.broker.metrics import MetricsError, serve_metrics
from tidegate.mqtt import Disconnect, Publish, ReasonCode, Will
from tidegate.mqtt.errors import TopicNameInvalid
from tidegate.mqtt.properties import Property
from tidegate.net.errors import AddressInUse
from tidegate.testing import BrokerThread
from tidegate.testing.ports import free_port
from tidegate.testing.raw import RawClient

pytest_plugins = ["pytester"]


def test_a_broker_runs_inside_a_program_publishes_and_tells_its_statistics() -> None:
    def exchange(port: int) -> list[tuple[str, bytes, int, bool]]:
        with RawClient(port) as client:
            client.connect("c")
            client.subscribe("news/#", qos=2)
            client.publish("ready", b"")
            messages = [client.take(Publish) for _ in range(3)]
            for message in messages:
                client.acknowledge(message)
            return [(m.topic, m.payload, m.qos, m.retain) for m in messages]

    async def main() -> None:
        async with Broker(port=0) as broker:
            task = asyncio.create_task(asyncio.to_thread(exchange, broker.port))
            async with asyncio.timeout(10):
                while broker.statistics()["publish_received"] == 0:
                    await asyncio.sleep(0.01)
            broker.publish("news/a", b"0")
            broker.publish("news/b", b"1", qos=1, retain=True, properties={Property.CONTENT_TYPE: "text"})
            broker.publish("news/c", b"2", qos=2, properties={Property.MESSAGE_EXPIRY_INTERVAL: 60})
            assert await task == [
                ("news/a", b"0", 0, False),
                ("news/b", b"1", 1, False),
                ("news/c", b"2", 2, False),
            ]
            assert broker.statistics()["connections_total"] == 1
            assert broker.core.retained.get(b"news/b") is not None

    asyncio.run(main())


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0b"])
def test_publishing_to_a_bad_topic_raises(topic: str) -> None:
    async def main() -> None:
        async with Broker(port=0) as broker:
            with pytest.raises(TopicNameInvalid):
                broker.publish(topic, b"")

    asyncio.run(main())


def test_a_broker_that_is_not_running_says_so() -> None:
    async def main() -> None:
        broker = Broker(port=0)
        with pytest.raises(RuntimeError):
            broker.statistics()
        await broker.stop()
        async with broker:
            pass
        with pytest.raises(RuntimeError):
            broker.publish("t", b"")

    asyncio.run(main())


def test_a_broker_can_be_started_again() -> None:
    async def main() -> None:
        broker = Broker(port=0)
        for _ in range(2):
            async with broker:
                with RawClient(broker.port):
                    pass

    asyncio.run(main())


def test_a_listener_that_cannot_open_closes_the_others_again(tmp_path: Path) -> None:
    async def main() -> None:
        port = free_port()
        path = tmp_path / "socket"
        with socket.create_server(("127.0.0.1", 0)) as taken:
            listeners = [
                Listener(port=port),
                Listener(unix_path=path),
                Listener(port=taken.getsockname()[1]),
            ]
            with pytest.raises(AddressInUse):
                await Broker(listeners=listeners).start()
        socket.create_server(("127.0.0.1", port)).close()
        assert not path.exists()

    asyncio.run(main())


@pytest.mark.parametrize("version", [4, 5])
def test_stopping_says_0x8b_after_what_was_under_way(version: int) -> None:
    with BrokerThread() as broker:
        client = RawClient(broker.port, version)
        client.connect("c")
        client.subscribe("t")
        client.publish("t", b"last")
        client.send_bytes(b"\xc0\x00")
        client.receive()  # the message or the PINGRESP: the broker has read both
    ended = client.expect_closed()
    assert (ended and ended.reason_code) == (ReasonCode.SERVER_SHUTTING_DOWN if version == 5 else None)
    assert not any(isinstance(packet, Disconnect) for packet in client.inbox)
    client.close()


def test_stopping_does_not_wait_longer_than_its_timeout_for_a_client_that_does_not_read() -> None:
    async def main() -> float:
        broker = Broker(port=0)
        await broker.start()
        client = RawClient(broker.port)
        await asyncio.to_thread(client.connect, "c")
        await asyncio.to_thread(client.subscribe, "t")
        for _ in range(100):
            broker.publish("t", bytes(100_000))
            await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        started = loop.time()
        await broker.stop(timeout=0.3)
        client.close()
        return loop.time() - started

    assert asyncio.run(main()) < 2.0


def test_wills_are_not_published_by_an_orderly_stop_to_clients_that_are_told_goodbye() -> None:
    with BrokerThread() as broker:
        reader, other = RawClient(broker.port), RawClient(broker.port)
        reader.connect("reader")
        reader.subscribe("will")
        other.connect("other", will=Will(topic="will", payload=b""))
    reader.expect_closed()
    assert list(reader.inbox) == []
    reader.close()
    other.close()


@pytest.fixture
def sys_values(start_broker: StartBroker, dial: Dial) -> Callable[[str], bytes]:
    """The latest value of a $SYS topic as a new subscriber gets it."""
    broker = start_broker(sys_interval=0.2)
    client = dial(broker)
    client.connect("watcher")
    client.subscribe("$SYS/#")
    values: dict[str, bytes] = {}

    def read(topic: str) -> bytes:
        try:
            while True:
                message = client.receive(0.05)
                if isinstance(message, Publish):
                    values[message.topic] = message.payload
        except TimeoutError:
            pass
        return values.get(f"$SYS/{topic}", b"")

    return read


def test_sys_topics_tell_what_is_going_on(sys_values: Callable[[str], bytes], until: Until) -> None:
    assert sys_values("broker/version").startswith(b"tidegate version ")
    until(lambda: sys_values("broker/clients/connected") == b"1")
    assert sys_values("broker/subscriptions/count") == b"1"
    assert int(sys_values("broker/heap/current")) > 1_000_000
    until(lambda: int(sys_values("broker/messages/received") or 0) >= 2)
    until(lambda: float(sys_values("broker/load/connections/1min") or 0) > 0)
    assert sys_values("broker/uptime").endswith(b" seconds")


def test_sys_topics_can_be_turned_off_and_are_no_part_of_a_wildcard(
    start_broker: StartBroker, dial: Dial
) -> None:
    for interval, expected in ((0.0, 0), (10.0, 1)):
        broker = start_broker(sys_interval=interval)
        client = dial(broker)
        client.connect("c")
        client.subscribe("#")
        client.subscribe("$SYS/broker/version")
        found = [p for p in client.barrier() if isinstance(p, Publish)]
        if expected and not found:
            found = [client.take(Publish)]
        assert len(found) == expected


def test_the_metrics_page_shows_the_counters(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(sys_interval=0)
    client = dial(broker)
    client.connect("c")
    client.subscribe("t", qos=1)
    for _ in range(3):
        client.publish("t", b"x", qos=1)
    client.disconnect()
    port, stop = serve_metrics("127.0.0.1", 0, "here", broker.statistics)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        with pytest.raises(MetricsError):
            serve_metrics("127.0.0.1", port, "here", broker.statistics)
    finally:
        stop()
    values = {line.split(" ")[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and line[0] != "#"}
    assert values["tidegate_publish_received_total"] == 3
    assert values["tidegate_connections"] == 0
    assert values["tidegate_connections_total"] == 1
    assert 'tidegate_closes_total{reason="client disconnected"} 1.0' in lines


@pytest.mark.parametrize(
    ("request_line", "headers", "status", "content"),
    [
        (b"GET /metrics HTTP/1.1", b"", 200, b"tidegate_connections 0"),
        (b"GET /metrics?name=x HTTP/1.0", b"", 200, b"tidegate_connections 0"),
        (b"GET /metrics HTTP/1.1", b"Accept-Encoding: gzip\r\n", 200, b"tidegate_connections 0"),
        (b"GET /metrics HTTP/1.1", b"Accept: application/openmetrics-text\r\n", 200, b"# EOF"),
        (b"HEAD /metrics HTTP/1.1", b"", 200, b""),
        (b"GET / HTTP/1.1", b"", 200, b"at /metrics"),
        (b"GET /metric HTTP/1.1", b"", 404, b"at /metrics"),
        (b"POST /metrics HTTP/1.1", b"", 405, b"GET"),
        (b"\x16\x03\x01", b"", 400, b"no request"),
        (b"GET /" + b"x" * 20_000, b"", 400, b"no request"),
    ],
)
def test_the_metrics_page_answers_what_is_asked(
    start_broker: StartBroker, request_line: bytes, headers: bytes, status: int, content: bytes
) -> None:
    broker = start_broker(sys_interval=0)
    port, stop = serve_metrics("127.0.0.1", 0, "here", broker.statistics)
    try:
        with socket.create_connection(("127.0.0.1", port), 5.0) as client:
            client.sendall(request_line + b"\r\n" + headers + b"\r\n")
            answer = b"".join(iter(lambda: client.recv(65_536), b""))
    finally:
        stop()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    if b"Content-Encoding: gzip" in head:
        body = gzip.decompress(body)
    assert content in body and bool(content) is bool(body)


def test_the_fixture_gives_a_running_broker(tidegate_broker: BrokerThread, dial: Dial) -> None:
    assert dial(tidegate_broker).connect("c").reason_code == ReasonCode.SUCCESS


def test_the_factory_makes_brokers_with_other_settings(
    tidegate_broker_factory: Callable[..., BrokerThread], dial: Dial
) -> None:
    first = tidegate_broker_factory(features=Features(maximum_qos=0))
    second = tidegate_broker_factory()
    assert dial(first).connect("c").properties[Property.MAXIMUM_QOS] == 0
    assert first.port != second.port


def test_the_fixtures_work_in_another_project(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import socket

        def test_connects(tidegate_broker):
            socket.create_connection((tidegate_broker.host, tidegate_broker.port), 5).close()
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
