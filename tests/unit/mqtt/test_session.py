"""The QoS machines one step at a time."""

import sys

import pytest

from tidegate.mqtt.errors import Blame, PacketIdentifierInUse, ReceiveMaximumExceeded
from tidegate.mqtt.session import Inbound, InFlight, Outbound, PubrecOutcome


def has_room(outbound: Outbound[str]) -> bool:
    """A function, because a type checker takes a property that was false once to stay false."""
    return outbound.can_send


def is_resending(outbound: Outbound[str]) -> bool:
    return outbound.is_resending


def test_a_qos_1_exchange_ends_with_puback() -> None:
    outbound: Outbound[str] = Outbound()
    identifier = outbound.send("hello", 1)
    assert len(outbound) == 1
    assert identifier in outbound
    assert outbound.on_puback(identifier) == "hello"
    assert outbound.on_puback(identifier) is None
    assert len(outbound) == 0


def test_a_qos_2_exchange_takes_pubrec_and_pubcomp() -> None:
    outbound: Outbound[str] = Outbound()
    identifier = outbound.send("hello", 2)
    assert not outbound.on_pubcomp(identifier)
    assert outbound.on_pubrec(identifier) == (PubrecOutcome.SEND_PUBREL, "hello")
    assert outbound.on_pubrec(identifier) == (PubrecOutcome.SEND_PUBREL, None)
    assert identifier in outbound
    assert outbound.on_pubcomp(identifier)
    assert not outbound.on_pubcomp(identifier)
    assert identifier not in outbound


def test_a_pubrec_with_an_error_ends_the_exchange() -> None:
    outbound: Outbound[str] = Outbound(receive_maximum=1)
    identifier = outbound.send("hello", 2)
    assert outbound.on_pubrec(identifier, 0x97) == (PubrecOutcome.ENDED, "hello")
    assert has_room(outbound)
    assert outbound.on_pubrec(identifier) == (PubrecOutcome.UNKNOWN, None)


def test_acknowledgements_of_unknown_identifiers_are_reported() -> None:
    outbound: Outbound[str] = Outbound()
    assert outbound.on_puback(7) is None
    assert outbound.on_pubrec(7) == (PubrecOutcome.UNKNOWN, None)
    assert not outbound.on_pubcomp(7)


def test_an_acknowledgement_of_the_other_qos_changes_nothing() -> None:
    outbound: Outbound[str] = Outbound()
    first, second = outbound.send("one", 1), outbound.send("two", 2)
    assert outbound.on_pubrec(first) == (PubrecOutcome.UNKNOWN, None)
    assert not outbound.on_pubcomp(first)
    assert outbound.on_puback(second) is None
    assert list(outbound) == [InFlight(first, 1, "one"), InFlight(second, 2, "two")]


def test_identifiers_wrap_and_skip_those_in_use() -> None:
    outbound: Outbound[str] = Outbound()
    kept = outbound.send("kept", 1)
    assert kept == 1
    for expected in range(2, 65_536):
        assert outbound.next_identifier() == expected
    assert outbound.next_identifier() == 2
    assert outbound.send("next", 1, also_in_use={3, 4}) == 5


def test_all_identifiers_in_use_is_a_local_error() -> None:
    outbound: Outbound[str] = Outbound()
    for _ in range(65_535):
        outbound.send("x", 1)
    assert not has_room(outbound)
    with pytest.raises(PacketIdentifierInUse) as caught:
        outbound.next_identifier()
    assert caught.value.blame is Blame.LOCAL


def test_receive_maximum_limits_what_is_in_flight() -> None:
    outbound: Outbound[str] = Outbound(receive_maximum=2)
    first, second = outbound.send("one", 1), outbound.send("two", 2)
    assert not has_room(outbound)
    with pytest.raises(ReceiveMaximumExceeded) as caught:
        outbound.send("three", 1)
    assert caught.value.blame is Blame.LOCAL
    outbound.on_pubrec(second)
    assert not has_room(outbound)
    outbound.on_puback(first)
    assert has_room(outbound)


def test_unfinished_exchanges_are_sent_again_in_order() -> None:
    outbound: Outbound[str] = Outbound()
    a, b, c, d = (outbound.send(text, qos) for text, qos in [("a", 2), ("b", 1), ("c", 2), ("d", 1)])
    outbound.on_pubrec(c)
    outbound.on_pubrec(a)
    outbound.reconnect()
    assert not has_room(outbound)
    assert list(outbound.resend()) == [
        InFlight(b, 1, "b"),
        InFlight(d, 1, "d"),
        InFlight(c, 2, None),
        InFlight(a, 2, None),
    ]
    assert has_room(outbound)
    assert list(outbound.resend()) == []


def test_a_smaller_receive_maximum_spreads_the_resending() -> None:
    outbound: Outbound[str] = Outbound()
    identifiers = [outbound.send(text, 1) for text in "abc"]
    outbound.reconnect(receive_maximum=2)
    assert [item.message for item in outbound.resend()] == ["a", "b"]
    assert is_resending(outbound)
    assert list(outbound.resend()) == []
    outbound.on_puback(identifiers[0])
    assert not has_room(outbound)
    assert [item.message for item in outbound.resend()] == ["c"]
    assert not is_resending(outbound)
    assert not has_room(outbound)
    outbound.on_puback(identifiers[1])
    assert has_room(outbound)


def test_an_acknowledgement_saves_a_message_from_being_sent_again() -> None:
    outbound: Outbound[str] = Outbound()
    identifiers = [outbound.send(text, 1) for text in "ab"]
    outbound.reconnect(receive_maximum=1)
    assert [item.message for item in outbound.resend()] == ["a"]
    assert outbound.on_puback(identifiers[1]) == "b"
    assert not is_resending(outbound)


def test_outbound_state_survives_storing_and_restoring() -> None:
    outbound: Outbound[str] = Outbound()
    first, second = outbound.send("one", 2), outbound.send("two", 1)
    outbound.on_pubrec(first)
    restored: Outbound[str] = Outbound()
    for item in outbound:
        restored.restore(*item)
    assert list(restored) == list(outbound) == [InFlight(second, 1, "two"), InFlight(first, 2, None)]
    with pytest.raises(PacketIdentifierInUse):
        restored.restore(first, 1, "again")
    restored.clear()
    assert len(restored) == 0


def test_a_qos_2_identifier_is_new_once_until_it_is_released() -> None:
    inbound = Inbound()
    assert inbound.receive(5)
    assert not inbound.receive(5)
    assert 5 in inbound
    assert inbound.release(5)
    assert not inbound.release(5)
    assert inbound.receive(5)


def test_the_receiver_notices_when_its_receive_maximum_is_exceeded() -> None:
    inbound = Inbound(receive_maximum=2)
    inbound.receive(1)
    inbound.receive_qos1()
    assert not inbound.receive(1)
    with pytest.raises(ReceiveMaximumExceeded) as caught:
        inbound.receive(2)
    assert caught.value.blame is Blame.PEER
    with pytest.raises(ReceiveMaximumExceeded):
        inbound.receive_qos1()
    inbound.puback_sent()
    assert inbound.receive(2)


def test_identifiers_of_an_earlier_connection_take_no_quota() -> None:
    inbound = Inbound(receive_maximum=1)
    inbound.receive(1)
    inbound.reconnect(receive_maximum=1)
    assert inbound.receive(2)
    with pytest.raises(ReceiveMaximumExceeded):
        inbound.receive(3)
    assert inbound.release(1)
    assert inbound.release(2)
    assert inbound.receive(3)
    with pytest.raises(ReceiveMaximumExceeded):
        inbound.receive(4)


def test_inbound_state_survives_storing_and_restoring() -> None:
    inbound = Inbound()
    for identifier in (9, 3):
        inbound.receive(identifier)
    restored = Inbound()
    for identifier in inbound:
        restored.restore(identifier)
    assert list(restored) == [3, 9]
    restored.clear()
    assert len(restored) == 0


def test_an_idle_pair_holds_no_containers() -> None:
    outbound: Outbound[str] = Outbound()
    outbound.on_puback(outbound.send("x", 1))
    inbound = Inbound()
    inbound.receive(1)
    inbound.release(1)
    for machine in (outbound, inbound):
        values = [getattr(machine, slot) for slot in type(machine).__slots__]
        assert all(value is None or isinstance(value, int) for value in values)
        assert sys.getsizeof(machine) <= 64
