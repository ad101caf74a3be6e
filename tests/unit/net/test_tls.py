import ssl
from pathlib import Path

import pytest

from tidegate.net.errors import TLSConfigError
from tidegate.net.tls import client_context, server_context
from tidegate.testing.certificates import make_authority


def test_server_context_defaults_to_tls_1_2_and_asks_no_client_certificate(tmp_path: Path):
    certificate, key = make_authority(tmp_path).issue("server")
    context = server_context(certificate, key)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_NONE
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION


@pytest.mark.parametrize("required, mode", [(False, ssl.CERT_OPTIONAL), (True, ssl.CERT_REQUIRED)])
def test_server_context_with_an_authority_asks_for_client_certificates(tmp_path: Path, required, mode):
    authority = make_authority(tmp_path)
    certificate, key = authority.issue("server")
    context = server_context(
        certificate, key, client_ca=authority.certificate, require_client_certificate=required
    )
    assert context.verify_mode == mode


def test_certificate_and_key_may_share_a_file(tmp_path: Path):
    certificate, key = make_authority(tmp_path).issue("server")
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    server_context(both)


def test_client_context_checks_the_server_unless_told_not_to(tmp_path: Path):
    authority = make_authority(tmp_path)
    careful = client_context(authority.certificate)
    assert (careful.check_hostname, careful.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert client_context().verify_mode == ssl.CERT_REQUIRED
    careless = client_context(insecure=True)
    assert (careless.check_hostname, careless.verify_mode) == (False, ssl.CERT_NONE)


def test_minimum_version_can_be_raised_and_unknown_ones_are_refused(tmp_path: Path):
    certificate, key = make_authority(tmp_path).issue("server")
    assert server_context(certificate, key, minimum_version="1.3").minimum_version == ssl.TLSVersion.TLSv1_3
    with pytest.raises(TLSConfigError) as caught:
        server_context(certificate, key, minimum_version="1.0")
    assert caught.value.hint


@pytest.mark.parametrize("which", ["certificate", "key", "client_ca"])
def test_missing_file_is_named(tmp_path: Path, which: str):
    authority = make_authority(tmp_path)
    certificate, key = authority.issue("server")
    missing = tmp_path / "missing.pem"
    files = {"certificate": certificate, "key": key, "client_ca": authority.certificate, which: missing}
    with pytest.raises(TLSConfigError) as caught:
        server_context(files["certificate"], files["key"], client_ca=files["client_ca"])
    assert caught.value.file == str(missing)
    assert caught.value.hint


def test_folder_in_place_of_a_file_is_named(tmp_path: Path):
    with pytest.raises(TLSConfigError) as caught:
        server_context(tmp_path)
    assert caught.value.file == str(tmp_path)


def test_key_of_another_certificate_is_named(tmp_path: Path):
    authority = make_authority(tmp_path)
    certificate, _ = authority.issue("server")
    _, other_key = authority.issue("other")
    with pytest.raises(TLSConfigError) as caught:
        server_context(certificate, other_key)
    assert caught.value.file == str(other_key)


def test_swapped_certificate_and_key_are_recognised(tmp_path: Path):
    certificate, key = make_authority(tmp_path).issue("server")
    with pytest.raises(TLSConfigError) as caught:
        server_context(key, certificate)
    assert caught.value.file == str(key)


def test_file_that_is_not_pem_is_named(tmp_path: Path):
    certificate, key = make_authority(tmp_path).issue("server")
    garbage = tmp_path / "garbage.pem"
    garbage.write_bytes(bytes(range(256)))
    for files in ((garbage, key), (certificate, garbage)):
        with pytest.raises(TLSConfigError) as caught:
            server_context(*files)
        assert caught.value.file == str(garbage)
    with pytest.raises(TLSConfigError) as caught:
        client_context(garbage)
    assert caught.value.file == str(garbage)


def test_damaged_certificate_is_named(tmp_path: Path):
    certificate, key = make_authority(tmp_path).issue("server")
    lines = certificate.read_text().splitlines()
    certificate.write_text("\n".join([lines[0], *lines[2:]]))
    with pytest.raises(TLSConfigError) as caught:
        server_context(certificate, key)
    assert caught.value.file == str(certificate)


def test_encrypted_key_needs_its_password_and_never_asks_on_the_terminal(tmp_path: Path):
    certificate, key = make_authority(tmp_path).issue("server", key_password="sesame")
    with pytest.raises(TLSConfigError) as caught:
        server_context(certificate, key)
    assert caught.value.file == str(key)
    with pytest.raises(TLSConfigError):
        server_context(certificate, key, password="wrong")
    server_context(certificate, key, password="sesame")


def test_requiring_client_certificates_without_an_authority_is_refused(tmp_path: Path):
    certificate, key = make_authority(tmp_path).issue("server")
    with pytest.raises(TLSConfigError):
        server_context(certificate, key, require_client_certificate=True)


def test_client_key_without_certificate_is_refused(tmp_path: Path):
    _, key = make_authority(tmp_path).issue("client")
    with pytest.raises(TLSConfigError) as caught:
        client_context(insecure=True, keyfile=key)
    assert caught.value.file == str(key)


def test_cipher_list_without_a_usable_cipher_is_refused(tmp_path: Path):
    certificate, key = make_authority(tmp_path).issue("server")
    with pytest.raises(TLSConfigError):
        server_context(certificate, key, ciphers="NO-SUCH-CIPHER")
