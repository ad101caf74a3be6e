"""Accounts and rights: who gets into a broker, and who may do what there."""

from tidegate.accounts.accounts import Accounts, Loaded, load
from tidegate.accounts.errors import AccountsError, ScramError
from tidegate.accounts.guard import LoginGuard
from tidegate.accounts.scram_client import ScramClient
from tidegate.accounts.settings import AccountsSettings, CertificateIdentity, CertificateUsername

__all__ = [
    "Accounts",
    "AccountsError",
    "AccountsSettings",
    "CertificateIdentity",
    "CertificateUsername",
    "Loaded",
    "LoginGuard",
    "ScramClient",
    "ScramError",
    "load",
]
