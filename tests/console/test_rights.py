"""Who gets in, what another site's page can do (nothing), and what a console refuses to be started as."""

import http.client
import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.conftest import CLEAN, DEADLINE, Console, OpenPage, StartConsole
from tidegate.accounts.password_edit import delete_account, set_password
from tidegate.cli.status import ExitStatus
from tidegate.testing import BrokerThread
from tidegate.testing.certificates import make_authority
from tidegate.testing.raw import RawClient


class Visitor:
    """Something that speaks HTTP, and keeps the cookie it is given."""

    def __init__(self, console: Console) -> None:
        self.port = console.port
        self.cookie = ""
        self.token = ""
        self.headers: dict[str, str] = {}

    def ask(
        self, method: str, path: str, content: object = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            sent.setdefault("Cookie", self.cookie)
        body = None
        if content is not None:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            sent.setdefault("Content-Type", "application/json")
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)) as connection:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            self.headers = {name.lower(): value for name, value in answer.getheaders()}
            text = answer.read()
        if "set-cookie" in self.headers:
            self.cookie = self.headers["set-cookie"].partition(";")[0]
        found = (
            json.loads(text) if self.headers.get("content-type", "").startswith("application/json") else {}
        )
        self.token = found.get("token", self.token)
        return answer.status, found

    def act(self, name: str = "release", **headers: str) -> int:
        return self.ask("POST", f"/api/actions/{name}", {"client": "x"}, **headers)[0]


@pytest.fixture(scope="module")
def node() -> Any:
    with BrokerThread() as broker:
        yield broker


@pytest.fixture(scope="module")
def open_console(node: BrokerThread) -> Any:
    console = Console(node.port)
    yield console
    console.stop()


@pytest.fixture(scope="module")
def closed_console(node: BrokerThread, password_file: Path) -> Any:
    console = Console(node.port, "--accounts", password_file, "--operator", "ada")
    yield console
    console.stop()


def test_every_answer_ties_the_browsers_hands(open_console: Console) -> None:
    visitor = Visitor(open_console)
    for path in ("/", "/static/js/main.js", "/api/session", "/nowhere"):
        visitor.ask("GET", path)
        policy = visitor.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert visitor.headers["x-content-type-options"] == "nosniff"
    visitor.ask("GET", "/api/session")
    assert visitor.headers["cache-control"] == "no-store"


def test_the_cookie_is_for_this_page_alone(open_console: Console) -> None:
    visitor = Visitor(open_console)
    visitor.ask("GET", "/api/session")
    cookie = visitor.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
    ],
)
def test_requests_that_another_site_made_are_refused(open_console: Console, headers: dict[str, str]) -> None:
    visitor = Visitor(open_console)
    visitor.ask("GET", "/api/session")
    for method, path in (("GET", "/api/history"), ("GET", "/api/live"), ("POST", "/api/actions/release")):
        assert visitor.ask(method, path, b"{}" if method == "POST" else None, **headers)[0] == 403
    assert visitor.act(X_Tidegate_Token=visitor.token, **headers) == 403


def test_an_action_needs_cookie_and_token(open_console: Console) -> None:
    visitor = Visitor(open_console)
    assert visitor.act() == 401
    visitor.ask("GET", "/api/session")
    assert visitor.act() == 403
    assert visitor.act(X_Tidegate_Token="guess") == 403
    assert visitor.act(X_Tidegate_Token=visitor.token) == 409  # the node says that there is no such publisher
    other = Visitor(open_console)
    other.ask("GET", "/api/session")
    assert visitor.act(X_Tidegate_Token=other.token) == 403


def test_an_action_of_a_room_that_is_not_there_is_refused(open_console: Console) -> None:
    visitor = Visitor(open_console)
    visitor.ask("GET", "/api/session")
    status, answer = visitor.ask("POST", "/api/actions/policy-rollback", {}, X_Tidegate_Token=visitor.token)
    assert (status, answer["error"]) == (409, "No folder of policy snapshots was named.")
    assert "--policy" in answer["hint"]
    assert visitor.ask("GET", "/api/policy")[0] == 200  # a page says so in its own words


def test_too_much_and_nonsense_are_refused_in_words(open_console: Console) -> None:
    visitor = Visitor(open_console)
    visitor.ask("GET", "/api/session")
    token = {"X_Tidegate_Token": visitor.token}
    assert visitor.ask("POST", "/api/actions/release", b"x" * 70_000, **token)[0] == 413
    status, answer = visitor.ask("POST", "/api/actions/release", b"nonsense", **token)
    assert (status, answer["error"]) == (409, "client is missing.")
    status, answer = visitor.ask("POST", "/api/actions/reboot", {}, **token)
    assert (status, answer["error"]) == (409, "There is no such action.")
    assert visitor.ask("GET", "/static/../app.py")[0] == 404
    assert visitor.ask("GET", "/reports/x/..%2f..%2fpyproject.toml")[0] in (200, 404)
    assert visitor.ask("POST", "/api/actions/release", b"[" * 60_000, **token)[0] == 409


def test_wrong_passwords_and_strangers_stay_outside(closed_console: Console) -> None:
    visitor = Visitor(closed_console)
    for path in (
        "/api/session",
        "/api/history",
        "/api/live",
        "/api/publishers",
        "/api/policy",
        "/api/reports",
    ):
        assert visitor.ask("GET", path)[0] == 401
    for user, password in (("ada", "secret-b"), ("eve", "secret-a"), ("ada", "")):
        status, answer = visitor.ask("POST", "/api/login", {"user": user, "password": password})
        assert (status, answer["error"]) == (401, "User name or password is wrong.")
    # A form of another site cannot send JSON, and is not heard.
    form = b"user=ada&password=secret-a"
    kind = {"Content_Type": "application/x-www-form-urlencoded"}
    assert visitor.ask("POST", "/api/login", form, **kind)[0] == 400
    assert visitor.cookie == ""


def test_half_a_character_is_no_password(closed_console: Console) -> None:
    for user, password in (("ada", "\ud800"), ("\ud800", "secret-a")):
        status, _ = Visitor(closed_console).ask("POST", "/api/login", {"user": user, "password": password})
        assert status == 400


def test_guessing_is_slowed_down_whatever_address_is_claimed(
    node: BrokerThread, start_console: StartConsole, password_file: Path
) -> None:
    visitor = Visitor(start_console(node, "--accounts", password_file))
    seconds = 0.0
    for number in range(14):
        if seconds > 0.5:
            break
        began = time.monotonic()
        guess = {"user": "ada", "password": f"guess-{number}"}
        assert visitor.ask("POST", "/api/login", guess, X_Forwarded_For=f"10.0.0.{number}")[0] == 401
        seconds = time.monotonic() - began
    assert seconds > 0.5


def test_roles_come_from_the_console_and_end_with_the_session(closed_console: Console) -> None:
    ada, bob = Visitor(closed_console), Visitor(closed_console)
    assert ada.ask("POST", "/api/login", {"user": "ada", "password": "secret-a"})[1]["role"] == "operator"
    assert bob.ask("POST", "/api/login", {"user": "bob", "password": "secret-b"})[1]["role"] == "viewer"
    assert bob.act(X_Tidegate_Token=bob.token) == 403
    assert ada.act(X_Tidegate_Token=ada.token) == 409
    assert ada.ask("POST", "/api/logout", {}, X_Tidegate_Token=ada.token)[0] == 200
    ada.cookie = ada.cookie or "x=y"
    assert ada.ask("GET", "/api/history")[0] == 401


def test_roles_come_from_the_rights_file_too(
    node: BrokerThread, start_console: StartConsole, password_file: Path, tmp_path: Path
) -> None:
    rights = tmp_path / "rights.txt"
    rights.write_text("group operators\nmember bob\ntopic write $tide/control/#\n")
    console = start_console(node, "--accounts", password_file, "--rights", rights)
    for user, password, role in (("ada", "secret-a", "viewer"), ("bob", "secret-b", "operator")):
        assert (
            Visitor(console).ask("POST", "/api/login", {"user": user, "password": password})[1]["role"]
            == role
        )


def test_a_deleted_account_is_out_at_once(
    node: BrokerThread, start_console: StartConsole, tmp_path: Path
) -> None:
    accounts = tmp_path / "accounts.txt"
    for user in ("ada", "eve"):
        set_password(accounts, user, b"secret")
    visitor = Visitor(start_console(node, "--accounts", accounts))
    visitor.ask("POST", "/api/login", {"user": "eve", "password": "secret"})
    assert visitor.ask("GET", "/api/history")[0] == 200
    delete_account(accounts, "eve")
    end = time.monotonic() + DEADLINE
    while visitor.ask("GET", "/api/history")[0] != 401:
        assert time.monotonic() < end


def test_people_log_in_and_out_on_the_page(closed_console: Console, open_page: OpenPage) -> None:
    page = open_page(closed_console)
    page.get_by_label("User name").fill("bob")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert").first).to_have_text("User name or password is wrong.")
    page.get_by_label("Password").fill("secret-b")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#who")).to_have_text("bob, viewer")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("User name")).to_be_visible()


def test_a_logout_elsewhere_ends_questions_too(
    node: BrokerThread, closed_console: Console, open_page: OpenPage
) -> None:
    with RawClient(node.port) as meter:
        meter.connect("meter")
        meter.publish("t", b"1", qos=1)
        page = open_page(closed_console, "publishers")
        page.get_by_label("User name").fill("ada")
        page.get_by_label("Password").fill("secret-a")
        page.get_by_role("button", name="Log in").click()
        page.locator(".vrow", has_text="meter").click()
        page.get_by_role("button", name="Release").click()
        page.evaluate(
            """async () => {
              const { token } = await (await fetch("/api/session")).json();
              const headers = { "Content-Type": "application/json", "X-Tidegate-Token": token };
              await fetch("/api/logout", { method: "POST", headers, body: "{}" });
            }"""
        )
        expect(page.get_by_label("User name")).to_be_visible()
        expect(page.locator("dialog")).to_have_count(0)


def test_a_settings_file_that_makes_no_sense_is_a_fault_of_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[limits]\nmax_connections = 'many'\n")
    result = subprocess.run(
        [sys.executable, "-m", "tidegate", "console", "--http-port", "0", "--config", str(path)],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (result.returncode, result.stdout) == (ExitStatus.CONFIG, "")
    assert "max_connections" in result.stderr


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--http-host", "0.0.0.0"], "there are no accounts"),
        (["--http-host", "0.0.0.0", "--accounts", "ACCOUNTS"], "in the clear"),
        (["--http-host", "example.org"], "there are no accounts"),
        (["--operator", "ada"], "operators need accounts"),
        (["--http-cert", "CERT"], "belong together"),
        (["--accounts", "/nowhere/accounts.txt"], "no such file"),
        (["--http-cert", "/nowhere/server.crt", "--http-key", "/nowhere/server.key"], "/nowhere/server"),
        (["--http-cert", "CERT", "--http-key", "CERT"], "accounts.txt"),
    ],
)
def test_a_console_that_strangers_could_use_is_not_started(
    password_file: Path, arguments: list[str], words: str
) -> None:
    given = [
        {"ACCOUNTS": str(password_file), "CERT": str(password_file)}.get(each, each) for each in arguments
    ]
    result = subprocess.run(
        [sys.executable, "-m", "tidegate", "console", "--http-port", "0", *given],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (result.returncode, result.stdout) == (ExitStatus.STARTUP, "")
    error, hint = result.stderr.splitlines()
    assert words in error
    assert hint.startswith("hint: ")


def test_with_accounts_and_a_certificate_it_is_served_over_tls(
    node: BrokerThread, start_console: StartConsole, password_file: Path, tmp_path: Path, open_page: OpenPage
) -> None:
    certificate = make_authority(tmp_path).issue("localhost")
    console = start_console(
        node, "--accounts", password_file, "--http-host", "0.0.0.0",
        "--http-cert", certificate.certificate, "--http-key", certificate.key,
    )  # fmt: skip
    assert console.url.startswith("https://")
    page = open_page(console, ignore_https_errors=True)
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill("secret-a")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#who")).to_have_text("ada, viewer")
    # Browsers would keep it for all ports of the host, also for what is not ours.
    answer = page.request.get(f"{console.url}/")
    assert "strict-transport-security" not in answer.headers
    (cookie,) = page.context.cookies()
    assert cookie["name"].startswith("__Host-")
    assert cookie["secure"]
