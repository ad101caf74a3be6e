"""SCRAM-SHA-256: the example of RFC 7677, both ends against each other, and everything that must fail."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.accounts.errors import ScramError
from tidegate.accounts.password_file import Account, PasswordFile
from tidegate.accounts.saslprep import saslprep
from tidegate.accounts.scram_client import ScramClient
from tidegate.accounts.scram_keys import derive_keys, format_keys, parse_keys
from tidegate.accounts.scram_server import ScramServer

# RFC 7677 section 3
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

KEYS = derive_keys("pencil", SALT, 4096)
FILE = PasswordFile({"user": Account(scram=KEYS), "ünï,=": Account(scram=KEYS)}, b"s" * 32)


def test_the_client_says_what_rfc_7677_shows() -> None:
    client = ScramClient("user", "pencil", nonce=CLIENT_NONCE)
    assert client.first() == CLIENT_FIRST
    assert client.final(SERVER_FIRST) == CLIENT_FINAL
    client.verify(SERVER_FINAL)


def test_the_server_says_what_rfc_7677_shows() -> None:
    server = ScramServer(FILE, nonce=SERVER_NONCE)
    assert server.first(CLIENT_FIRST) == SERVER_FIRST
    assert server.final(CLIENT_FINAL) == SERVER_FINAL
    assert server.user == "user"


def run(client: ScramClient, server: ScramServer) -> str:
    client.verify(server.final(client.final(server.first(client.first()))))
    return server.user


@pytest.mark.parametrize("user", ["user", "ünï,=", "u\u00adser", "\uff55ser"])
def test_names_are_escaped_and_prepared(user: str) -> None:
    assert run(ScramClient(user, "pencil"), ScramServer(FILE)) == saslprep(user)


@pytest.mark.parametrize(("user", "password"), [("user", "pen"), ("nobody", "pencil"), ("", "pencil")])
def test_a_wrong_password_and_an_unknown_user_fail_at_the_same_step(user: str, password: str) -> None:
    client, server = ScramClient(user or "USER", password), ScramServer(FILE)
    final = client.final(server.first(client.first()))
    with pytest.raises(ScramError, match=r"^the proof is wrong$"):
        server.final(final)


def test_an_unknown_user_gets_the_same_salt_every_time_and_the_usual_count() -> None:
    first, again = FILE.scram_keys("nobody"), PasswordFile(FILE.accounts, b"s" * 32).scram_keys("nobody")
    assert first == again and first[1] is False
    assert (first[0].iterations, len(first[0].salt)) == (4096, len(SALT))
    assert first[0].salt != FILE.scram_keys("nobody2")[0].salt
    assert first[0].salt != PasswordFile(FILE.accounts, b"t" * 32).scram_keys("nobody")[0].salt


def test_a_recorded_exchange_cannot_be_played_again() -> None:
    client, server = ScramClient("user", "pencil"), ScramServer(FILE)
    final = client.final(server.first(client.first()))
    server.final(final)
    with pytest.raises(ScramError):
        server.final(final)
    again = ScramServer(FILE)
    again.first(client.first())
    with pytest.raises(ScramError):
        again.final(final)


def test_an_exchange_gives_one_chance() -> None:
    client, server = ScramClient("user", "pencil"), ScramServer(FILE)
    final = client.final(server.first(client.first()))
    with pytest.raises(ScramError):
        server.final(final[:-4] + b"AAA=")
    with pytest.raises(ScramError):
        server.final(final)


def test_the_last_message_cannot_come_first() -> None:
    with pytest.raises(ScramError):
        ScramServer(FILE).final(CLIENT_FINAL)


def test_a_client_that_could_bind_channels_is_served() -> None:
    server = ScramServer(FILE, nonce=SERVER_NONCE)
    server.first(b"y,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    # The header is part of what is proven: the same proof with the other header is wrong.
    with pytest.raises(ScramError):
        server.final(CLIENT_FINAL)


@pytest.mark.parametrize(
    "message",
    [
        None,
        b"",
        b"\xff\xfe",
        b"n,,",
        b"n,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"x,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,b=user,n=user,r=abc",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=user,r=abc,x=1",
        b"n,,n=us=er,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=" + b"x" * 600,
        b"n,,n=us\x07er,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,,n=user,r=abc" + b" " * 5000,
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes | None) -> None:
    with pytest.raises(ScramError):
        ScramServer(FILE).first(message)


@pytest.mark.parametrize(
    "message",
    [
        None,
        b"",
        CLIENT_FINAL.replace(b"c=biws", b"c=eSws"),
        CLIENT_FINAL.replace(b"c=biws", b"c=????"),
        CLIENT_FINAL.replace(b"r=rOpr", b"r=ROpr"),
        CLIENT_FINAL.replace(b",p=", b",x=1,p="),
        CLIENT_FINAL.replace(b"VQ=", b"VR="),
        CLIENT_FINAL[:-5],
        CLIENT_FINAL.partition(b",p=")[0],
        CLIENT_FINAL.partition(b",p=")[0] + b",p=",
        CLIENT_FINAL.partition(b",p=")[0] + b",p=AAAA",
        CLIENT_FINAL.partition(b",p=")[0] + b",p=" + base64.b64encode(b"x" * 64),
    ],
)
def test_a_wrong_last_message_is_refused(message: bytes | None) -> None:
    server = ScramServer(FILE, nonce=SERVER_NONCE)
    server.first(CLIENT_FIRST)
    with pytest.raises(ScramError):
        server.final(message)


@pytest.mark.parametrize(
    "message",
    [
        None,
        SERVER_FIRST.replace(b"r=rOpr", b"r=xOpr"),
        SERVER_FIRST.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        SERVER_FIRST.replace(b"i=4096", b"i=1"),
        SERVER_FIRST.replace(b"i=4096", b"i=999999999999"),
        SERVER_FIRST.replace(b"i=4096", b"i=many"),
        SERVER_FIRST.replace(b"s=W22", b"s=!!!"),
        b"m=x," + SERVER_FIRST,
    ],
)
def test_the_client_refuses_a_server_that_cheats(message: bytes | None) -> None:
    client = ScramClient("user", "pencil", nonce=CLIENT_NONCE)
    with pytest.raises(ScramError):
        client.final(message)


@pytest.mark.parametrize("message", [None, b"e=other-error", b"v=AAAA", SERVER_FINAL + b",x=1"])
def test_the_client_refuses_a_server_that_does_not_know_the_password(message: bytes | None) -> None:
    client = ScramClient("user", "pencil", nonce=CLIENT_NONCE)
    client.final(SERVER_FIRST)
    with pytest.raises(ScramError):
        client.verify(message)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=100), st.binary(max_size=100))
def test_any_bytes_are_refused_in_an_orderly_way(first: bytes, final: bytes) -> None:
    server = ScramServer(FILE)
    for step, data in ((server.first, first), (server.final, final)):
        with pytest.raises(ScramError):
            step(data)


def test_stored_keys_survive_their_text_form() -> None:
    assert parse_keys(format_keys(KEYS)) == KEYS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SCRAM-SHA-256$",
        format_keys(KEYS)[:-1],
        format_keys(KEYS).replace("4096", "5"),
        "SCRAM-SHA-1$4096:AA==$AA==:AA==",
    ],
)
def test_keys_that_cannot_be_right_are_refused(text: str) -> None:
    with pytest.raises(ScramError):
        parse_keys(text)


def test_keys_do_not_show_themselves() -> None:
    assert repr(KEYS) == "ScramKeys(iterations=4096)"
    assert "pencil" not in repr(ScramClient("user", "pencil"))


# RFC 4013 section 3
@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
    ],
)
def test_saslprep_gives_the_forms_of_rfc_4013(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u06271", "\u0627a\u0627", "\ue000"])
def test_saslprep_refuses_what_rfc_4013_prohibits(text: str) -> None:
    with pytest.raises(ValueError):
        saslprep(text)


def test_saslprep_of_stored_text_refuses_characters_that_are_not_assigned() -> None:
    assert saslprep("\u0221") == "\u0221"
    with pytest.raises(ValueError):
        saslprep("\u0221", is_stored=True)
