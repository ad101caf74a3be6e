"""MQTT 5 sections 3.15 and 4.12: AUTH and enhanced authentication."""

import pytest

from tests.conformance.conftest import Broker, BrokerWith, Dial
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import MALFORMED, PROTOCOL_ERROR, expect_disconnect, expect_refusal
from tests.conformance.v5.wire import frame, prefixed, receive_frames_until_closed
from tidegate.broker.hooks import ConnectRequest, Exchange, Hooks, Verdict
from tidegate.mqtt import Auth, Connack, Connect, Property, Publish, ReasonCode
from tidegate.testing.raw import RawClient

CONTINUE = ReasonCode.CONTINUE_AUTHENTICATION
METHOD = Property.AUTHENTICATION_METHOD
DATA = Property.AUTHENTICATION_DATA


class Reverse:
    """Asks for its challenge backwards, twice; anything else is a wrong answer."""

    name = "reverse"

    def start(self, request: ConnectRequest) -> Exchange:
        return ReverseExchange()


class ReverseExchange:
    def __init__(self) -> None:
        self.challenges = [b"abc", b"xyz"]
        self.expected: bytes | None = None

    def step(self, data: bytes | None) -> bytes | Verdict:
        if self.expected is not None and data != self.expected:
            return Verdict(reason_code=ReasonCode.NOT_AUTHORIZED, reason="wrong answer " * 20)
        if not self.challenges:
            return Verdict(user="reversed", data=b"welcome")
        challenge = self.challenges.pop(0)
        self.expected = challenge[::-1]
        return challenge


@pytest.fixture
def server(broker_with: BrokerWith) -> Broker:
    return broker_with(hooks=Hooks(methods=(Reverse(),)))


def begin(client: RawClient) -> Auth:
    client.send(Connect(client_id="prover", properties={METHOD: "reverse"}))
    return client.expect(Auth)


def answer(client: RawClient, data: bytes, *, reason_code: int = CONTINUE, method: str = "reverse") -> None:
    client.send(Auth(reason_code=reason_code, properties={METHOD: method, DATA: data}))


def authenticate(client: RawClient) -> Connack:
    begin(client)
    answer(client, b"cba")
    client.expect(Auth)
    answer(client, b"zyx")
    return client.expect(Connack)


@pytest.mark.parametrize("first_byte", [0xF1, 0xF2, 0xF8])
def test_MQTT_3_15_1_1_an_auth_with_flags_is_malformed(server: Broker, dial: Dial, first_byte: int) -> None:
    client = dial(to=server)
    authenticate(client)
    client.send_bytes(frame(first_byte, b"\x19\x0a\x15" + prefixed("reverse")))
    expect_disconnect(client, MALFORMED)


def test_MQTT_3_15_2_1_the_reason_codes_of_the_server_are_those_of_auth(server: Broker, dial: Dial) -> None:
    client = dial(to=server)
    assert begin(client).reason_code == CONTINUE
    answer(client, b"cba")
    assert client.expect(Auth).reason_code == CONTINUE
    answer(client, b"zyx")
    client.expect(Connack)
    answer(client, b"", reason_code=ReasonCode.RE_AUTHENTICATE)
    client.expect(Auth, reason_code=CONTINUE)
    answer(client, b"cba")
    client.expect(Auth, reason_code=CONTINUE)
    answer(client, b"zyx")
    client.expect(Auth, reason_code=ReasonCode.SUCCESS)


@pytest.mark.parametrize("reason_code", [0x01, 0x17, 0x80])
def test_MQTT_3_15_2_1_an_undefined_reason_code_of_the_client_is_refused(
    server: Broker, dial: Dial, reason_code: int
) -> None:
    client = dial(to=server)
    authenticate(client)
    client.send_bytes(frame(0xF0, bytes((reason_code,)) + b"\x0a\x15" + prefixed("reverse")))
    expect_disconnect(client, MALFORMED, PROTOCOL_ERROR)


def small_exchange(client: RawClient) -> list[bytes]:
    """Everything the server sends during an exchange that fails, to a client with little room."""
    properties = {
        METHOD: "reverse",
        Property.MAXIMUM_PACKET_SIZE: 24,
        Property.USER_PROPERTY: [("k", "v" * 99)],
    }
    client.send(Connect(client_id="prover", properties=properties))
    client.send(Auth(reason_code=CONTINUE, properties={METHOD: "reverse", DATA: b"wrong"}))
    return receive_frames_until_closed(client)


def test_MQTT_3_15_2_2_a_reason_string_does_not_make_auth_too_large(server: Broker, dial: Dial) -> None:
    auth = [frame for frame in small_exchange(dial(to=server)) if frame[0] == 0xF0]
    assert len(auth) == 1
    assert len(auth[0]) <= 24


def test_MQTT_3_15_2_3_user_properties_do_not_make_auth_too_large(server: Broker, dial: Dial) -> None:
    assert not any(b"v" * 10 in frame for frame in small_exchange(dial(to=server)))


def test_MQTT_4_12_0_1_an_unknown_method_is_refused(server: Broker, dial: Dial) -> None:
    client = dial(to=server)
    client.send(Connect(client_id="prover", properties={METHOD: "sideways"}))
    assert expect_refusal(client, ReasonCode.BAD_AUTHENTICATION_METHOD, ReasonCode.NOT_AUTHORIZED)


def test_MQTT_4_12_0_2_a_challenge_has_the_code_to_continue(server: Broker, dial: Dial) -> None:
    auth = begin(dial(to=server))
    assert auth.reason_code == CONTINUE
    assert auth.properties[DATA] == b"abc"


@pytest.mark.parametrize("reason_code", [ReasonCode.SUCCESS, ReasonCode.RE_AUTHENTICATE])
def test_MQTT_4_12_0_3_an_answer_with_another_code_is_refused(
    server: Broker, dial: Dial, reason_code: int
) -> None:
    client = dial(to=server)
    begin(client)
    answer(client, b"cba", reason_code=reason_code)
    expect_refusal(client, PROTOCOL_ERROR, ReasonCode.NOT_AUTHORIZED)


def test_MQTT_4_12_0_4_a_wrong_answer_is_refused(server: Broker, dial: Dial) -> None:
    client = dial(to=server)
    begin(client)
    answer(client, b"wrong")
    assert expect_refusal(client, ReasonCode.NOT_AUTHORIZED)


def test_MQTT_4_12_0_5_the_method_is_named_in_every_auth_and_in_connack(server: Broker, dial: Dial) -> None:
    client = dial(to=server)
    assert begin(client).properties[METHOD] == "reverse"
    answer(client, b"cba")
    assert client.expect(Auth).properties[METHOD] == "reverse"
    answer(client, b"zyx")
    connack = client.expect(Connack, reason_code=ReasonCode.SUCCESS)
    assert connack.properties[METHOD] == "reverse"
    assert connack.properties[DATA] == b"welcome"


def test_MQTT_4_12_0_5_an_auth_with_another_method_is_refused(server: Broker, dial: Dial) -> None:
    client = dial(to=server)
    begin(client)
    answer(client, b"cba", method="sideways")
    expect_refusal(client, PROTOCOL_ERROR, ReasonCode.BAD_AUTHENTICATION_METHOD)


def test_MQTT_4_12_0_6_without_method_there_is_no_auth_and_none_in_connack(
    server: Broker, dial: Dial
) -> None:
    client = dial(to=server)
    connack = client.connect("plain")
    assert METHOD not in connack.properties
    assert DATA not in connack.properties
    assert client.barrier() == []


def test_MQTT_4_12_0_7_an_auth_of_a_client_without_method_closes_the_connection(
    server: Broker, join: Join
) -> None:
    client = join(to=server)
    answer(client, b"", reason_code=ReasonCode.RE_AUTHENTICATE)
    expect_disconnect(client, PROTOCOL_ERROR)


def test_MQTT_4_12_1_1_re_authentication_with_another_method_closes_the_connection(
    server: Broker, dial: Dial
) -> None:
    client = dial(to=server)
    authenticate(client)
    answer(client, b"", reason_code=ReasonCode.RE_AUTHENTICATE, method="sideways")
    expect_disconnect(client, PROTOCOL_ERROR, ReasonCode.BAD_AUTHENTICATION_METHOD)


def test_MQTT_4_12_1_2_a_failed_re_authentication_closes_the_connection(server: Broker, dial: Dial) -> None:
    client = dial(to=server)
    authenticate(client)
    answer(client, b"", reason_code=ReasonCode.RE_AUTHENTICATE)
    client.expect(Auth, reason_code=CONTINUE)
    answer(client, b"wrong")
    expect_disconnect(client, ReasonCode.NOT_AUTHORIZED)


def test_MQTT_4_12_1_2_messages_flow_while_a_client_authenticates_again(server: Broker, dial: Dial) -> None:
    client = dial(to=server)
    authenticate(client)
    client.subscribe("t")
    answer(client, b"", reason_code=ReasonCode.RE_AUTHENTICATE)
    client.expect(Auth, reason_code=CONTINUE)
    client.publish("t", b"meanwhile", qos=1)
    client.take(Publish, payload=b"meanwhile")
    answer(client, b"cba")
    client.expect(Auth, reason_code=CONTINUE)


@pytest.mark.parametrize("data", [b"\xc0\x00", b"\x30\x04\x00\x01t\x00"])
def test_MQTT_3_1_2_30_a_packet_other_than_auth_during_the_exchange_ends_it(
    server: Broker, dial: Dial, data: bytes
) -> None:
    client = dial(to=server)
    begin(client)
    client.send_bytes(data)
    expect_refusal(client, PROTOCOL_ERROR)
