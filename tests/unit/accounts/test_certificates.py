"""Names in certificates, in the form in which Python's ssl gives them."""

from typing import Any

import pytest

from tests.unit.accounts.support import connect_request
from tidegate.accounts.certificates import CertificateSource, expiry_of, names_of
from tidegate.accounts.settings import CertificateIdentity, CertificateUsername
from tidegate.mqtt.codes import ReasonCode

CERTIFICATE: dict[str, Any] = {
    "subject": ((("organizationName", "Plant"),), (("commonName", "device-7"),)),
    "issuer": ((("commonName", "authority"),),),
    "notAfter": "Jan  1 00:00:00 2030 GMT",
    "subjectAltName": (("DNS", "seven.example"), ("IP Address", "192.0.2.7"), ("URI", "urn:device:7")),
}
CN, SAN, OFF = CertificateIdentity.CN, CertificateIdentity.SAN, CertificateIdentity.OFF
MATCH, IGNORE = CertificateUsername.MATCH, CertificateUsername.IGNORE


@pytest.mark.parametrize(
    ("identity", "names"),
    [(CN, ["device-7"]), (SAN, ["seven.example", "urn:device:7"]), (OFF, [])],
)
def test_the_chosen_part_of_a_certificate_gives_its_names(
    identity: CertificateIdentity, names: list[str]
) -> None:
    assert names_of(CERTIFICATE, identity) == names


@pytest.mark.parametrize("name", ["", "a\0b", "a:b", "\n"])
def test_a_common_name_that_cannot_be_a_user_is_none(name: str) -> None:
    assert names_of({"subject": ((("commonName", name),),)}, CN) == []


@pytest.mark.parametrize(
    ("identity", "rule", "username", "user"),
    [
        (CN, MATCH, None, "device-7"),
        (CN, MATCH, "device-7", "device-7"),
        (CN, MATCH, "device-8", None),
        (CN, MATCH, "", None),
        (CN, IGNORE, "device-8", "device-7"),
        (SAN, MATCH, None, None),  # two names and none chosen
        (SAN, MATCH, "urn:device:7", "urn:device:7"),
        (SAN, MATCH, "192.0.2.7", None),
        (SAN, IGNORE, "urn:device:7", None),
    ],
)
def test_the_user_name_in_connect_must_fit(
    identity: CertificateIdentity, rule: CertificateUsername, username: str | None, user: str | None
) -> None:
    verdict = CertificateSource(identity, rule).authenticate(
        connect_request(username=username, certificate=CERTIFICATE)
    )
    assert verdict is not None and verdict.user == user
    assert (verdict.reason_code == ReasonCode.SUCCESS) == (user is not None)


@pytest.mark.parametrize("certificate", [None, {}, {"subject": ()}])
def test_a_client_without_a_name_in_a_certificate_is_left_to_other_sources(
    certificate: dict[str, Any],
) -> None:
    assert CertificateSource(CN, MATCH).authenticate(connect_request(certificate=certificate)) is None


def test_two_common_names_are_not_guessed_between() -> None:
    certificate = {"subject": ((("commonName", "a"),), (("commonName", "b"),))}
    verdict = CertificateSource(CN, MATCH).authenticate(connect_request(certificate=certificate))
    assert verdict is not None and verdict.reason_code != ReasonCode.SUCCESS


def test_the_verdict_ends_with_the_certificate() -> None:
    assert expiry_of(CERTIFICATE) == 1_893_456_000.0
    assert expiry_of({}) is None and expiry_of({"notAfter": "never"}) is None
