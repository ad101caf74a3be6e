"""`tidegate passwd`: accounts in a password file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidegate.errors import TidegateError


class PasswordInputError(TidegateError):
    """There is no password to be had from where it was expected."""

    def __init__(self, problem: str, hint: str) -> None:
        self.hint = hint
        super().__init__(problem)


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The password file.", dir_okay=False)],
    user: Annotated[str | None, typer.Argument(metavar="[USER]", help="The account.")] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the account.")] = False,
    list_accounts: Annotated[
        bool, typer.Option("--list", help="Print the accounts and the proofs they have.")
    ] = False,
    scram: Annotated[
        bool, typer.Option("--scram", help="Write SCRAM-SHA-256 keys, too, for MQTT 5 clients.")
    ] = False,
    iterations: Annotated[
        int, typer.Option(help="What SCRAM costs the client.", min=4_096, max=10_000_000)
    ] = 15_000,
) -> None:
    """Add an account, change its password, or remove it.

    The password is asked for twice on a terminal. A running broker takes the change at its next reload (SIGHUP).
    """
    if list_accounts:
        if user is not None or delete or password_stdin or scram:
            raise typer.BadParameter("--list takes the file and nothing else")
        _list(file)
        return
    if user is None:
        raise typer.BadParameter("which user?", param_hint="USER")
    if delete:
        if password_stdin or scram:
            raise typer.BadParameter("--delete needs no password")
        from tidegate.accounts.password_edit import delete_account

        delete_account(file, user)
        typer.echo(f"{user}: removed", err=True)
        return
    from tidegate.accounts.errors import AccountsError
    from tidegate.accounts.password_edit import set_password
    from tidegate.accounts.password_file import check_user_name

    if problem := check_user_name(user):
        raise AccountsError(problem)  # before anybody types a password
    password = _from_stdin() if password_stdin else _from_terminal(user)
    is_new = set_password(file, user, password, scram=scram, iterations=iterations)
    typer.echo(f"{user}: {'added' if is_new else 'password changed'}", err=True)


def _list(file: Path) -> None:
    from tidegate.accounts.password_file import read_password_file

    for user, account in sorted(read_password_file(file).accounts.items()):
        proofs = [name for name, has in (("password", account.password_hash), ("scram", account.scram)) if has]
        typer.echo(f"{user}\t{','.join(proofs)}")


def _from_stdin() -> bytes:
    # One line end is the shell's; anything else belongs to the password.
    data = sys.stdin.buffer.read(65_536)
    return data.removesuffix(b"\n").removesuffix(b"\r")


def _from_terminal(user: str) -> bytes:
    import getpass

    if not sys.stdin.isatty():
        raise PasswordInputError("no terminal to ask for the password", "use --password-stdin")
    first = getpass.getpass(f"Password for {user}: ")
    if getpass.getpass("Again: ") != first:
        raise PasswordInputError("the two passwords differ", "nothing was changed; try again")
    return first.encode()
