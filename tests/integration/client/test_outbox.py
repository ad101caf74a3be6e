"""The outbox: what was accepted is sent, whatever happens to connections and processes."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.integration.client.servers import DEADLINE, Peer, cable, free_port, scripted, wait_until
from tidegate.client import Client, ClientError, ConnectRefused, Message, NoResponder, OutboxError, OutboxFull
from tidegate.mqtt import Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tidegate.testing import BrokerThread

KEPT: dict[str, Any] = {
    "client_id": "device",
    "clean_start": False,
    "reconnect": True,
    "reconnect_min_delay": 0.02,
}


def device(port: int, file: Path, **options: Any) -> Client:
    if options.get("protocol_version", 5) == 5:
        options.setdefault("session_expiry_interval", 3600)
    return Client(f"127.0.0.1:{port}", outbox=file, **{**KEPT, **options})


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_go_through_the_outbox_in_order(port: int, version: int, qos: int, tmp_path: Path) -> None:
    number = 500

    async def main() -> None:
        async with (
            asyncio.timeout(DEADLINE),
            Client(f"127.0.0.1:{port}", protocol_version=version) as other,
            # A window of 50: most of them wait on disk alone for a while.
            device(port, tmp_path / "box", protocol_version=version, send_queue_size=50) as client,
        ):
            await other.subscribe("t", qos=qos)
            for index in range(number):
                client.publish_nowait("t", str(index), qos=qos)
            received = [int((await anext(other.messages)).payload) for _ in range(number)]
            assert received == list(range(number))
            await client.flush()
            assert client.statistics()["outbox_messages"] == 0

    uvloop.run(main())


def test_publishing_works_while_the_server_is_away_and_even_before_it_ever_came(
    tmp_path: Path, version: int
) -> None:
    port = free_port()

    async def main() -> None:
        async with (
            asyncio.timeout(DEADLINE),
            device(port, tmp_path / "box", protocol_version=version) as client,
        ):
            assert not client.is_connected
            for index in range(20):
                await client.publish("t", str(index), qos=1, retain=True)
            with BrokerThread(port=port):
                await client.flush()
                async with Client(f"127.0.0.1:{port}") as other:
                    await other.subscribe("t")
                    assert (await anext(other.messages)).text == "19"

    uvloop.run(main())


def test_what_a_process_left_is_sent_by_the_next_with_all_its_properties(
    tidegate_broker: BrokerThread, tmp_path: Path
) -> None:
    port = tidegate_broker.port

    async def main() -> None:
        # Nobody listens at the first address.
        async with device(free_port(), tmp_path / "box") as client:
            await client.publish("t", "one", qos=1, content_type="text/plain", user_properties=(("a", "1"),))
            await client.publish("t", "two", qos=2, topic_alias=3)
        async with asyncio.timeout(DEADLINE), Client(f"127.0.0.1:{port}") as other:
            await other.subscribe("t", qos=2)
            async with device(port, tmp_path / "box") as client:
                one, two = [await anext(other.messages) for _ in range(2)]
                assert (one.text, one.qos, one.content_type, one.user_properties) == (
                    *("one", 1, "text/plain"),
                    [("a", "1")],
                )
                assert (two.text, two.qos) == ("two", 2)
                await client.flush()

    uvloop.run(main())


PUBLISHER = """
import asyncio, sys
from tidegate.client import Client

async def main(port, file, first, number, qos):
    async with Client(f"127.0.0.1:{port}", outbox=file, client_id="device", clean_start=False, reconnect=True,
                      session_expiry_interval=3600, send_queue_size=200) as client:
        for index in range(first, first + number):
            await client.publish("t", str(index), qos=qos)
            print(index, flush=True)
        await client.flush(60)
        print("flushed", flush=True)

asyncio.run(main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])))
"""


def start_publisher(port: int, file: Path, first: int, number: int, qos: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PUBLISHER, *map(str, (port, file, first, number, qos))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("qos", [1, 2])
def test_accepted_messages_survive_the_kill_of_the_process(port: int, qos: int, tmp_path: Path) -> None:
    """Killed five times at an arbitrary message: none accepted is lost, order is kept, QoS 2 comes once."""

    async def main() -> list[int]:
        received: list[int] = []
        async with asyncio.timeout(60), Client(f"127.0.0.1:{port}") as other:
            await other.subscribe("t", qos=qos)
            first = 0
            for kills_at in (3, 40, 111, 7, 60):
                with start_publisher(port, tmp_path / "box", first, 10_000, qos) as process:
                    assert process.stdout is not None
                    for _ in range(kills_at):
                        accepted = int(await asyncio.to_thread(process.stdout.readline))
                    process.kill()
                    # Accepted and printed while the signal was on its way.
                    accepted = max(
                        [accepted, *(int(line) for line in process.stdout if line.strip().isdigit())]
                    )
                first = accepted + 1
            last = first
            with start_publisher(port, tmp_path / "box", last, 1, qos) as process:
                out, _ = await asyncio.to_thread(process.communicate, timeout=60)
                assert out.endswith("flushed\n")
            while not received or received[-1] != last:
                received.append(int((await anext(other.messages)).payload))
            assert set(range(last + 1)) <= set(received)
        return received

    received = uvloop.run(main())
    if qos == 2:
        # One more than was printed may have been accepted before a kill, and is then published by the next, too.
        assert len(received) - len(set(received)) <= 5
        assert received == sorted(received)
    else:
        first_times = list(dict.fromkeys(received))
        assert first_times == sorted(first_times)


def test_cuts_lose_nothing_and_double_no_qos_2(tidegate_broker: BrokerThread, tmp_path: Path) -> None:
    number = 2000

    async def main() -> None:
        async with (
            asyncio.timeout(60),
            cable(tidegate_broker.port) as line,
            Client(f"127.0.0.1:{tidegate_broker.port}") as other,
            device(line.port, tmp_path / "box") as client,
        ):
            await other.subscribe("t", qos=2)
            for index in range(number):
                await client.publish("t", str(index), qos=2)
                if index % 300 == 299:
                    line.cut()
            received = [int((await anext(other.messages)).payload) for _ in range(number)]
            assert received == list(range(number))
            await client.flush()
            assert len(other.messages) == 0
            assert line.connections > 3

    uvloop.run(main())


def test_a_message_whose_pubrec_came_is_never_published_again(tmp_path: Path) -> None:
    """The process 'dies' after PUBREC; the next one sends PUBREL with the same identifier, and nothing else."""
    seen: list[object] = []

    async def first(peer: Peer) -> None:
        await peer.accept()
        packet = await peer.receive()
        assert isinstance(packet, Publish)
        seen.append(packet.packet_identifier)
        peer.send(Pubrec(packet_identifier=packet.packet_identifier or 0))
        release = await peer.receive()
        assert isinstance(release, Pubrel)

    async def second(peer: Peer) -> None:
        packet = await peer.accept(session_present=True)
        assert isinstance(packet, Connect)
        release = await peer.receive()
        assert isinstance(release, Pubrel)
        seen.append(release.packet_identifier)
        peer.send(Pubcomp(packet_identifier=release.packet_identifier))
        after = await peer.receive()
        assert isinstance(after, Publish)
        seen.append(after.payload)
        peer.send(Puback(packet_identifier=after.packet_identifier or 0))
        await peer.wait_closed()

    async def main() -> None:
        async with asyncio.timeout(DEADLINE):
            async with scripted(first) as port, device(port, tmp_path / "box", reconnect=False) as client:
                await client.publish("t", "once", qos=2)
                await wait_until(lambda: not client.is_connected)
            async with scripted(second) as port, device(port, tmp_path / "box") as client:
                await client.publish("t", "after", qos=1)
                await client.flush()
        assert seen[0] == seen[1]
        assert seen[2] == b"after"

    uvloop.run(main())


def test_if_the_session_is_lost_qos_2_is_sent_anew_and_counted_unless_it_was_received(tmp_path: Path) -> None:
    seen: list[tuple[bytes, bool]] = []
    connections = 0

    async def script(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        await peer.accept()
        while True:
            packet = await peer.receive()
            if isinstance(packet, Publish):
                seen.append((packet.payload, packet.dup))
                if connections > 1 or packet.payload == b"received":
                    peer.send(Pubrec(packet_identifier=packet.packet_identifier or 0))
            elif isinstance(packet, Pubrel):
                if connections == 1:
                    return  # dies with the session
                peer.send(Pubcomp(packet_identifier=packet.packet_identifier))

    async def main() -> None:
        async with (
            asyncio.timeout(DEADLINE),
            scripted(script) as port,
            device(port, tmp_path / "box") as client,
        ):
            await asyncio.gather(
                client.publish("t", "unknown", qos=2), client.publish("t", "received", qos=2)
            )
            await client.flush()
            assert client.statistics()["outbox_sent_anew"] == 1
        assert seen == [(b"unknown", False), (b"received", False), (b"unknown", False)]

    uvloop.run(main())


def test_a_full_outbox_waits_refuses_or_drops_as_it_is_told(tmp_path: Path) -> None:
    async def silent(peer: Peer) -> None:
        await peer.accept()
        while True:
            await peer.receive()

    async def fill(client: Client, number: int) -> None:
        for index in range(number):
            await client.publish("t", str(index), qos=1)

    async def main() -> None:
        async with asyncio.timeout(DEADLINE), scripted(silent) as port:
            async with device(port, tmp_path / "wait", outbox_size=5) as client:
                await fill(client, 5)
                with pytest.raises(TimeoutError):
                    await client.publish("t", qos=1, timeout=0.1)
                with pytest.raises(ClientError):
                    client.publish_nowait("t", qos=1)
            async with device(port, tmp_path / "refuse", outbox_size=5, outbox_when_full="refuse") as client:
                await fill(client, 5)
                with pytest.raises(OutboxFull):
                    await client.publish("t", qos=1)
                with pytest.raises(OutboxFull):
                    client.publish_nowait("t", qos=1)
            options: dict[str, Any] = {
                "outbox_size": 5,
                "outbox_when_full": "drop_oldest",
                "max_in_flight": 2,
            }
            async with device(port, tmp_path / "drop", **options) as client:
                await fill(client, 9)
                assert client.statistics()["outbox_dropped"] == 4
                assert client.statistics()["outbox_messages"] == 5
        with BrokerThread() as broker:
            async with asyncio.timeout(DEADLINE), Client(f"127.0.0.1:{broker.port}") as other:
                await other.subscribe("t", qos=1)
                async with device(broker.port, tmp_path / "drop") as client:
                    await client.flush()
                # The two in flight could not be dropped, the two oldest behind them were.
                assert [(await anext(other.messages)).text for _ in range(5)] == ["0", "1", "6", "7", "8"]

    uvloop.run(main())


def test_a_refused_message_leaves_the_outbox_and_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        while True:
            packet = await peer.receive()
            if isinstance(packet, Publish):
                code = 0x87 if packet.payload == b"bad" else 0
                peer.send(Puback(packet_identifier=packet.packet_identifier or 0, reason_code=code))

    async def main() -> None:
        async with (
            asyncio.timeout(DEADLINE),
            scripted(script) as port,
            device(port, tmp_path / "box") as client,
        ):
            for text in ("good", "bad", "good"):
                await client.publish("t", text, qos=1)
            await client.flush()
            assert client.statistics()["outbox_refused"] == 1

    uvloop.run(main())
    assert "refused" in caplog.text


def test_one_file_belongs_to_one_client(tidegate_broker: BrokerThread, tmp_path: Path) -> None:
    async def main() -> None:
        port = tidegate_broker.port
        async with device(port, tmp_path / "box"):
            with pytest.raises(OutboxError):
                await device(port, tmp_path / "box").connect()
        async with device(port, tmp_path / "box") as client:
            await client.publish("t", qos=1)
        with pytest.raises(OutboxError):
            await device(port, tmp_path / "missing" / "box").connect()

    uvloop.run(main())


def test_a_request_is_not_kept_for_a_later_process(tidegate_broker: BrokerThread, tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE), device(tidegate_broker.port, tmp_path / "outbox") as client:
            with pytest.raises(NoResponder):
                await client.request("nobody", "?")

            async def answer(question: Message) -> None:
                await client.respond(question, question.text.upper())

            await client.subscribe("somebody", qos=1, callback=answer)
            assert (await client.request("somebody", "yes")).text == "YES"

    uvloop.run(main())


def test_an_outbox_needs_a_name_for_its_client(tmp_path: Path) -> None:
    with pytest.raises(ClientError):
        Client("127.0.0.1", outbox=tmp_path / "box")


def test_qos_0_does_not_pass_through_the_outbox(tidegate_broker: BrokerThread, tmp_path: Path) -> None:
    async def main() -> None:
        async with device(tidegate_broker.port, tmp_path / "box") as client:
            await client.subscribe("t")
            await client.publish("t", "now")
            async with asyncio.timeout(DEADLINE):
                assert (await anext(client.messages)).text == "now"
            assert client.statistics()["outbox_messages"] == 0

    uvloop.run(main())


def test_a_client_that_connects_again_after_a_refusal_sends_everything_once(tmp_path: Path) -> None:
    received: list[bytes] = []
    connections = 0

    async def script(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        if connections < 3:
            await peer.accept(reason_code=0x86)
            return
        await peer.accept()
        while isinstance(packet := await peer.receive(), Publish):
            received.append(packet.payload)
            peer.send(Puback(packet_identifier=packet.packet_identifier or 0))

    async def main() -> None:
        async with asyncio.timeout(DEADLINE), scripted(script) as port:
            async with device(free_port(), tmp_path / "box") as client:
                for number in range(3):
                    await client.publish("t", str(number), qos=1)
            client = device(port, tmp_path / "box")
            for _ in range(2):
                with pytest.raises(ConnectRefused):
                    await client.connect()
            await client.connect()
            await client.publish("t", "3", qos=1)
            await client.flush()
            assert received == [b"0", b"1", b"2", b"3"]
            assert client.statistics()["outbox_messages"] == 0
            await client.disconnect()

    uvloop.run(main())


def test_a_file_that_others_use_too_is_no_obstacle(tidegate_broker: BrokerThread, tmp_path: Path) -> None:
    file = tmp_path / "application.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, text)")
        db.execute("INSERT INTO notes (text) VALUES ('ours')")
        db.commit()

    async def main() -> None:
        async with asyncio.timeout(DEADLINE), device(tidegate_broker.port, file) as client:
            await client.publish("t", "x", qos=1)
            await client.flush()

    uvloop.run(main())


def test_whatever_fails_in_the_file_is_told(tidegate_broker: BrokerThread, tmp_path: Path) -> None:
    file = tmp_path / "box"
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, colour TEXT)")
        db.commit()

    async def main() -> None:
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(OutboxError):
                await device(tidegate_broker.port, file).connect()
            with pytest.raises(OutboxError):  # SQLite refuses this one with a ValueError
                await Client("127.0.0.1", outbox="a\0b", client_id="device").connect()

    uvloop.run(main())
