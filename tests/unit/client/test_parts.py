"""The small parts of the client: keep alive, waits, options, fields, matching of responses."""

from random import Random
from typing import Any

import pytest

from tidegate.client.calls import Calls
from tidegate.client.errors import (
    ClientError,
    ConnectionLost,
    ConnectRefused,
    NotSupported,
    ServerDisconnected,
)
from tidegate.client.fields import message_properties
from tidegate.client.keepalive import Due, KeepAlive
from tidegate.client.limits import ServerLimits
from tidegate.client.message import Message
from tidegate.client.options import ClientOptions
from tidegate.client.reconnect import DecorrelatedJitter, is_final
from tidegate.mqtt import Property, Subscription
from tidegate.mqtt.topics import validate_topic_name
from tidegate.net.errors import DialError


def test_a_ping_is_due_before_the_interval_is_over() -> None:
    keep_alive = KeepAlive(10, 5, now=0)
    assert keep_alive.next_check() == 9
    assert keep_alive.check(8.9) is Due.NOTHING
    assert keep_alive.check(9) is Due.PING


def test_sending_alone_does_not_hide_a_dead_server() -> None:
    keep_alive = KeepAlive(10, 5, now=0)
    keep_alive.on_sent(8)
    assert keep_alive.check(9) is Due.PING
    keep_alive.on_sent(13)
    assert keep_alive.next_check() == 14
    assert keep_alive.check(14) is Due.DEAD


def test_any_byte_received_is_a_sign_of_life() -> None:
    keep_alive = KeepAlive(10, 5, now=0)
    assert keep_alive.check(9) is Due.PING
    keep_alive.on_sent(9)
    keep_alive.on_received(13)
    assert keep_alive.check(14) is Due.NOTHING
    assert keep_alive.next_check() == 18


def test_while_we_do_not_listen_silence_proves_nothing() -> None:
    keep_alive = KeepAlive(10, 5, now=0)
    for now in range(9, 100, 9):
        assert keep_alive.check(now, is_listening=False) is Due.PING
        keep_alive.on_sent(now)
        assert keep_alive.check(now + 5, is_listening=False) is Due.NOTHING


def test_keep_alive_zero_means_never() -> None:
    keep_alive = KeepAlive(0, 5, now=0)
    assert keep_alive.next_check() is None
    assert keep_alive.check(1e9) is Due.NOTHING


def test_waits_stay_between_their_bounds_grow_and_differ_between_clients() -> None:
    def delays(seed: int) -> list[float]:
        jitter = DecorrelatedJitter(0.5, 20, Random(seed))
        return [jitter.next_delay() for _ in range(200)]

    runs = [delays(seed) for seed in range(20)]
    assert all(0.5 <= delay <= 20 for run in runs for delay in run)
    assert all(run[0] <= 1.5 for run in runs)
    assert all(max(run) > 10 for run in runs)
    assert len({run[3] for run in runs}) == 20


def test_only_a_connection_that_lasted_makes_waits_short_again() -> None:
    jitter, undisturbed = DecorrelatedJitter(1, 100, Random(1)), DecorrelatedJitter(1, 100, Random(1))
    for _ in range(20):
        assert jitter.next_delay() == undisturbed.next_delay()
        jitter.on_lost(lived=0.01)
    jitter.on_lost(lived=1000)
    assert jitter.next_delay() <= 3


@pytest.mark.parametrize(
    "error, expected",
    [
        (ConnectRefused(0x86), True),
        (ConnectRefused(0x88), False),
        (ServerDisconnected(0x8E), True),
        (ServerDisconnected(0x8B), False),
        (ConnectionLost("gone"), False),
        (DialError("x", "nobody listens there"), False),
        (ValueError("a bug"), True),
    ],
)
def test_connecting_again_is_given_up_only_when_it_cannot_help(error: Exception, expected: bool) -> None:
    assert is_final(error) is expected


@pytest.mark.parametrize(
    "options",
    [
        {"protocol_version": 3},
        {"keep_alive": 65_536},
        {"receive_maximum": 0},
        {"max_in_flight": 0},
        {"protocol_version": 4, "password": "x"},
    ],
)
def test_options_that_cannot_work_are_refused_with_a_hint(options: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as caught:
        ClientOptions(**options)
    assert caught.value.hint


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(ClientOptions(username="u", password="secret"))


def test_receive_maximum_never_exceeds_the_queue() -> None:
    packet = ClientOptions(receive_maximum=500, receive_queue_size=10).connect_packet("c", clean_start=True)
    assert packet.properties[Property.RECEIVE_MAXIMUM] == 10


def test_message_fields_become_properties() -> None:
    assert message_properties(
        {"content_type": "a/b", "response_topic": None, "user_properties": (("a", "b"), ("a", "c"))}
    ) == {Property.CONTENT_TYPE: "a/b", Property.USER_PROPERTY: [("a", "b"), ("a", "c")]}
    with pytest.raises(TypeError):
        message_properties({"colour": "red"})  # type: ignore[typeddict-unknown-key]


def test_what_the_server_does_not_offer_is_refused_before_sending() -> None:
    limits = ServerLimits(
        maximum_qos=1,
        retain_available=False,
        wildcard_subscription_available=False,
        shared_subscription_available=False,
        subscription_identifier_available=False,
    )
    limits.check_publish(1, retain=False)
    limits.check_subscribe(Subscription(topic_filter="a"), None)
    with pytest.raises(NotSupported):
        limits.check_publish(2, retain=False)
    with pytest.raises(NotSupported):
        limits.check_publish(0, retain=True)
    for topic_filter, identifier in [("a/#", None), ("$share/g/a", None), ("a", 1)]:
        with pytest.raises(NotSupported):
            limits.check_subscribe(Subscription(topic_filter=topic_filter), identifier)


def test_a_response_topic_is_valid_whatever_the_client_identifier() -> None:
    for client_id in ("", "a/b", "+#", "\u00e9"):
        validate_topic_name(Calls.new_topic("prefix", client_id))


def test_a_response_nobody_waits_for_is_counted_and_kept_from_the_application() -> None:
    calls = Calls()
    calls.topic = "reply"
    assert not calls.on_message(Message(topic="other", payload=b""))
    assert calls.on_message(Message(topic="reply", payload=b""))
    assert calls.late == 1
