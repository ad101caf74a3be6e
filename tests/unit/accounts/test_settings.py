"""Every setting of the room can be written in a file, in the environment and on the command line."""

from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

from tidegate.accounts.settings import AccountsSettings, CertificateIdentity, Source
from tidegate.settings.values import Given, convert, describe

HINTS = get_type_hints(AccountsSettings)
FIELDS = {field.name: field for field in fields(AccountsSettings)}


@pytest.mark.parametrize("name", FIELDS)
def test_a_setting_has_help_and_a_default_within_its_range(name: str) -> None:
    field = FIELDS[name]
    assert field.metadata["help"] and describe(HINTS[name], field.metadata)
    default = field.default
    given = "" if default is None else list(default) if isinstance(default, tuple) else default
    assert convert(name, Given(given, "test"), HINTS[name], field.metadata) == default


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("password_file", "/etc/accounts", Path("/etc/accounts")),
        ("certificate_identity", "san", CertificateIdentity.SAN),
        ("jwt_algorithms", "ES256, PS256", ("ES256", "PS256")),
        ("guard_failures", "0", 0),
    ],
)
def test_a_setting_can_be_written_as_text(name: str, text: str, value: object) -> None:
    given = Given(text, "test", is_text=True)
    assert convert(name, given, HINTS[name], FIELDS[name].metadata) == value


def test_every_source_is_tried_unless_somebody_says_otherwise() -> None:
    assert AccountsSettings().sources == tuple(Source)
