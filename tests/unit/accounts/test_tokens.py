"""Tokens as passwords: which keys are taken, which tokens are good, and the known ways to cheat."""

import hashlib
import hmac
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.unit.accounts.support import connect_request
from tests.unit.accounts.tokens import (
    Seconds,
    jwk,
    private_pem,
    public_pem,
    secret_jwk,
    token,
    unsigned,
    write_jwks,
)
from tidegate.accounts.errors import AccountsError
from tidegate.accounts.settings import AccountsSettings
from tidegate.accounts.token_keys import read_keys
from tidegate.accounts.tokens import TokenSource
from tidegate.broker.hooks import Verdict
from tidegate.mqtt.codes import ReasonCode

EC = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65_537, 2_048)
ED = ed25519.Ed25519PrivateKey.generate()
SECRET = b"0123456789abcdef0123456789abcdef"
ALL = ("ES256", "RS256", "PS256", "EdDSA", "HS256")


def source(path: Path, **settings: Any) -> TokenSource:
    chosen = AccountsSettings(jwt_keys=path, **settings)
    return TokenSource(read_keys(path, chosen.jwt_algorithms), chosen)


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.write_bytes(public_pem(EC))
    return path


def judge(source: TokenSource, password: bytes, **fields: Any) -> Verdict | None:
    return source.authenticate(connect_request(password=password, **fields))


def is_let_in(verdict: Verdict | None) -> bool:
    assert verdict is not None
    assert verdict.reason_code in (ReasonCode.SUCCESS, ReasonCode.BAD_USER_NAME_OR_PASSWORD)
    assert verdict.reason == ""
    return verdict.reason_code == ReasonCode.SUCCESS


def test_a_good_token_names_the_user_and_when_it_ends(pem: Path) -> None:
    ends = int(time.time()) + 60
    verdict = judge(source(pem), token(EC, exp=ends))
    assert verdict is not None and is_let_in(verdict)
    assert (verdict.user, verdict.expires) == ("ada", ends + 30.0)


@pytest.mark.parametrize("password", [b"", b"secret", b"a.b.c", b"ey.x.y", b"eyJ.eyJ.x", None])
def test_other_passwords_are_left_to_other_sources(pem: Path, password: bytes | None) -> None:
    assert source(pem).authenticate(connect_request(password=password)) is None


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({}, True),
        ({"exp": Seconds(-5)}, True),  # within the leeway
        ({"exp": Seconds(-3600)}, False),
        ({"exp": None}, False),
        ({"exp": "soon"}, False),
        ({"nbf": Seconds(3600)}, False),
        ({"nbf": Seconds(-3600)}, True),
        ({"sub": None}, False),
        ({"sub": ""}, False),
        ({"sub": "a\nb"}, False),
        ({"sub": "auth0:ada"}, True),
        ({"aud": "other"}, False),
        ({"iss": "anyone"}, True),
    ],
)
def test_claims_decide(pem: Path, claims: dict[str, Any], expected: bool) -> None:
    assert is_let_in(judge(source(pem), token(EC, **claims))) == expected


def test_a_subject_that_is_no_text_is_refused(pem: Path) -> None:
    assert not is_let_in(judge(source(pem, jwt_user_claim="name"), token(EC, name=7)))


@pytest.mark.parametrize(
    ("settings", "claims", "expected"),
    [
        ({"jwt_issuer": "us"}, {"iss": "us"}, True),
        ({"jwt_issuer": "us"}, {"iss": "them"}, False),
        ({"jwt_issuer": "us"}, {}, False),
        ({"jwt_audience": "mqtt"}, {"aud": "mqtt"}, True),
        ({"jwt_audience": "mqtt"}, {"aud": ["web", "mqtt"]}, True),
        ({"jwt_audience": "mqtt"}, {"aud": "web"}, False),
        ({"jwt_audience": "mqtt"}, {}, False),
        ({"jwt_user_claim": "name"}, {"name": "bob"}, True),
        ({"jwt_user_claim": "name"}, {}, False),
        ({"jwt_client_id_claim": "client"}, {"client": "c1"}, True),
        ({"jwt_client_id_claim": "client"}, {"client": "c2"}, False),
        ({"jwt_client_id_claim": "client"}, {}, False),
        ({"jwt_require_expiry": False}, {"exp": None}, True),
        ({"jwt_leeway": 0.0}, {"exp": Seconds(-5)}, False),
    ],
)
def test_settings_ask_for_more(
    pem: Path, settings: dict[str, Any], claims: dict[str, Any], expected: bool
) -> None:
    assert is_let_in(judge(source(pem, **settings), token(EC, **claims))) == expected


@pytest.mark.parametrize(("username", "expected"), [(None, True), ("ada", True), ("bob", False), ("", False)])
def test_a_user_name_in_connect_must_be_that_of_the_token(
    pem: Path, username: str | None, expected: bool
) -> None:
    assert is_let_in(judge(source(pem), token(EC), username=username)) == expected


def test_a_token_without_client_identifier_does_not_fit_a_client_without_one(pem: Path) -> None:
    strict = source(pem, jwt_client_id_claim="client")
    assert not is_let_in(judge(strict, token(EC, client=""), client_id=""))


def test_a_token_of_another_key_is_refused(pem: Path) -> None:
    assert not is_let_in(judge(source(pem), token(OTHER)))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_token_changed_in_any_part_is_refused(pem: Path, part: int) -> None:
    parts = token(EC).split(b".")
    changed = token(OTHER, sub="root", kid="x").split(b".")
    parts[part] = changed[part]
    assert not is_let_in(judge(source(pem), b".".join(parts)))


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "nOnE", 7, None, ["ES256"]])
def test_a_token_without_signature_is_never_good(pem: Path, algorithm: object) -> None:
    claims = {"sub": "ada", "exp": time.time() + 60}
    for signature in (b"", b"x"):
        verdict = judge(source(pem), unsigned({"alg": algorithm, "typ": "JWT"}, claims, signature))
        assert verdict is None or not is_let_in(verdict)


def test_the_public_key_is_not_taken_as_the_secret_of_an_hmac(tmp_path: Path) -> None:
    path = tmp_path / "rsa.pem"
    path.write_bytes(public_pem(RSA))
    header, claims = {"alg": "HS256", "typ": "JWT"}, {"sub": "ada", "exp": time.time() + 60}
    signed = unsigned(header, claims).rpartition(b".")[0]
    for secret in (public_pem(RSA), public_pem(RSA).strip()):
        forged = unsigned(header, claims, hmac.digest(secret, signed, hashlib.sha256))
        assert not is_let_in(judge(source(path, jwt_algorithms=ALL), forged))


def test_an_algorithm_that_is_not_allowed_is_refused_although_the_key_could(tmp_path: Path) -> None:
    path = tmp_path / "rsa.pem"
    path.write_bytes(public_pem(RSA))
    assert is_let_in(judge(source(path), token(RSA, "RS256")))
    assert not is_let_in(judge(source(path), token(RSA, "PS256")))
    assert is_let_in(judge(source(path, jwt_algorithms=("PS256",)), token(RSA, "PS256")))


def test_keys_of_a_set_are_chosen_by_name_and_kind(tmp_path: Path) -> None:
    path = write_jwks(
        tmp_path / "keys.json",
        jwk(EC, kid="one"),
        jwk(RSA, kid="two", use="sig"),
        jwk(ED, kid="three"),
        jwk(OTHER, kid="four", use="enc"),
        {"kty": "future"},
    )
    tokens = source(path)
    assert is_let_in(judge(tokens, token(EC, kid="one")))
    assert is_let_in(judge(tokens, token(EC)))
    assert is_let_in(judge(tokens, token(RSA, "RS256", kid="two")))
    assert is_let_in(judge(tokens, token(ED, "EdDSA", kid="three")))
    assert not is_let_in(judge(tokens, token(EC, kid="two")))
    assert not is_let_in(judge(tokens, token(EC, kid="none")))
    assert not is_let_in(judge(tokens, token(OTHER, kid="four")))


def test_symmetric_keys_need_a_set_and_their_algorithm(tmp_path: Path) -> None:
    path = write_jwks(tmp_path / "keys.json", secret_jwk(SECRET, kid="s"), jwk(EC, kid="e"))
    assert not is_let_in(judge(source(path), token(SECRET, "HS256")))
    assert is_let_in(judge(source(path, jwt_algorithms=ALL), token(SECRET, "HS256")))
    assert "0123" not in repr(read_keys(path, ALL))


@pytest.mark.parametrize(
    ("content", "algorithms"),
    [
        (b"", ALL),
        (b"nonsense", ALL),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", ALL),
        (private_pem(EC), ALL),
        (public_pem(EC), ("RS256",)),
        (public_pem(EC), ("none",)),
        (public_pem(EC), ("ES256", "none")),
        (public_pem(EC), ()),
        (public_pem(EC), ("HS256",)),
        (b"{", ALL),
        (b'{"keys": 7}', ALL),
        (b'{"keys": []}', ALL),
        (b'{"keys": ["x"]}', ALL),
        (b'{"keys": [{"kty": "oct", "k": "c2hvcnQ"}]}', ALL),
        (b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "d": "AA"}]}', ALL),
    ],
    ids=range(15),
)
def test_a_file_without_a_usable_key_is_refused_and_not_quoted(
    tmp_path: Path, content: bytes, algorithms: tuple[str, ...]
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(AccountsError) as caught:
        read_keys(path, algorithms)
    assert "c2hvcnQ" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccountsError, match="absent"):
        read_keys(tmp_path / "absent", ALL)


def test_several_keys_in_one_pem_file_are_all_taken(tmp_path: Path) -> None:
    path = tmp_path / "keys.pem"
    path.write_bytes(public_pem(EC) + public_pem(OTHER) + public_pem(RSA))
    tokens = source(path)
    assert all(is_let_in(judge(tokens, each)) for each in (token(EC), token(OTHER), token(RSA, "RS256")))


def test_an_overlong_token_is_refused_unread(pem: Path) -> None:
    assert not is_let_in(judge(source(pem), token(EC, filler="x" * 20_000)))
