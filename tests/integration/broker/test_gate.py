"""The gate on real sockets: who speeds up is held, real clocks are kept, and what was acknowledged is there."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tests.integration.broker.gate_traffic import PINGREQ, Reader, always, known, publish
from tidegate.broker.flow_settings import Backoff, FlowSettings, LoadLimits
from tidegate.broker.settings import Features, Limits
from tidegate.flow.backoff import Mode
from tidegate.mqtt import Connack, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, ReasonCode
from tidegate.mqtt.properties import Properties, Property
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

DAY: Properties = {Property.SESSION_EXPIRY_INTERVAL: 86_400}
D_MAX = 0.3
LATE = 0.2  # seconds that a busy machine may add


def follow(dial: Dial, broker: BrokerThread, topic_filter: str = "t", version: int = 5) -> Reader:
    """A subscriber that only reads; QoS 0, so that nothing waits for it."""
    client = dial(broker, version)
    client.connect(f"reader-{topic_filter}")
    client.subscribe(topic_filter)
    received = Reader(client)
    received.start()
    return received


def paper(mode: Mode = Mode.BACKPRESSURE) -> FlowSettings:
    return FlowSettings(backoff=Backoff(policy="paper", mode=mode, paper_d_max=D_MAX))


def train(client: RawClient, until: Until, received: Reader, count: int, gap: float) -> None:
    for number in range(count):
        client.send_bytes(publish(number, version=client.version))
        time.sleep(gap)
    until(lambda: len(received.numbers()) == count)


@pytest.mark.parametrize("version", [4, 5])
def test_a_publisher_that_was_regular_and_speeds_up_is_held_and_loses_nothing(
    start_broker: StartBroker, dial: Dial, until: Until, version: int
) -> None:
    broker = start_broker(flow=always(d_max=0.5))
    received = follow(dial, broker, version=version)
    others = follow(dial, broker, "other", version)
    client, other = dial(broker, version), dial(broker, version)
    client.connect("p", keep_alive=3)
    other.connect("other")
    train(client, until, received, 30, 0.03)
    assert broker.statistics()["backoff_holds"] == 0
    answers = Reader(client)
    answers.start()
    total = 330
    for start in range(30, total, 50):
        stop = start + 50
        client.send_bytes(b"".join(publish(n, n % 3, version=version) for n in range(start, stop)))
        began = time.monotonic()
        other.publish("other", b"%d " % start, qos=1)
        assert time.monotonic() - began < LATE, "nobody else waits"
        time.sleep(0.02)
    until(lambda: broker.statistics()["backoff_held"] == 1)
    began = time.monotonic()
    client.send_bytes(PINGREQ)
    until(lambda: len(answers.times(Pingresp)) == 1)
    assert time.monotonic() - began < LATE
    assert len(received.numbers()) < total
    until(lambda: len(received.numbers()) == total, 30.0)
    assert received.numbers() == list(range(total))
    until(lambda: len(answers.times(Puback)) + len(answers.times(Pubrec)) == 200)
    assert len(others.numbers()) == 6
    assert not answers.is_ended
    statistics = broker.statistics()
    assert (statistics["dropped"], statistics["backoff_shed"], statistics["backoff_refused"]) == (0, 0, 0)
    assert statistics["backoff_held_seconds"] <= 0.5 * statistics["backoff_holds"] + 1e-6


def test_a_held_client_subscribes_acknowledges_and_reads(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(flow=always(d_max=10.0))
    known(broker, p=20.0)
    client, other = dial(broker), dial(broker)
    client.connect("p", keep_alive=30)
    other.connect("other")
    client.send_bytes(publish(0))
    client.barrier()
    client.send_bytes(b"".join(publish(number) for number in range(1, 100)))
    until(lambda: broker.statistics()["backoff_held"] == 1)
    client.send_bytes(publish(100, 1))
    assert client.subscribe("own", qos=1).packet_identifier
    other.publish("own", b"1 ", qos=1)
    client.acknowledge(client.expect(Publish, topic="own"))
    assert client.barrier() == [], "the message that is held is not acknowledged"
    assert broker.call(lambda: len(broker.broker.core.sessions["p"].inflight)) == 0
    assert broker.statistics()["backoff_held"] == 1


@pytest.mark.parametrize("qos", [0, 1])
def test_a_client_that_publishes_says_goodbye_and_closes_is_heard(
    start_broker: StartBroker, dial: Dial, until: Until, qos: int
) -> None:
    """Without reading answers it would not get them, but what it sent is handed on all the same."""
    broker = start_broker(flow=always(d_max=0.4))
    known(broker, p=20.0)
    received = follow(dial, broker)
    client = dial(broker)
    client.connect("p")
    client.send_bytes(publish(0))
    client.barrier()
    client.send_bytes(b"".join(publish(number) for number in range(1, 100)))
    until(lambda: broker.statistics()["backoff_held"] == 1)
    client.send_bytes(b"".join(publish(number, qos) for number in range(100, 150)) + b"\xe0\x00")
    client.close()
    until(lambda: broker.statistics()["connections"] == 1, 10.0)
    until(lambda: len(received.numbers()) == 150)
    assert received.numbers() == list(range(150))


def test_a_flood_that_harms_nobody_is_not_held(start_broker: StartBroker, dial: Dial, until: Until) -> None:
    never = LoadLimits(high_wait=3_600.0, overload_wait=3_600.0)
    broker = start_broker(flow=FlowSettings(load=never, backoff=Backoff(floor_rate=0)))
    received = follow(dial, broker)
    client = dial(broker)
    client.connect("p")
    train(client, until, received, 20, 0.03)
    total = 20_020
    for start in range(20, total, 1_000):
        client.send_bytes(b"".join(publish(number) for number in range(start, start + 1_000)))
    until(lambda: len(received.numbers()) == total, 20.0)
    statistics = broker.statistics()
    assert (statistics["backoff_holds"], statistics["dropped"]) == (0, 0)
    assert received.numbers() == list(range(total))


def test_what_was_acknowledged_in_a_flood_is_there_after_a_restart(
    start_broker: StartBroker, dial: Dial, until: Until, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"data": tmp_path, "flow": always(d_max=0.3)}
    with BrokerThread(
        limits=Limits(connection_rate=0), features=Features(sys_interval=0), **options
    ) as broker:
        known(broker, p=500.0)
        reader, client = dial(broker), dial(broker)
        reader.connect("reader", properties=DAY)
        reader.subscribe("t", qos=2)
        reader.disconnect()
        client.connect("p")
        answers = Reader(client)
        answers.start()
        for start in range(0, 900, 100):  # within Receive Maximum
            client.send_bytes(b"".join(publish(n, 1 + n % 2, size=100) for n in range(start, start + 100)))
            time.sleep(0.01)
        until(lambda: broker.statistics()["backoff_holds"] > 1 and len(answers.times(Puback)) > 100, 20.0)
        client.close()
        until(lambda: broker.statistics()["connections"] == 0)
    acknowledged = sorted(
        (p.packet_identifier or 0) - 1 for _, p in answers.packets if isinstance(p, Puback | Pubrec)
    )
    again = start_broker(data=tmp_path)
    back = dial(again)
    back.connect("reader", clean_start=False, properties=DAY)
    found: list[int] = []
    while True:
        try:
            packet = back.receive(1.0)
        except TimeoutError:
            break
        if isinstance(packet, Publish):
            found.append(int(packet.payload.split(b" ")[0]))
            if packet.qos == 1:
                back.send(Puback(packet_identifier=packet.packet_identifier or 0))
            else:
                back.send(Pubrec(packet_identifier=packet.packet_identifier or 0))
        elif isinstance(packet, Pubrel):
            back.send(Pubcomp(packet_identifier=packet.packet_identifier))
    assert set(acknowledged) <= set(found)
    assert found == list(range(len(found))), "in order, none twice, none left out"


# -- the paper's rule, with real clocks ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.BACKPRESSURE, Mode.HOLD])
@pytest.mark.parametrize("version", [4, 5])
def test_paper_trains_on_four_messages_and_delays_the_fifth_if_it_is_fast(
    start_broker: StartBroker, dial: Dial, until: Until, mode: Mode, version: int
) -> None:
    broker = start_broker(flow=paper(mode))
    received = follow(dial, broker, version=version)
    client = dial(broker, version)
    client.connect("p")
    train(client, until, received, 4, 0.15)
    time.sleep(0.5)  # well below the trained pace, whatever the machine did to it
    sent = time.monotonic()
    client.send_bytes(publish(4, version=version))
    until(lambda: 4 in received.numbers())
    assert received.times(Publish)[4] - sent < LATE
    sent = time.monotonic()
    client.send_bytes(publish(5, version=version))
    until(lambda: 5 in received.numbers())
    assert D_MAX - 0.01 <= received.times(Publish)[5] - sent < D_MAX + LATE
    assert received.numbers() == list(range(6))


def test_paper_hold_acknowledges_now_and_delivers_later_even_without_the_publisher(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(flow=paper(Mode.HOLD))
    known(broker, p=0.5)
    received = follow(dial, broker)
    client = dial(broker)
    client.connect("p")
    client.publish("t", b"0 ", qos=1)
    sent = time.monotonic()
    client.publish("t", b"1 ", qos=1)
    client.publish("t", b"2 ", qos=2)
    assert time.monotonic() - sent < LATE
    client.send_bytes(publish(3))
    client.disconnect()
    until(lambda: len(received.numbers()) == 4)
    assert received.times(Publish)[1] - sent >= D_MAX - 0.01
    assert received.numbers() == [0, 1, 2, 3]


def test_paper_hold_with_a_data_folder_does_not_acknowledge_before_it_delivers(
    start_broker: StartBroker, dial: Dial, until: Until, tmp_path: Path
) -> None:
    """What is acknowledged must survive a crash, and what waits in memory would not."""
    broker = start_broker(flow=paper(Mode.HOLD), data=tmp_path)
    known(broker, p=0.5)
    received = follow(dial, broker)
    client = dial(broker)
    client.connect("p")
    client.publish("t", b"0 ", qos=1)
    sent = time.monotonic()
    client.publish("t", b"1 ", qos=1)
    assert D_MAX - 0.01 <= time.monotonic() - sent < D_MAX + LATE
    until(lambda: received.numbers() == [0, 1])


def test_paper_drop_refuses_version_5_and_lets_3_1_1_wait(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(flow=paper(Mode.DROP))
    known(broker, new=0.5, old=0.5)
    received = follow(dial, broker)
    new, old = dial(broker, 5), dial(broker, 4)
    new.connect("new", keep_alive=1)
    old.connect("old", keep_alive=1)
    new.publish("t", b"0 ", qos=1)
    for qos in (1, 2):
        answer = new.publish("t", b"66 ", qos=qos)
        assert isinstance(answer, Puback | Pubrec)
        assert answer.reason_code == ReasonCode.QUOTA_EXCEEDED
    new.send_bytes(publish(67) + publish(68))
    old.publish("t", b"1 ", qos=1)
    old.publish("t", b"2 ", qos=1)
    old.publish("t", b"3 ", qos=2)
    until(lambda: len(received.numbers()) == 4)
    assert received.numbers() == [0, 1, 2, 3]
    assert broker.statistics()["backoff_refused"] == 4


def test_new_settings_let_a_held_publisher_go_at_once(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(flow=always(d_max=60.0))
    known(broker, p=20.0)
    received = follow(dial, broker)
    client = dial(broker)
    client.connect("p")
    client.send_bytes(publish(0))
    client.barrier()
    client.send_bytes(b"".join(publish(number) for number in range(1, 100)))
    until(lambda: broker.statistics()["backoff_held"] == 1)
    client.send_bytes(b"".join(publish(number, number % 2) for number in range(100, 5_000)))
    began = time.monotonic()
    broker.call(
        lambda: broker.broker.apply(
            Limits(connection_rate=0), Features(), FlowSettings(backoff=Backoff(policy="off"))
        )
    )
    until(lambda: len(received.numbers()) == 5_000, 20.0)
    assert time.monotonic() - began < 20.0
    assert received.numbers() == list(range(5_000))
    assert broker.statistics()["backoff_held"] == 0


def test_who_left_under_suspicion_is_granted_little(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(flow=always(d_max=1.0))
    known(broker, p=20.0)

    def granted() -> tuple[RawClient, int]:
        client = dial(broker)
        answer: Connack = client.connect("p")
        return client, answer.properties[Property.RECEIVE_MAXIMUM]

    client, before = granted()
    client.send_bytes(publish(0))
    client.barrier()
    client.send_bytes(b"".join(publish(number) for number in range(1, 100)))
    until(lambda: broker.statistics()["backoff_held"] == 1)
    client.close()
    until(lambda: broker.statistics()["connections"] == 0)
    client, after = granted()
    assert (before, after) == (1_024, 16)
    for number in range(1, 17):  # it may use what it was granted, and no more [MQTT5-3.3.4-9]
        client.send_bytes(publish(number, 2))
    until(lambda: broker.call(lambda: len(broker.broker.core.sessions["p"].inbound or ())) == 16, 10.0)
    client.send_bytes(publish(17, 2))
    goodbye = client.expect_closed()
    assert goodbye is not None
    assert goodbye.reason_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
