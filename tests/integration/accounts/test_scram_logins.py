"""SCRAM-SHA-256 by AUTH packets (MQTT 5 section 4.12), on the wire."""

from pathlib import Path

import pytest

from tests.integration.accounts.conftest import Dial, Serve, Served, Write, account
from tidegate.accounts import ScramClient
from tidegate.mqtt import Auth, Connack, Connect, Property, Publish
from tidegate.testing.raw import RawClient

METHOD, DATA = Property.AUTHENTICATION_METHOD, Property.AUTHENTICATION_DATA
CONTINUE, AGAIN, NOT_AUTHORIZED = 0x18, 0x19, 0x87


def begin(client: RawClient, first: bytes, *, username: str | None = None) -> None:
    client.send(Connect(client_id="c", username=username, properties={METHOD: "SCRAM-SHA-256", DATA: first}))


def answer(client: RawClient, data: bytes, code: int = CONTINUE) -> None:
    client.send(Auth(reason_code=code, properties={METHOD: "SCRAM-SHA-256", DATA: data}))


def log_in(client: RawClient, scram: ScramClient, *, username: str | None = None) -> Connack:
    begin(client, scram.first(), username=username)
    challenge = client.expect(Auth, reason_code=CONTINUE)
    answer(client, scram.final(challenge.properties[DATA]))
    return client.expect(Connack)


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve()


def test_both_sides_prove_that_they_know_the_password(served: Served, dial: Dial) -> None:
    client, scram = dial(served), ScramClient("ada", "secret")
    connack = log_in(client, scram)
    assert connack.reason_code == 0 and connack.properties[METHOD] == "SCRAM-SHA-256"
    scram.verify(connack.properties[DATA])
    client.barrier()


@pytest.mark.parametrize(("user", "password"), [("ada", "wrong"), ("nobody", "secret"), ("bob", "other")])
def test_everyone_else_is_refused_at_the_same_step(
    served: Served, dial: Dial, user: str, password: str
) -> None:
    connack = log_in(dial(served), ScramClient(user, password))
    assert connack.reason_code == NOT_AUTHORIZED and DATA not in connack.properties


def test_a_recorded_login_cannot_be_played_again(served: Served, dial: Dial) -> None:
    client, scram = dial(served), ScramClient("ada", "secret")
    first = scram.first()
    begin(client, first)
    final = scram.final(client.expect(Auth).properties[DATA])
    answer(client, final)
    assert client.expect(Connack).reason_code == 0
    thief = dial(served)
    begin(thief, first)
    thief.expect(Auth)
    answer(thief, final)
    assert thief.expect(Connack).reason_code == NOT_AUTHORIZED


def test_the_name_in_connect_must_be_the_proven_one(served: Served, dial: Dial) -> None:
    assert log_in(dial(served), ScramClient("ada", "secret"), username="ada").reason_code == 0
    refused = log_in(dial(served), ScramClient("ada", "secret"), username="bob")
    assert refused.reason_code == NOT_AUTHORIZED


@pytest.mark.parametrize("first", [b"", b"n,,n=ada", b"p=tls-unique,,n=ada,r=x", b"\xff" * 50])
def test_a_malformed_beginning_is_refused(served: Served, dial: Dial, first: bytes) -> None:
    client = dial(served)
    begin(client, first)
    assert client.expect(Connack).reason_code == NOT_AUTHORIZED


def test_a_client_may_prove_itself_again_as_the_same_user(served: Served, dial: Dial) -> None:
    client = dial(served)
    log_in(client, ScramClient("ada", "secret"))
    again = ScramClient("ada", "secret")
    answer(client, again.first(), AGAIN)
    challenge = client.expect(Auth, reason_code=CONTINUE)
    answer(client, again.final(challenge.properties[DATA]))
    again.verify(client.expect(Auth, reason_code=0).properties[DATA])


def test_a_client_cannot_become_another_user_nor_fail_and_stay(
    serve: Serve, dial: Dial, password_file: Path
) -> None:
    with password_file.open("a") as file:
        file.write(account("carl", "third", scram=True))
    served = serve()
    for scram in (ScramClient("carl", "third"), ScramClient("ada", "wrong")):
        client = dial(served)
        log_in(client, ScramClient("ada", "secret"))
        answer(client, scram.first(), AGAIN)
        challenge = client.expect(Auth, reason_code=CONTINUE)
        answer(client, scram.final(challenge.properties[DATA]))
        closed = client.expect_closed()
        assert closed is not None and closed.reason_code == NOT_AUTHORIZED


def test_rights_are_those_of_the_proven_user(serve: Serve, dial: Dial, rights_file: Write) -> None:
    served = serve(rights_file=rights_file("user ada\ntopic a/#\n"))
    client = dial(served)
    log_in(client, ScramClient("ada", "secret"))
    assert client.subscribe("a/b").reason_codes == [0]
    client.publish("a/b", b"x")
    client.expect(Publish, topic="a/b")
    assert client.subscribe("b").reason_codes == [NOT_AUTHORIZED]
