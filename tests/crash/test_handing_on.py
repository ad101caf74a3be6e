"""What a member of a group left on disk goes to others, over restarts and kills: nothing lost, nothing doubled."""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.process import BrokerProcess
from tidegate.broker.store.store import FILE_NAME
from tidegate.mqtt import Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tidegate.mqtt.properties import Properties, Property
from tidegate.testing.raw import RawClient

FILTER = "$share/g/jobs"
STAYS: Properties = {Property.SESSION_EXPIRY_INTERVAL: 3600}
SMALL = ("--set", "store.memory_queue=10", "--log-level", "warning")
COUNT = 2_000
WINDOW = 100  # messages published at a time
DEADLINE = 20.0


def leave(port: int, name: str, qos: int = 1) -> None:
    """A member that joins and leaves, with a session to come back to."""
    with RawClient(port) as member:
        member.connect(name, properties=STAYS)
        member.subscribe(FILTER, qos=qos)
        member.disconnect()


def publish(port: int, count: int, qos: int = 1, topic: str = "jobs") -> list[bytes]:
    payloads = [f"{topic} {number}".encode() for number in range(count)]
    with RawClient(port) as publisher:
        publisher.connect("")
        for start in range(0, count, WINDOW):
            for payload in payloads[start : start + WINDOW]:
                identifier = publisher.next_identifier()
                publisher.send(Publish(topic=topic, payload=payload, qos=qos, packet_identifier=identifier))
            for _ in payloads[start : start + WINDOW]:
                answer = publisher.take(Puback if qos == 1 else Pubrec)
                if qos == 2:
                    publisher.send(Pubrel(packet_identifier=answer.packet_identifier))
                    publisher.take(Pubcomp)
    return payloads


def take(member: RawClient, count: int) -> list[bytes]:
    """So many messages, and whatever more there is."""
    found: list[bytes] = []
    deadline = time.monotonic() + DEADLINE
    while len(found) < count or member.inbox:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} came"
        if not member.inbox:
            member.send(Pingreq())
            member.take(Pingresp)
            if not member.inbox:
                time.sleep(0.02)
            continue
        message = member.inbox.popleft()
        assert isinstance(message, Publish)
        found.append(message.payload)
        member.acknowledge(message)
    return found


def wait_until(condition: Callable[[], bool], data: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, {name: len(payloads) for name, payloads in queued(data).items()}
        time.sleep(0.02)


def queued(data: Path) -> dict[str, list[bytes]]:
    """Payloads in the queue of each client, as the file has them."""
    db = sqlite3.connect(data / FILE_NAME)
    found: dict[str, list[bytes]] = {}
    for client, payload in db.execute(
        "SELECT s.client_id, m.payload FROM queue q JOIN session s ON s.id = q.session_id "
        "JOIN message m ON m.id = q.message_id ORDER BY s.id, q.seq"
    ):
        found.setdefault(client, []).append(payload)
    db.close()
    return found


def test_after_a_restart_a_queue_on_disk_goes_to_members_that_are_there(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *SMALL) as broker:
        leave(broker.port, "first")
        sent = publish(broker.port, COUNT)
        broker.restart()
        with RawClient(broker.port, timeout=20) as second:
            second.connect("second", properties=STAYS)
            second.subscribe(FILTER, qos=1)
            assert take(second, COUNT) == sent


def test_what_comes_after_a_restart_for_a_member_that_does_not_goes_to_one_that_does(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *SMALL) as broker:
        leave(broker.port, "first")
        leave(broker.port, "second")
        broker.restart()
        sent = publish(broker.port, 10)  # some of them to the first, who may be about to come back
        with RawClient(broker.port, timeout=20) as second:
            second.connect("second", clean_start=False, properties=STAYS)
            assert sorted(take(second, 10)) == sorted(sent)


def test_members_that_were_connected_get_their_own_queue_after_a_restart(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *SMALL) as broker:
        with RawClient(broker.port) as first, RawClient(broker.port) as second:
            for member, name in ((first, "first"), (second, "second")):
                member.connect(name, properties=STAYS)
                member.subscribe(FILTER, qos=1)
            sent = publish(broker.port, 100)
            broker.kill()
        stored = queued(broker.data)
        broker.start()
        with RawClient(broker.port) as second, RawClient(broker.port) as first:
            for member, name in ((second, "second"), (first, "first")):
                member.connect(name, clean_start=False, properties=STAYS)
                assert take(member, len(stored[name])) == stored[name]
        assert sorted(stored["first"] + stored["second"], key=lambda payload: int(payload[5:])) == sent


def test_qos_2_that_was_sent_before_the_restart_stays_with_its_member(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *SMALL) as broker:
        with RawClient(broker.port) as first:
            first.connect("first", properties=STAYS | {Property.RECEIVE_MAXIMUM: 5})
            first.subscribe(FILTER, qos=2)
            sent = publish(broker.port, 50, qos=2)
            got = [first.take(Publish).payload for _ in range(5)]
        broker.stop()
        broker.start()
        with RawClient(broker.port, timeout=20) as second:
            second.connect("second", properties=STAYS)
            second.subscribe(FILTER, qos=2)
            rest = take(second, 45)
        with RawClient(broker.port) as first:
            first.connect("first", clean_start=False, properties=STAYS)
            assert take(first, 5) == got == sent[:5]
    assert rest == sent[5:]


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.05, 0.1])
def test_a_kill_in_the_midst_leaves_every_message_in_one_queue(tmp_path: Path, moment: float) -> None:
    with BrokerProcess(tmp_path / "data", *SMALL) as broker:
        leave(broker.port, "first")
        sent = publish(broker.port, COUNT)
        with RawClient(broker.port) as second:
            second.connect("second", properties=STAYS | {Property.RECEIVE_MAXIMUM: 1})
            second.subscribe(FILTER, qos=1)
            second.take(Publish)
            time.sleep(moment)  # any moment is as good as another: this only spreads them
            broker.kill()
        stored = queued(broker.data)
        assert stored.get("second", []) + stored.get("first", []) == sent
        broker.start()
        with RawClient(broker.port, timeout=20) as second:
            second.connect("second", clean_start=False, properties=STAYS)
            second.subscribe(FILTER, qos=1)
            assert take(second, COUNT) == sent


def test_the_queue_of_a_session_that_ended_is_given_away_also_after_a_kill(tmp_path: Path) -> None:
    settings = ("--set", "features.shared_wait=60", "--set", "limits.max_queued_messages=500")
    with BrokerProcess(tmp_path / "data", *SMALL, *settings) as broker:
        leave(broker.port, "first")
        sent = publish(broker.port, 400)
        with RawClient(broker.port) as second, RawClient(broker.port) as again:
            second.connect("second", properties=STAYS | {Property.RECEIVE_MAXIMUM: 1})
            second.subscribe("other", qos=1)
            others = publish(broker.port, 501, topic="other")  # the last one fits: it has no room for more
            second.subscribe(FILTER, qos=1)
            again.connect("first")  # a clean start: the old session is over
            wait_until(lambda: any(name.startswith("\0first") for name in queued(broker.data)), broker.data)
            broker.kill()
        assert "first" not in queued(broker.data)
        broker.start()
        with RawClient(broker.port, timeout=20) as second:
            second.connect("second", clean_start=False, properties=STAYS)
            found = take(second, 901)
            wait_until(lambda: not queued(broker.data), broker.data)  # and nothing remains of it
        assert [payload for payload in found if payload.startswith(b"other")] == others
        assert [payload for payload in found if payload.startswith(b"jobs")] == sent
