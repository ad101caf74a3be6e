"""The room put together, asked as the broker asks it; clock and files are real, sockets are not needed."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.unit.accounts.support import CHEAP, connect_request
from tests.unit.accounts.tokens import public_pem, token
from tidegate.accounts import (
    Accounts,
    AccountsError,
    AccountsSettings,
    CertificateIdentity,
    ScramClient,
)
from tidegate.accounts.passwords import hash_password
from tidegate.accounts.scram_keys import derive_keys, format_keys
from tidegate.broker.hooks import ConnectRequest, Verdict
from tidegate.mqtt.codes import ReasonCode

KEY = ec.generate_private_key(ec.SECP256R1())
SCRAM = format_keys(derive_keys("secret", b"salt" * 4, 4096))
Make = Callable[..., Accounts]


def hashed(password: str) -> str:
    return hash_password(password.encode(), **CHEAP)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "accounts").write_text(f"ada:{hashed('secret')}\nada:{SCRAM}\nbob:{hashed('other')}\n")
    (tmp_path / "accounts").chmod(0o600)
    (tmp_path / "rights").write_text("user ada\ntopic a/#\n")
    (tmp_path / "key.pem").write_bytes(public_pem(KEY))
    return tmp_path


@pytest.fixture
def make(folder: Path) -> Iterator[Make]:
    made: list[Accounts] = []

    def accounts(**settings: Any) -> Accounts:
        settings.setdefault("password_file", folder / "accounts")
        made.append(Accounts(AccountsSettings(**settings)))
        return made[-1]

    yield accounts
    for each in made:
        each.close()


def ask(accounts: Accounts, *requests: ConnectRequest) -> list[Verdict]:
    """The verdicts, one request after the other, on one loop."""
    authenticator = accounts.hooks().authenticator
    assert authenticator is not None

    async def main() -> list[Verdict]:
        verdicts = []
        for request in requests:
            answer = authenticator.authenticate(request)
            verdicts.append(await answer if inspect.isawaitable(answer) else answer)
        return verdicts

    return asyncio.run(main())


def login(user: str | None, password: str | bytes | None, **fields: Any) -> ConnectRequest:
    secret = password.encode() if isinstance(password, str) else password
    return connect_request(username=user, password=secret, **fields)


OK, BAD, NOT = ReasonCode.SUCCESS, ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED


@pytest.mark.parametrize(
    ("user", "password", "code"),
    [
        ("ada", "secret", OK),
        ("ada", "other", BAD),
        ("ada", "", BAD),
        ("ada", None, BAD),
        ("nobody", "secret", BAD),
        ("", "secret", BAD),
        (None, "secret", BAD),
        (None, None, NOT),
    ],
)
def test_the_password_file_decides(
    make: Make, user: str | None, password: str | None, code: ReasonCode
) -> None:
    [verdict] = ask(make(), login(user, password))
    assert (verdict.reason_code, verdict.user) == (code, user if code == OK else None)
    assert (verdict.reason, verdict.data) == ("", None)


def test_only_clients_that_offer_nothing_are_anonymous(make: Make) -> None:
    verdicts = ask(make(allow_anonymous=True), login(None, None), login("ada", None), login(None, "x"))
    assert [(v.reason_code, v.user) for v in verdicts] == [(OK, None), (BAD, None), (BAD, None)]


def test_nothing_is_plugged_in_that_nobody_asked_for() -> None:
    hooks = Accounts(AccountsSettings()).hooks()
    assert (hooks.authenticator, hooks.methods, hooks.authoriser) == (None, (), None)


def test_rights_alone_leave_the_listeners_to_decide_who_gets_in(folder: Path) -> None:
    hooks = Accounts(AccountsSettings(rights_file=folder / "rights")).hooks()
    assert hooks.authenticator is None and hooks.authoriser is not None


def test_a_second_login_is_answered_at_once(make: Make) -> None:
    accounts = make()
    ask(accounts, login("ada", "secret"))
    authenticator = accounts.hooks().authenticator
    assert authenticator is not None
    assert authenticator.authenticate(login("ada", "secret")) == Verdict(user="ada")
    assert accounts.statistics()["password_checks"] == 1


CERTIFICATE = {"subject": ((("commonName", "device"),),)}


def test_sources_are_asked_in_their_order(make: Make, folder: Path) -> None:
    settings = {"jwt_keys": folder / "key.pem", "certificate_identity": CertificateIdentity.CN}
    requests = [
        login(None, None, certificate=CERTIFICATE),
        login(None, token(KEY)),
        login("ada", "secret"),
        login("ada", token(KEY)),
        login("bob", token(KEY)),
        login("ada", "secret", certificate=CERTIFICATE),
    ]
    usual = ask(make(**settings), *requests)
    assert [v.user for v in usual] == ["device", "ada", "ada", "ada", None, None]
    turned = ask(make(**settings, sources=("password", "jwt", "certificate")), *requests)
    assert [v.user for v in turned] == ["device", "ada", "ada", "ada", None, "ada"]


def test_a_source_that_is_not_listed_is_not_asked(make: Make, folder: Path) -> None:
    accounts = make(jwt_keys=folder / "key.pem", sources=("jwt",))
    assert [v.user for v in ask(accounts, login("ada", "secret"), login("ada", token(KEY)))] == [None, "ada"]
    assert accounts.hooks().methods == ()


@pytest.mark.parametrize("sources", [("ldap",), ("jwt", "jwt")])
def test_a_source_that_makes_no_sense_is_refused(make: Make, sources: tuple[str, ...]) -> None:
    with pytest.raises(AccountsError):
        make(sources=sources)


# -- reload -------------------------------------------------------------------------------------------------


def test_a_reload_takes_new_accounts_rights_and_settings(make: Make, folder: Path) -> None:
    accounts = make(rights_file=folder / "rights")
    ask(accounts, login("ada", "secret"), login("bob", "other"))
    (folder / "accounts").write_text(f"ada:{hashed('new')}\ncarl:{hashed('third')}\n")
    (folder / "rights").write_text("user ada\ntopic b/#\n")
    accounts.reload()
    verdicts = ask(
        accounts, login("ada", "secret"), login("ada", "new"), login("bob", "other"), login("carl", "third")
    )
    assert [v.user for v in verdicts] == [None, "ada", None, "carl"]
    assert [accounts.still_allowed(user) for user in ("ada", "bob", "carl", "token-user", None)] == [
        False, False, True, True, False,
    ]  # fmt: skip
    accounts.reload()
    assert accounts.still_allowed("ada")  # it has logged in with the new password since


def test_an_unchanged_account_stays_and_is_still_remembered(make: Make, folder: Path) -> None:
    accounts = make()
    ask(accounts, login("ada", "secret"))
    with (folder / "accounts").open("a") as file:
        file.write(f"carl:{hashed('third')}\n")
    accounts.reload()
    assert accounts.still_allowed("ada")
    ask(accounts, login("ada", "secret"))
    assert accounts.statistics()["password_checks"] == 1


@pytest.mark.parametrize("name", ["accounts", "rights", "key.pem"])
def test_a_fault_in_any_file_keeps_all_of_the_old_state(make: Make, folder: Path, name: str) -> None:
    accounts = make(rights_file=folder / "rights", jwt_keys=folder / "key.pem")
    (folder / "accounts").write_text(f"ada:{hashed('new')}\n")
    (folder / "rights").write_text("user ada\ntopic b/#\n")
    (folder / name).write_text("nonsense")
    with pytest.raises(AccountsError) as caught:
        accounts.reload()
    assert name in str(caught.value)
    assert ask(accounts, login("ada", "secret"))[0].user == "ada"
    assert accounts.still_allowed("ada") and accounts.still_allowed("bob")
    rights = accounts.hooks().authoriser
    assert rights is not None and rights.of("ada", "").may_read("a/x")  # type: ignore[attr-defined]


def test_switching_a_whole_part_on_or_off_needs_a_restart(make: Make, folder: Path) -> None:
    accounts = make()
    for change in ({"rights_file": folder / "rights"}, {"scram": False}, {"password_file": None}):
        with pytest.raises(AccountsError, match="switched on or off"):
            accounts.reload(AccountsSettings(**({"password_file": folder / "accounts"} | change)))


def test_a_check_that_runs_while_the_file_changes_is_made_again(make: Make, folder: Path) -> None:
    accounts = make()
    authenticator = accounts.hooks().authenticator
    assert authenticator is not None

    async def main() -> Verdict:
        answer = authenticator.authenticate(login("ada", "secret"))
        assert inspect.isawaitable(answer)
        task = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        (folder / "accounts").write_text(f"ada:{hashed('new')}\n")
        accounts.reload()
        return await task

    assert asyncio.run(main()).reason_code == BAD


# -- SCRAM --------------------------------------------------------------------------------------------------


def scram(accounts: Accounts, client: ScramClient, **fields: Any) -> Verdict:
    [method] = accounts.hooks().methods
    exchange = method.start(connect_request(**fields))
    challenge = exchange.step(client.first())
    assert isinstance(challenge, bytes)
    verdict = exchange.step(client.final(challenge))
    assert isinstance(verdict, Verdict)
    return verdict


def test_scram_lets_in_who_knows_the_password_and_proves_the_server(make: Make) -> None:
    client = ScramClient("ada", "secret")
    verdict = scram(make(), client)
    assert (verdict.reason_code, verdict.user) == (OK, "ada")
    client.verify(verdict.data)


@pytest.mark.parametrize(("user", "password"), [("ada", "wrong"), ("bob", "other"), ("nobody", "secret")])
def test_scram_refuses_everyone_else_alike(make: Make, user: str, password: str) -> None:
    assert scram(make(), ScramClient(user, password)) == Verdict(reason_code=NOT)


@pytest.mark.parametrize(("username", "code"), [(None, OK), ("ada", OK), ("bob", NOT)])
def test_scram_proves_the_name_in_connect_and_no_other(
    make: Make, username: str | None, code: ReasonCode
) -> None:
    assert scram(make(), ScramClient("ada", "secret"), username=username).reason_code == code


def test_scram_steps_out_of_place_are_refused(make: Make) -> None:
    [method] = make().hooks().methods
    exchange = method.start(connect_request())
    assert exchange.step(None) == Verdict(reason_code=NOT)
    assert exchange.step(ScramClient("ada", "secret").first()) == Verdict(reason_code=NOT)


def test_scram_fails_if_the_account_changes_in_the_middle(make: Make, folder: Path) -> None:
    accounts = make()
    client = ScramClient("ada", "secret")
    [method] = accounts.hooks().methods
    exchange = method.start(connect_request())
    challenge = exchange.step(client.first())
    assert isinstance(challenge, bytes)
    (folder / "accounts").write_text(f"bob:{hashed('x')}\n")
    accounts.reload()
    assert exchange.step(client.final(challenge)) == Verdict(reason_code=NOT)


def test_scram_failures_are_counted_and_refused_in_the_end(make: Make) -> None:
    accounts = make(guard_failures=1, guard_refuse_after=3)
    for _ in range(3):
        scram(accounts, ScramClient("ada", "wrong"))
    [method] = accounts.hooks().methods
    assert method.start(connect_request()).step(ScramClient("ada", "secret").first()) == Verdict(
        reason_code=NOT
    )
    assert accounts.statistics()["logins_failed"] == 3


# -- the guard ----------------------------------------------------------------------------------------------


def test_failures_bring_delays_then_refusal_and_leave_other_addresses_alone(make: Make) -> None:
    accounts = make(guard_failures=2, guard_refuse_after=4, guard_max_delay=0.05, guard_window=3600)
    wrong = login("ada", "wrong")
    verdicts = ask(accounts, *[wrong] * 4, login("ada", "secret"), login("ada", "secret", peer="192.0.2.2:1"))
    assert [v.reason_code for v in verdicts] == [BAD] * 4 + [ReasonCode.BANNED, OK]
    counts = accounts.statistics()
    assert (counts["logins_failed"], counts["logins_delayed"], counts["logins_refused"]) == (4, 2, 1)


def test_attempts_side_by_side_do_not_slip_past_the_limit(make: Make) -> None:
    accounts = make(guard_failures=1, guard_refuse_after=5, guard_window=3600)
    authenticator = accounts.hooks().authenticator
    assert authenticator is not None

    async def main() -> list[Verdict]:
        answers = [authenticator.authenticate(login("ada", f"guess {i}")) for i in range(40)]
        return list(await asyncio.gather(*(a for a in answers if inspect.isawaitable(a))))

    codes = [verdict.reason_code for verdict in asyncio.run(main())]
    # Those that a thread was busy with when the limit was reached are still answered.
    assert 5 <= codes.count(BAD) <= 5 + 4
    assert codes.count(BAD) + codes.count(ReasonCode.BANNED) == 40


def test_too_many_checks_at_once_are_told_to_come_back(make: Make) -> None:
    accounts = make(max_pending_logins=1)
    authenticator = accounts.hooks().authenticator
    assert authenticator is not None

    async def main() -> list[Verdict]:
        answers = [authenticator.authenticate(login("ada", password)) for password in ("secret", "x")]
        return list(await asyncio.gather(*(a for a in answers if inspect.isawaitable(a))))

    assert [v.reason_code for v in asyncio.run(main())] == [OK, ReasonCode.SERVER_BUSY]


# -- nothing secret -----------------------------------------------------------------------------------------


def test_logs_tell_who_failed_and_nothing_secret(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tidegate")
    logging.getLogger("tidegate").propagate = True
    accounts = make()
    ask(accounts, login("ada", "hunter2"), login("hunter2", "ada"), login("ada", "secret"))
    scram(accounts, ScramClient("ada", "hunter2"))
    fields = [str(vars(record)) for record in caplog.records]
    assert len(fields) == 3 and not any("hunter2" in field or "$argon2" in field for field in fields)
    assert "'user': 'ada'" in fields[0] and "192.0.2.1:4711" in fields[0]


def test_a_password_file_that_others_may_read_is_named_in_the_log(
    make: Make, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("tidegate").propagate = True
    (folder / "accounts").chmod(0o644)
    make()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
