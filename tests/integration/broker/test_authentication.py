"""Who is let in: authenticators that answer at once, later, or fail; extended authentication; anonymous clients."""

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass, field

import pytest

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tidegate.broker import Listener
from tidegate.broker.hooks import AuthenticationMethod, ConnectRequest, Exchange, Hooks, Verdict
from tidegate.mqtt import Auth, Connack, Connect, Pingreq, Pingresp, Publish, ReasonCode
from tidegate.mqtt.properties import Property
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

BAD_PASSWORD = ReasonCode.BAD_USER_NAME_OR_PASSWORD


def judge(request: ConnectRequest) -> Verdict:
    if request.password == b"sesame":
        return Verdict(user=request.username)
    return Verdict(reason_code=BAD_PASSWORD, reason="no")


@dataclass
class AtOnce:
    asked: list[ConnectRequest] = field(default_factory=list)

    def authenticate(self, request: ConnectRequest) -> Verdict:
        self.asked.append(request)
        return judge(request)


@dataclass
class Later:
    """Answers when the test says so."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0

    def authenticate(self, request: ConnectRequest) -> Awaitable[Verdict]:
        return self._answer(request)

    async def _answer(self, request: ConnectRequest) -> Verdict:
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        return judge(request)


class FailsAtOnce:
    def authenticate(self, request: ConnectRequest) -> Verdict:
        if request.username == "good":
            return Verdict(user="good")
        raise RuntimeError("the directory is on fire")


class FailsLater:
    async def _fail(self, request: ConnectRequest) -> Verdict:
        return FailsAtOnce().authenticate(request)

    def authenticate(self, request: ConnectRequest) -> Awaitable[Verdict]:
        return self._fail(request)


@dataclass
class Rounds:
    """A toy exchange: the server sends a number, the client answers with its successor, `rounds` times."""

    rounds: int
    final: ReasonCode
    next: int = 0

    def step(self, data: bytes | None) -> bytes | Verdict:
        if self.next and data != b"%d" % self.next:
            return Verdict(reason_code=ReasonCode.NOT_AUTHORIZED, reason="wrong number")
        if self.next == self.rounds:
            return Verdict(user="counted", data=b"bye", reason_code=self.final)
        self.next += 1
        return b"%d" % (self.next - 1)


@dataclass
class Counting:
    rounds: int = 2
    name: str = "counting"
    final: ReasonCode = ReasonCode.SUCCESS
    started: int = 0

    def start(self, request: ConnectRequest) -> Exchange:
        self.started += 1
        if request.username == "broken":
            raise RuntimeError("cannot start")
        return Rounds(self.rounds, self.final)


def with_method(method: AuthenticationMethod) -> Hooks:
    return Hooks(methods=(method,))


def auth(
    data: bytes, code: ReasonCode = ReasonCode.CONTINUE_AUTHENTICATION, method: str = "counting"
) -> Auth:
    return Auth(
        reason_code=code,
        properties={Property.AUTHENTICATION_METHOD: method, Property.AUTHENTICATION_DATA: data},
    )


def begin(client: RawClient, *, username: str | None = None, method: str = "counting") -> None:
    client.send(
        Connect(
            client_id="c",
            username=username,
            properties={Property.AUTHENTICATION_METHOD: method},
            keep_alive=60,
        )
    )


def finish(client: RawClient, rounds: int = 2) -> Connack:
    for number in range(rounds):
        asked = client.expect(Auth, reason_code=ReasonCode.CONTINUE_AUTHENTICATION)
        assert asked.properties[Property.AUTHENTICATION_DATA] == b"%d" % number
        client.send(auth(b"%d" % (number + 1)))
    return client.expect(Connack)


@pytest.mark.parametrize("version", [4, 5])
def test_an_authenticator_lets_in_and_refuses(start_broker: StartBroker, dial: Dial, version: int) -> None:
    door = AtOnce()
    broker = start_broker(hooks=Hooks(authenticator=door), listeners=[Listener(name="front", port=0)])
    good, bad = dial(broker, version), dial(broker, version)
    assert good.connect("good", username="u", password=b"sesame").reason_code == ReasonCode.SUCCESS
    refusal = bad.connect("bad", username="u", password=b"guess")
    assert refusal.reason_code == BAD_PASSWORD
    if version == 5:
        assert refusal.properties == {Property.REASON_STRING: "no"}
    bad.expect_closed()
    request = door.asked[0]
    assert (request.client_id, request.username, request.version, request.listener) == (
        "good",
        "u",
        version,
        "front",
    )
    assert request.peer.startswith("127.0.0.1:")
    assert "sesame" not in repr(request)
    assert broker.call(lambda: broker.broker.core.sessions["good"].user) == "u"
    assert broker.statistics()["connects_refused"] == 1


def test_a_late_answer_keeps_what_the_client_sent_meanwhile(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    door = Later()
    broker = start_broker(hooks=Hooks(authenticator=door))
    client = dial(broker)
    client.send(Connect(client_id="c", password=b"sesame"))
    client.send(Pingreq())
    until(lambda: door.waiting == 1)
    broker.call(door.gate.set)
    client.expect(Connack, reason_code=ReasonCode.SUCCESS)
    client.expect(Pingresp)


def test_a_late_refusal_refuses(start_broker: StartBroker, dial: Dial, until: Until) -> None:
    door = Later()
    broker = start_broker(hooks=Hooks(authenticator=door))
    client = dial(broker)
    client.send(Connect(client_id="c", password=b"guess"))
    until(lambda: door.waiting == 1)
    broker.call(door.gate.set)
    client.expect(Connack, reason_code=BAD_PASSWORD)
    client.expect_closed()


def test_an_answer_that_never_comes_ends_with_the_connect_timeout_and_leaves_nothing(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    door = Later()
    broker = start_broker(hooks=Hooks(authenticator=door), connect_timeout=0.3)
    client = dial(broker)
    client.send(Connect(client_id="c", password=b"sesame"))
    assert client.expect_closed() is None
    assert broker.statistics()["handshakes"] == 0
    until(lambda: door.waiting == 0, 2.0)


def test_a_client_that_leaves_before_its_answer_is_not_connected(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    door = Later()
    broker = start_broker(hooks=Hooks(authenticator=door))
    client = dial(broker)
    client.send(Connect(client_id="c", password=b"sesame"))
    until(lambda: door.waiting == 1)
    client.close()
    until(lambda: broker.statistics()["handshakes"] == 0)
    broker.call(door.gate.set)
    until(lambda: door.waiting == 0)
    assert (broker.statistics()["sessions"], broker.statistics()["connections"]) == (0, 0)


def test_clients_that_wait_for_their_answer_cannot_together_exceed_max_connections(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    door = Later()
    broker = start_broker(hooks=Hooks(authenticator=door), max_connections=2)
    clients = [dial(broker) for _ in range(3)]
    for number, client in enumerate(clients):
        client.send(Connect(client_id=f"c{number}", password=b"sesame"))
    until(lambda: door.waiting == 3)
    broker.call(door.gate.set)
    codes = sorted(client.expect(Connack).reason_code for client in clients)
    assert codes == [ReasonCode.SUCCESS, ReasonCode.SUCCESS, ReasonCode.QUOTA_EXCEEDED]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("at once"),
        "later",
    ],
)
def test_a_failing_authenticator_refuses_that_client_and_no_other(
    start_broker: StartBroker, dial: Dial, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "tidegate.broker")
    door = FailsAtOnce() if kind == "at once" else FailsLater()
    broker = start_broker(hooks=Hooks(authenticator=door))
    before, bad, after = dial(broker), dial(broker), dial(broker)
    before.connect("before", username="good")
    assert bad.connect("bad", username="bad").reason_code == ReasonCode.UNSPECIFIED_ERROR
    bad.expect_closed()
    assert after.connect("after", username="good").reason_code == ReasonCode.SUCCESS
    assert before.barrier() == []
    assert broker.statistics()["handshakes"] == 0


def test_a_refusal_with_a_long_text_reaches_a_client_that_takes_only_small_packets(
    start_broker: StartBroker, dial: Dial
) -> None:
    class Talkative:
        def authenticate(self, request: ConnectRequest) -> Verdict:
            return Verdict(reason_code=ReasonCode.BANNED, reason="x" * 500)

    broker = start_broker(hooks=Hooks(authenticator=Talkative()))
    client = dial(broker)
    connack = client.connect("c", properties={Property.MAXIMUM_PACKET_SIZE: 100})
    assert (connack.reason_code, connack.properties) == (ReasonCode.BANNED, {})


@pytest.mark.parametrize("version", [4, 5])
def test_anonymous_clients_are_refused_where_the_listener_says_so(
    start_broker: StartBroker, dial: Dial, version: int
) -> None:
    broker = start_broker(
        listeners=[Listener(port=0, allow_anonymous=False), Listener(port=0, allow_anonymous=True)]
    )
    closed, open_ = (endpoint.port for endpoint in broker.call(lambda: broker.broker.endpoints))
    assert dial(broker, version, port=closed).connect("a").reason_code == ReasonCode.NOT_AUTHORIZED
    assert dial(broker, version, port=open_).connect("b").reason_code == ReasonCode.SUCCESS


def test_an_exchange_of_several_rounds_lets_the_client_in(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(hooks=with_method(Counting()))
    client = dial(broker)
    begin(client)
    connack = finish(client)
    assert connack.reason_code == ReasonCode.SUCCESS
    assert connack.properties[Property.AUTHENTICATION_METHOD] == "counting"
    assert connack.properties[Property.AUTHENTICATION_DATA] == b"bye"
    assert broker.call(lambda: broker.broker.core.sessions["c"].user) == "counted"


def test_an_exchange_can_be_refused_at_any_step(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(hooks=with_method(Counting()))
    client = dial(broker)
    begin(client)
    client.expect(Auth)
    client.send(auth(b"7"))
    client.expect(Connack, reason_code=ReasonCode.NOT_AUTHORIZED)
    client.expect_closed()
    assert broker.statistics()["sessions"] == 0


def test_an_unknown_method_is_refused_and_a_changed_one_is_an_error(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(hooks=with_method(Counting()))
    client = dial(broker)
    begin(client, method="guessing")
    client.expect(Connack, reason_code=ReasonCode.BAD_AUTHENTICATION_METHOD)
    client = dial(broker)
    begin(client)
    client.expect(Auth)
    client.send(auth(b"1", method="guessing"))
    client.expect(Connack, reason_code=ReasonCode.PROTOCOL_ERROR)


def connected(broker: BrokerThread, dial: Dial) -> RawClient:
    client = dial(broker)
    begin(client)
    assert finish(client).reason_code == ReasonCode.SUCCESS
    return client


def test_a_connected_client_authenticates_again_while_its_traffic_goes_on(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(hooks=with_method(Counting()))
    client = connected(broker, dial)
    client.subscribe("t")
    client.send(auth(b"", ReasonCode.RE_AUTHENTICATE))
    client.expect(Auth, reason_code=ReasonCode.CONTINUE_AUTHENTICATION)
    client.publish("t", b"meanwhile")
    client.expect(Publish, payload=b"meanwhile")
    client.send(auth(b"1"))
    client.expect(Auth, reason_code=ReasonCode.CONTINUE_AUTHENTICATION)
    client.send(auth(b"2"))
    done = client.expect(Auth, reason_code=ReasonCode.SUCCESS)
    assert done.properties[Property.AUTHENTICATION_DATA] == b"bye"
    client.send(auth(b"3"))
    ended = client.expect_closed()
    assert ended is not None and ended.reason_code == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "code",
    [
        ReasonCode.NOT_AUTHORIZED,
        pytest.param(BAD_PASSWORD),
    ],
)
def test_a_failed_re_authentication_ends_the_connection_and_its_bookkeeping(
    start_broker: StartBroker, dial: Dial, until: Until, code: ReasonCode
) -> None:
    method = Counting(rounds=0)
    broker = start_broker(hooks=with_method(method))
    client = dial(broker)
    begin(client)
    client.expect(Connack)
    method.final = code
    client.send(auth(b"", ReasonCode.RE_AUTHENTICATE))
    ended = client.expect_closed()
    assert ended is not None and ended.reason_code == ReasonCode.NOT_AUTHORIZED
    until(lambda: broker.statistics()["connections"] == 0, 2.0)


def test_re_authentication_needs_the_method_of_connect(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(hooks=with_method(Counting()))
    plain = dial(broker)
    plain.connect("plain")
    plain.send(auth(b"", ReasonCode.RE_AUTHENTICATE))
    ended = plain.expect_closed()
    assert ended is not None and ended.reason_code == ReasonCode.PROTOCOL_ERROR


def test_a_method_that_fails_refuses_that_client_and_no_other(
    start_broker: StartBroker, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "tidegate.broker")
    broker = start_broker(hooks=with_method(Counting()))
    good = connected(broker, dial)
    bad = dial(broker)
    begin(bad, username="broken")
    bad.expect(Connack, reason_code=ReasonCode.UNSPECIFIED_ERROR)
    bad.expect_closed()
    assert good.barrier() == []
