"""The server without a server: requests as it gets them, one at a time."""

import asyncio
import json
import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest

from tidegate.accounts.password_edit import set_password
from tidegate.client import Client
from tidegate.console.app import ConsoleApp
from tidegate.console.sessions import Session
from tidegate.console.settings import PORT, ConsoleSettings
from tidegate.console.shared import FRESH
from tidegate.console.watch import NodeWatch

POLL = {"X-Tidegate-Poll": "1"}


class Server:
    """One console's routes, and a browser's cookie."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.app = ConsoleApp(settings, NodeWatch(lambda: Client("127.0.0.1:1")))
        self.app.is_stopping.set()  # a stream says what it has to, and ends
        self._routes = self.app.build()
        self.cookie = ""

    def log_in(self) -> Session:
        session = asyncio.run(self.app.sessions.log_in("ada", "secret", "127.0.0.1"))
        assert session is not None
        self.cookie = f"tidegate-{PORT}={session.key}"
        return session

    def ask(self, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        path, _, query = path.partition("?")
        sent = {"Host": f"127.0.0.1:{PORT}", "Cookie": self.cookie} | (headers or {})
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "http_version": "1.1", "scheme": "http", "client": ("127.0.0.1", 5000), "server": ("127.0.0.1", PORT),
        }  # fmt: skip
        answers: list[dict[str, Any]] = []

        heard = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> dict[str, Any]:
            return next(heard, None) or await asyncio.Future()  # the browser stays

        async def send(message: Any) -> None:
            answers.append(message)

        asyncio.run(self._routes(scope, receive, send))
        start, *bodies = answers
        assert start["status"] == 200
        for name, value in start["headers"]:
            if name == b"set-cookie":
                self.cookie = SimpleCookie(value.decode()).output([], "", ";").strip()
        text = b"".join(each["body"] for each in bodies)
        return json.loads(text) if text else {}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    set_password(tmp_path / "accounts.txt", "ada", b"secret")
    made = Server(ConsoleSettings(password_file=tmp_path / "accounts.txt"))
    yield made
    made.app.sessions.close()


@pytest.mark.parametrize(
    "path, headers",
    [
        ("/api/live?channels=overview", {}),  # a browser opens a lost stream anew by itself
        ("/api/session", POLL),
        ("/api/history", POLL),
    ],
)
def test_what_a_page_asks_for_by_itself_is_no_use_of_its_session(
    server: Server, path: str, headers: dict[str, str]
) -> None:
    session = server.log_in()
    session.used = used = time.monotonic() - 3_600.0
    server.ask(path, headers)
    assert session.used == used
    server.ask("/api/session")
    assert session.used > used


def test_who_may_only_look_is_told_what_makes_an_operator(server: Server) -> None:
    server.log_in()
    how = server.ask("/api/session")["how_to_act"]
    assert "--operator NAME" in how
    assert "topic write $tide/control/#" in how
    locked = Server(ConsoleSettings(read_only=True))
    assert locked.ask("/api/session")["how_to_act"] == "start the console without --read-only"
    locked.app.sessions.close()


def test_reports_are_looked_for_once_for_all_pages(tmp_path: Path) -> None:
    server = Server(ConsoleSettings(reports=(tmp_path,)))
    server.ask("/api/session")
    assert server.ask("/api/reports")["reports"] == []
    looked_at = time.monotonic()
    (tmp_path / "report.html").write_text("new")
    found = server.ask("/api/reports")["reports"]
    assert found == [] or time.monotonic() - looked_at >= FRESH
    while not found:
        found = server.ask("/api/reports")["reports"]
    assert found[0]["place"] == "report.html"
    server.app.sessions.close()


def test_a_lake_that_is_not_there_is_told_beside_the_reports(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("new")
    server = Server(ConsoleSettings(reports=(tmp_path,), lake=str(tmp_path / "lake")))
    server.ask("/api/session")
    found = server.ask("/api/reports")
    assert len(found["reports"]) == 1
    assert "there is no such lake" in found["lake_missing"]["missing"]
    server.app.sessions.close()
