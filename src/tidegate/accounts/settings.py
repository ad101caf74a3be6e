"""What can be set about accounts: who gets in and who may do what. Times are seconds."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tidegate.broker.settings import setting


class CertificateIdentity(StrEnum):
    """Which part of a verified client certificate names the user."""

    OFF = "off"  # certificates open the connection, they do not say who it is
    CN = "cn"  # the common name of the subject
    SAN = "san"  # a DNS name, mail address or URI in the subject alternative names


class CertificateUsername(StrEnum):
    """What a user name in CONNECT means beside a certificate that names a user."""

    MATCH = "match"  # it must be the certificate's name
    IGNORE = "ignore"  # the certificate decides, whatever CONNECT says


class Source(StrEnum):
    """Where the proof of who a client is may come from."""

    CERTIFICATE = "certificate"
    JWT = "jwt"
    PASSWORD = "password"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountsSettings:
    """Who gets in and who may do what. Without any of these files, the listeners' own rules decide."""

    password_file: Path | None = setting(None, "accounts, as `tidegate passwd` writes them")
    rights_file: Path | None = setting(
        None, "who may read and write which topics; with a file, what it does not allow is denied"
    )
    sources: tuple[str, ...] = setting(
        ("certificate", "jwt", "password"), "in which order proofs of identity are tried"
    )
    allow_anonymous: bool = setting(
        False,
        "let clients in that offer no proof at all, although there are accounts; they have no user name",
    )
    certificate_identity: CertificateIdentity = setting(
        CertificateIdentity.OFF, "which part of a client certificate names the user"
    )
    certificate_username: CertificateUsername = setting(
        CertificateUsername.MATCH, "what a user name in CONNECT means beside a certificate"
    )
    scram: bool = setting(True, "offer SCRAM-SHA-256 to MQTT 5 clients if there is a password file")
    jwt_keys: Path | None = setting(
        None, "public keys that sign tokens, PEM or JWKS; a token is then accepted as password"
    )
    jwt_algorithms: tuple[str, ...] = setting(
        ("ES256", "RS256", "EdDSA"), "signature algorithms accepted; HS* only with a JWKS of symmetric keys"
    )
    jwt_issuer: str = setting("", "the `iss` a token must have; empty: any")
    jwt_audience: str = setting(
        "", "the `aud` a token must name; empty: only tokens that name none are accepted"
    )
    jwt_user_claim: str = setting("sub", "the claim that names the user")
    jwt_client_id_claim: str = setting(
        "", "a claim that must equal the client identifier; empty: tokens are good for any"
    )
    jwt_leeway: float = setting(
        30.0, "seconds by which clocks may differ when a token begins or ends", minimum=0, maximum=600
    )
    jwt_require_expiry: bool = setting(True, "refuse tokens that never expire")
    subscribe_strict: bool = setting(
        False, "refuse a subscription unless all it could match may be read; else deliveries are filtered"
    )
    sys_readable: bool = setting(False, "everyone may read $SYS, although the rights file does not say so")
    password_cache: int = setting(
        20_000, "successful logins remembered, so that reconnecting is cheap; 0: none", minimum=0
    )
    max_pending_logins: int = setting(
        256, "password checks waiting at once; more clients are told to try again later", minimum=1
    )
    guard_failures: int = setting(
        10, "failed logins of one address before it is slowed down; 0: never", minimum=0
    )
    guard_window: float = setting(60.0, "seconds in which that many failures are forgotten", minimum=1)
    guard_max_delay: float = setting(
        4.0, "longest delay of an answer; keep it under limits.connect_timeout", minimum=0, maximum=60
    )
    guard_refuse_after: int = setting(
        100, "failures not yet forgotten from which on an address is refused unheard", minimum=1
    )
