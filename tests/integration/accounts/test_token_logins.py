"""Tokens as passwords against a running broker."""

import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.integration.accounts.conftest import Dial, Serve, Served, Write
from tests.unit.accounts.tokens import jwk, token, unsigned, write_jwks
from tidegate.mqtt import Publish

KEY = ec.generate_private_key(ec.SECP256R1())
OLD = ec.generate_private_key(ec.SECP256R1())
BAD = 0x86


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_jwks(tmp_path / "keys.json", jwk(KEY, kid="new"), jwk(OLD, kid="old"))


@pytest.fixture
def served(serve: Serve, keys: Path, rights_file: Write) -> Served:
    return serve(jwt_keys=keys, rights_file=rights_file("pattern readwrite home/%u/#\n"))


@pytest.mark.parametrize("version", [4, 5])
def test_a_token_lets_in_and_its_subject_has_the_rights(served: Served, dial: Dial, version: int) -> None:
    client = dial(served, version)
    answer = client.connect("c", username="eve", password=token(KEY, sub="eve", kid="new"))
    assert answer.reason_code == 0
    client.subscribe("#")
    client.publish("home/eve/x", b"1", qos=1)
    assert client.take(Publish).topic == "home/eve/x"


def test_tokens_that_are_late_early_forged_or_someone_elses_are_refused(served: Served, dial: Dial) -> None:
    good = token(KEY, sub="eve", kid="new")
    head, body, signature = good.split(b".")
    other_body = token(KEY, sub="ada", kid="new").split(b".")[1]
    claims = {"sub": "eve", "exp": time.time() + 60}
    for password in (
        token(KEY, sub="eve", exp=time.time() - 3600),
        token(KEY, sub="eve", nbf=time.time() + 3600),
        token(KEY, sub="ada"),
        token(ec.generate_private_key(ec.SECP256R1()), sub="eve"),
        b".".join((head, other_body, signature)),
        b".".join((head, body, signature[:-4] + b"AAAA")),
        b".".join((head, body, b"")),
        unsigned({"alg": "none"}, claims),
        unsigned({"alg": "HS256"}, claims, b"x" * 32),
    ):
        answer = dial(served).connect("c", username="eve", password=password)
        assert answer.reason_code == BAD, password
    assert dial(served).connect("c", username="eve", password=good).reason_code == 0


def test_passwords_work_beside_tokens(served: Served, dial: Dial) -> None:
    assert dial(served).connect("c", username="ada", password=b"secret").reason_code == 0


def test_a_key_that_was_removed_signs_no_more_after_a_reload(served: Served, dial: Dial, keys: Path) -> None:
    ticket = token(OLD, sub="eve", kid="old")
    assert dial(served).connect("c", username="eve", password=ticket).reason_code == 0
    write_jwks(keys, jwk(KEY, kid="new"))
    served.reload()
    assert dial(served).connect("c", username="eve", password=ticket).reason_code == BAD
