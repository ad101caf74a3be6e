"""Which server a client goes to when the one before does not answer."""

from tidegate.client.errors import ServerDisconnected
from tidegate.client.redirect import Whereabouts
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.properties import Property
from tidegate.net.addresses import parse_address

A, B, C = (parse_address(f"127.0.0.1:{port}") for port in (1, 2, 3))


def test_servers_are_tried_in_turn() -> None:
    places = Whereabouts(A, 5, [B, C])
    seen = []
    for _ in range(4):
        seen.append(places.current)
        places.go_home()
    assert seen == [A, B, C, A]


def test_a_client_that_was_sent_on_asks_at_home_first_when_nobody_answers_there() -> None:
    places = Whereabouts(A, 5, [B])
    sent = ServerDisconnected(ReasonCode.USE_ANOTHER_SERVER, {Property.SERVER_REFERENCE: "127.0.0.1:9"})
    assert places.follow(sent)
    assert places.current.port == 9
    places.go_home()
    assert places.current == A
    places.go_home()
    assert places.current == B


def test_a_client_with_one_address_stays_with_it() -> None:
    places = Whereabouts(A, 5)
    places.go_home()
    assert places.current == A
