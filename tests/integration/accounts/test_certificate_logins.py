"""Client certificates over real TLS: whose are taken, what they name, and those that must not get in."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.accounts.conftest import Serve, Served, Write
from tidegate.accounts import CertificateIdentity
from tidegate.broker import Listener
from tidegate.client import Client, ConnectRefused, SubscribeRefused
from tidegate.errors import TidegateError
from tidegate.mqtt import ReasonCode
from tidegate.net.tls import client_context, server_context
from tidegate.testing.certificates import Authority, Issued, make_authority

RIGHTS = "user device-7\ntopic devices/7/#\nuser seven.example\ntopic san/#\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "ca")


TLSServe = Callable[..., Served]


@pytest.fixture
def serve_tls(serve: Serve, authority: Authority, rights_file: Write) -> TLSServe:
    server = authority.issue("server")

    def start(*, required: bool = True, **settings: Any) -> Served:
        context = server_context(
            server.certificate,
            server.key,
            client_ca=authority.certificate,
            require_client_certificate=required,
        )
        settings.setdefault("certificate_identity", CertificateIdentity.CN)
        settings.setdefault("rights_file", rights_file(RIGHTS))
        return serve(listeners=[Listener(port=0, tls=context)], **settings)

    return start


def subscribe(
    served: Served, authority: Authority, issued: Issued | None, topic_filter: str, **options: Any
) -> None:
    """Connect with a certificate and subscribe; whatever goes wrong is raised."""

    async def main() -> None:
        files = (issued.certificate, issued.key) if issued is not None else (None, None)
        context = client_context(authority.certificate, *files)
        address = f"mqtts://localhost:{served.port}"
        async with Client(address, ssl=context, operation_timeout=5.0, **options) as client:
            await client.subscribe(topic_filter)

    asyncio.run(main())


def test_the_common_name_is_the_user(serve_tls: TLSServe, authority: Authority) -> None:
    served, device = serve_tls(), authority.issue("device-7")
    subscribe(served, authority, device, "devices/7/x")
    subscribe(served, authority, device, "devices/7/x", username="device-7")
    with pytest.raises(SubscribeRefused):
        subscribe(served, authority, device, "devices/8/x")


def test_a_name_in_connect_that_is_not_in_the_certificate_is_refused(
    serve_tls: TLSServe, authority: Authority
) -> None:
    # Not even with the right password of that other user.
    for options in ({"username": "device-8"}, {"username": "ada", "password": "secret"}):
        with pytest.raises(ConnectRefused) as caught:
            subscribe(serve_tls(), authority, authority.issue("device-7"), "devices/7/x", **options)
        assert caught.value.reason_code == ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_an_alternative_name_is_the_user_if_so_set(serve_tls: TLSServe, authority: Authority) -> None:
    served = serve_tls(certificate_identity=CertificateIdentity.SAN)
    device = authority.issue("device-7", hosts=("seven.example", "192.0.2.7"))
    subscribe(served, authority, device, "san/x")
    with pytest.raises(SubscribeRefused):
        subscribe(served, authority, device, "devices/7/x")


def test_a_certificate_alone_proves_nothing_if_so_set(serve_tls: TLSServe, authority: Authority) -> None:
    served = serve_tls(certificate_identity=CertificateIdentity.OFF)
    with pytest.raises(ConnectRefused):
        subscribe(served, authority, authority.issue("device-7"), "devices/7/x")


def test_an_expired_certificate_does_not_get_in(serve_tls: TLSServe, authority: Authority) -> None:
    with pytest.raises((TidegateError, OSError)):
        subscribe(serve_tls(), authority, authority.issue("device-7", valid_days=-1), "devices/7/x")


def test_a_certificate_of_another_authority_of_the_same_name_does_not_get_in(
    serve_tls: TLSServe, authority: Authority, tmp_path: Path
) -> None:
    impostor = make_authority(tmp_path / "impostor")
    for required in (True, False):
        with pytest.raises((TidegateError, OSError)):
            subscribe(serve_tls(required=required), authority, impostor.issue("device-7"), "devices/7/x")


def test_a_self_signed_certificate_does_not_get_in(
    serve_tls: TLSServe, authority: Authority, tmp_path: Path
) -> None:
    own = make_authority(tmp_path / "own", "device-7")
    key = tmp_path / "own.key"
    key.touch(mode=0o600)
    key.write_bytes(_private_pem(own))
    with pytest.raises((TidegateError, OSError)):
        subscribe(serve_tls(), authority, Issued(own.certificate, key), "devices/7/x")


def _private_pem(authority: Authority) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return authority._key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_without_a_certificate_the_password_decides(serve_tls: TLSServe, authority: Authority) -> None:
    served = serve_tls(required=False)
    with pytest.raises(ConnectRefused):
        subscribe(served, authority, None, "devices/7/x")
    with pytest.raises(ConnectRefused):
        subscribe(served, authority, None, "devices/7/x", username="device-7", password="x")
    with pytest.raises(SubscribeRefused):  # let in as ada, who has no rights
        subscribe(served, authority, None, "devices/7/x", username="ada", password="secret")


def test_a_required_certificate_cannot_be_replaced_by_a_password(
    serve_tls: TLSServe, authority: Authority
) -> None:
    with pytest.raises((TidegateError, OSError)) as caught:
        subscribe(serve_tls(), authority, None, "devices/7/x", username="ada", password="secret")
    assert not isinstance(caught.value, SubscribeRefused)
