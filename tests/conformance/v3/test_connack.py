"""Section 3.2 of MQTT 3.1.1: what CONNACK says about the session and the connection."""

from collections.abc import Callable

import pytest

from tests.conformance.v3 import wire
from tests.conformance.v3.support import (
    BrokerWith,
    Join,
    Open,
    connect_bytes,
    everything_until_closed,
    expect_dropped,
)
from tidegate.broker.hooks import ConnectRequest, Hooks, Verdict
from tidegate.mqtt import Connack, Publish, ReasonCode

Unique = Callable[[str], str]


def test_MQTT_3_2_0_1_CONNACK_comes_before_anything_else(
    join: Join, open_connection: Open, unique: Unique, topic: str
) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 1)
    client.disconnect()
    join("publisher").publish(topic, b"waiting", 1)
    client = open_connection()
    client.send_bytes(connect_bytes(unique("client"), clean_start=False) + b"\xc0\x00")
    client.expect(Connack, session_present=True)
    client.take(Publish, payload=b"waiting")


def test_MQTT_3_2_2_1_clean_session_1_gives_session_present_0(join: Join) -> None:
    join(clean_start=False).disconnect()
    join(clean_start=True, session_present=False).disconnect()
    join(clean_start=True, session_present=False)


def test_MQTT_3_2_2_2_a_stored_session_gives_session_present_1(join: Join) -> None:
    join(clean_start=False).disconnect()
    join(clean_start=False, session_present=True).disconnect()
    join(clean_start=False, session_present=True)


def test_MQTT_3_2_2_3_no_stored_session_gives_session_present_0(join: Join) -> None:
    join(clean_start=False, session_present=False)


def test_MQTT_3_2_2_4_a_refusal_has_session_present_0(
    join: Join, open_connection: Open, unique: Unique
) -> None:
    join("client", clean_start=False).disconnect()
    client = open_connection()
    client.send_bytes(wire.connect(unique("client"), flags=0x00, level=6))
    assert everything_until_closed(client) == b"\x20\x02\x00\x01"
    join("client", clean_start=False, session_present=True)


@pytest.mark.parametrize(
    "data, answer",
    [
        (wire.connect("c", level=9), b"\x20\x02\x00\x01"),
        (wire.connect("", flags=0x00), b"\x20\x02\x00\x02"),
    ],
)
def test_MQTT_3_2_2_5_a_refusal_is_followed_by_the_end_of_the_connection(
    data: bytes, answer: bytes, open_connection: Open
) -> None:
    client = open_connection()
    client.send_bytes(data)
    assert everything_until_closed(client) == answer


@pytest.mark.parametrize(
    "reason_code, return_code",
    [
        (ReasonCode.SERVER_UNAVAILABLE, 3),
        (ReasonCode.SERVER_BUSY, 3),
        (ReasonCode.BAD_USER_NAME_OR_PASSWORD, 4),
        (ReasonCode.NOT_AUTHORIZED, 5),
        (ReasonCode.BANNED, 5),
    ],
)
def test_MQTT_3_2_2_5_a_client_that_may_not_enter_is_refused_with_a_return_code_of_the_table(
    reason_code: ReasonCode, return_code: int, open_connection: Open, broker_of: BrokerWith
) -> None:
    class Refuse:
        def authenticate(self, request: ConnectRequest) -> Verdict:
            return Verdict(reason_code=reason_code)

    client = open_connection(to=broker_of(hooks=Hooks(authenticator=Refuse())))
    client.send_bytes(wire.connect("c", "user", b"password", flags=0xC0) + b"\xc0\x00")
    assert everything_until_closed(client) == bytes([0x20, 2, 0, return_code])


def test_MQTT_3_2_2_6_a_fault_without_a_return_code_closes_without_CONNACK(open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", "wild/+/topic", b"payload", flags=0x06))
    expect_dropped(client)
