"""JSON Web Tokens as passwords (RFC 7519): signed by a key we know, in time, for this user and client.

PyJWT does the cryptography and is imported only when there is a key file (`tidegate[jwt]`).
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any

from tidegate.accounts.password_file import check_user_name
from tidegate.broker.hooks import ConnectRequest, Verdict
from tidegate.mqtt.codes import ReasonCode

if TYPE_CHECKING:
    from tidegate.accounts.settings import AccountsSettings
    from tidegate.accounts.token_keys import TokenKey

MAX_TOKEN = 16_384  # bytes; verifying takes time in proportion


class TokenSource:
    """Names the user after the token that came as password; None for passwords that are no tokens."""

    def __init__(self, keys: tuple[TokenKey, ...], settings: AccountsSettings) -> None:
        self._keys = keys
        self._settings = settings

    def __repr__(self) -> str:
        return f"TokenSource({len(self._keys)} keys)"

    def authenticate(self, request: ConnectRequest) -> Verdict | None:
        header = _header(request.password)
        if header is None:
            return None
        claims = self._verified(request.password or b"", header)
        return REFUSED if claims is None else self._judge(claims, request)

    def _verified(self, token: bytes, header: dict[str, Any]) -> dict[str, Any] | None:
        """The claims if the token is good, else None."""
        import jwt

        settings = self._settings
        algorithm, kid = header.get("alg"), header.get("kid")
        if len(token) > MAX_TOKEN or not isinstance(algorithm, str):
            return None
        for key in self._keys:
            # A key without a name may have signed any token, one with a name only those that say so.
            if algorithm not in key.algorithms or (
                key.kid is not None and kid is not None and key.kid != kid
            ):
                continue
            try:
                return dict(
                    jwt.decode(
                        token,
                        key.key,
                        algorithms=[algorithm],
                        audience=settings.jwt_audience or None,
                        issuer=settings.jwt_issuer or None,
                        leeway=settings.jwt_leeway,
                        options={
                            "require": ["exp"] if settings.jwt_require_expiry else [],
                            "enforce_minimum_key_length": True,
                        },
                    )
                )
            except jwt.InvalidSignatureError:
                continue  # another key may fit
            except (jwt.PyJWTError, ValueError, OverflowError):
                return None
        return None

    def _judge(self, claims: dict[str, Any], request: ConnectRequest) -> Verdict:
        settings = self._settings
        user = claims.get(settings.jwt_user_claim)
        # The colon is the password file's business; many issuers use it in subjects.
        if not isinstance(user, str) or check_user_name(user.replace(":", "")):
            return REFUSED
        if request.username is not None and not _is_same(user, request.username):
            return REFUSED
        if settings.jwt_client_id_claim:
            client_id = claims.get(settings.jwt_client_id_claim)
            if not isinstance(client_id, str) or not client_id or not _is_same(client_id, request.client_id):
                return REFUSED
        expiry = claims.get("exp")
        try:
            expires = None if expiry is None else float(expiry) + settings.jwt_leeway
        except (TypeError, ValueError, OverflowError):
            return REFUSED
        return Verdict(user=user, expires=expires)


REFUSED = Verdict(reason_code=ReasonCode.BAD_USER_NAME_OR_PASSWORD)


def _is_same(one: str, two: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), two.encode(errors="replace"))


def _header(password: bytes | None) -> dict[str, Any] | None:
    """The header if this is of the form of a signed token, whatever it says; None for other passwords."""
    import jwt

    if password is None or password.count(b".") != 2 or not password.startswith(b"ey"):
        return None  # "ey" is how Base64 of '{"' begins
    try:
        return dict(jwt.get_unverified_header(password))
    except (jwt.PyJWTError, ValueError):
        return None
