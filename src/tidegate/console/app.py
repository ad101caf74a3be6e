"""The console's server: pages, what they ask for, a stream of what changes, and actions.

A stream has no queue: each browser gets the latest state when it has taken the one before, so a slow one costs nothing
and misses only states that are over.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeGuard

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tidegate.accounts.guard import address_of
from tidegate.console import policies, reports
from tidegate.console.actions import Console, act
from tidegate.console.channels import CHANNELS, Channels
from tidegate.console.errors import RoomMissing
from tidegate.console.publishers import SORTS, Query
from tidegate.console.security import REPORT_POLICY, Guard
from tidegate.console.sessions import Role, Session, Sessions
from tidegate.console.settings import ConsoleSettings
from tidegate.console.shared import SHARE, SharedAnswer
from tidegate.console.spaces import Spaces
from tidegate.console.watch import NodeWatch
from tidegate.errors import TidegateError

STATIC: Final = Path(__file__).with_name("static")
TICK: Final = 0.5  # seconds between two looks at whether there is something new for a browser
KEEP_ALIVE: Final = 15.0  # seconds after which an idle stream says that it lives
MAX_STREAMS: Final = 100
TOKEN: Final = "x-tidegate-token"
POLL: Final = "x-tidegate-poll"
Handler = Callable[[Request, Session], Awaitable[Response]]


class ConsoleApp:
    """Routes, and what they share."""

    def __init__(self, settings: ConsoleSettings, watch: NodeWatch) -> None:
        self.settings = settings
        self.watch = watch
        self.sessions = Sessions(settings)
        self.channels = Channels(settings, watch)
        self.console = Console(settings, watch)
        self.spaces = Spaces()
        self._shared = {name: SharedAnswer[list[dict[str, Any]]](SHARE) for name in ("reports", "lake")}
        self.is_stopping = asyncio.Event()
        self.streams = 0
        self._cookie = f"{'__Host-' if settings.is_tls else ''}tidegate-{settings.port}"

    def build(self) -> Starlette:
        routes = [
            Route("/", self.page),
            Route("/api/session", self.session),
            Route("/api/login", self.log_in, methods=["POST"]),
            Route("/api/logout", self._guarded(self.log_out, is_action=True), methods=["POST"]),
            Route("/api/live", self._guarded(self.live, is_use=False)),  # a lost one is opened anew by itself
            Route("/api/history", self._guarded(self.history)),
            Route("/api/publishers", self._guarded(self.publishers)),
            Route("/api/publisher", self._guarded(self.publisher)),
            Route("/api/group", self._guarded(self.group)),
            Route("/api/spaces/{name}", self._guarded(self.space)),
            Route("/api/policy", self._guarded(self.policy)),
            Route("/api/policy/diff", self._guarded(self.policy_diff)),
            Route("/api/reports", self._guarded(self.reports)),
            Route("/api/reports/{name}", self._guarded(self.report)),
            Route("/reports/{name}/{file}", self._guarded(self.report_file)),
            Route("/api/actions/{name}", self._guarded(self.action, is_action=True), methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        guard = Middleware(Guard, settings=self.settings)
        return Starlette(routes=routes, middleware=[guard], lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(self.watch.run())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            self.sessions.close()

    # -- who asks -------------------------------------------------------------------------------------------

    def _guarded(
        self, handler: Handler, *, is_action: bool = False, is_use: bool = True
    ) -> Callable[[Request], Awaitable[Response]]:
        """Only with a session; an action only with its token, too. Errors become words."""

        async def endpoint(request: Request) -> Response:
            session = self._find_session(request, is_use=is_use)
            if session is None:
                return _error(401, "You are not logged in.", "")
            if is_action and request.headers.get(TOKEN) != session.token:
                return _error(
                    403, "The request does not come from this console's page.", "load the page again"
                )
            try:
                return await handler(request, session)
            except RoomMissing as error:
                if is_action:
                    return _error(409, str(error), error.hint)
                return JSONResponse({"missing": str(error), "hint": error.hint})
            except TidegateError as error:
                return _error(409, str(error), getattr(error, "hint", ""))
            except ClientDisconnect:
                return Response(status_code=400)

        return endpoint

    def _find_session(self, request: Request, *, is_use: bool = True) -> Session | None:
        """What a page asks for by itself, while nobody may sit before it, is no use of a session."""
        is_use = is_use and POLL not in request.headers
        return self.sessions.find(request.cookies.get(self._cookie), is_use=is_use)

    async def page(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    async def session(self, request: Request) -> Response:
        """Who I am; without accounts a session begins here."""
        session = self._find_session(request)
        if session is None:
            if self.sessions.has_accounts:
                return _error(401, "You are not logged in.", "")
            session = self.sessions.open_local()
        return self._answer_session(session)

    async def log_in(self, request: Request) -> Response:
        order = await _body(request)
        user, password = order.get("user"), order.get("password")
        if not _is_text(user) or not _is_text(password) or not self.sessions.has_accounts:
            return _error(400, "Give a user name and a password.", "")
        peer = f"{request.client.host}:{request.client.port}" if request.client is not None else ""
        session = await self.sessions.log_in(user, password, address_of(peer))
        if session is None:
            return _error(
                401, "User name or password is wrong.", "after several attempts answers come slowly"
            )
        return self._answer_session(session)

    async def log_out(self, request: Request, session: Session) -> Response:
        self.sessions.log_out(session)
        response = JSONResponse({"done": "logged out"})
        response.delete_cookie(self._cookie, path="/", secure=self.settings.is_tls, samesite="strict")
        return response

    def _answer_session(self, session: Session) -> Response:
        response = JSONResponse(
            {
                "user": session.user,
                "role": session.role,
                "token": session.token,
                "has_accounts": self.sessions.has_accounts,
                "spaces": self.settings.spaces,
                "how_to_act": self._how_to_act(),
            }
        )
        response.set_cookie(
            self._cookie, session.key, path="/", secure=self.settings.is_tls, httponly=True, samesite="strict"
        )
        return response

    def _how_to_act(self) -> str:
        """What makes somebody who may only look an operator."""
        if self.settings.read_only:
            return "start the console without --read-only"
        return "start the console with --operator NAME, or put `topic write $tide/control/#` into the rights file"

    # -- what pages show ------------------------------------------------------------------------------------

    async def live(self, request: Request, session: Session) -> Response:
        """Server-sent events: one a channel whenever its state is another one."""
        wanted = [name for name in request.query_params.get("channels", "").split(",") if name in CHANNELS]
        if self.streams >= MAX_STREAMS:
            return _error(503, "Too many pages are open.", "close some")
        return StreamingResponse(
            self._events(["node", *wanted], session),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def _events(self, channels: list[str], session: Session) -> AsyncIterator[str]:
        said: dict[str, str] = {}
        spoke = time.monotonic()
        self.streams += 1
        try:
            while not self.is_stopping.is_set():
                if self.sessions.find(session.key, is_use=False) is None:
                    yield "event: logout\ndata: {}\n\n"
                    return
                for name in channels:
                    text = self.channels.text(name)
                    if said.get(name) != text:
                        said[name] = text
                        spoke = time.monotonic()
                        yield f"event: {name}\ndata: {text}\n\n"
                if time.monotonic() - spoke > KEEP_ALIVE:
                    spoke = time.monotonic()
                    yield ": alive\n\n"
                try:
                    async with asyncio.timeout(TICK):
                        await self.is_stopping.wait()
                except TimeoutError:
                    pass
        finally:
            self.streams -= 1

    async def history(self, request: Request, session: Session) -> Response:
        return JSONResponse(self.watch.history.columns())

    async def group(self, request: Request, session: Session) -> Response:
        query = request.query_params
        return JSONResponse(self.watch.groups.columns(query.get("group", ""), query.get("filter", "")))

    async def publishers(self, request: Request, session: Session) -> Response:
        """A window of the table; asking keeps it up to date."""
        self.watch.ask("publishers")
        query = request.query_params
        sort = query.get("sort", "trouble")
        chosen = Query(
            start=_integer(query.get("start"), 0),
            count=_integer(query.get("count"), 50),
            sort=sort if sort in SORTS else "trouble",
            is_descending=query.get("order") == "down",
            search=query.get("search", "")[:200],
            state=query.get("state", "")[:20],
        )
        table = self.watch.table
        rows, start, matching = table.window(chosen)
        return JSONResponse(
            {
                "rows": [asdict(row) for row in rows],
                "start": start,
                "matching": matching,
                "known": len(table.rows),
                "counts": table.counts(),
                "is_complete": table.is_complete,
                "version": table.version,
            }
        )

    async def publisher(self, request: Request, session: Session) -> Response:
        """One row, wherever it would be in the table; none if nobody of this name publishes any more."""
        self.watch.ask("publishers")
        row = self.watch.table.rows.get(request.query_params.get("client", ""))
        return JSONResponse({"row": None if row is None else asdict(row)})

    async def space(self, request: Request, session: Session) -> Response:
        return JSONResponse(await self.spaces.look(self.watch.client, request.path_params["name"]))

    async def policy(self, request: Request, session: Session) -> Response:
        found = await asyncio.to_thread(policies.describe, self.settings.policy)
        return JSONResponse(found | {"in_force": self.watch.policy_version})

    async def policy_diff(self, request: Request, session: Session) -> Response:
        old, new = (request.query_params.get(name, "") for name in ("old", "new"))
        return JSONResponse(await asyncio.to_thread(policies.compare, self.settings.policy, old, new))

    async def reports(self, request: Request, session: Session) -> Response:
        """A large lake has a footer to read in each of thousands of files: pages share one look, which is rare then."""
        looks: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "reports": lambda: [each.as_object() for each in reports.find(self.settings.reports)],
            "lake": lambda: reports.describe_lake(self.settings.lake),
        }
        found: dict[str, Any] = {"reports": []}
        for name, look in looks.items():
            try:
                found[name] = await self._shared[name].get(partial(asyncio.to_thread, look))
            except TidegateError as error:
                found[f"{name}_missing"] = {"missing": str(error), "hint": getattr(error, "hint", "")}
        return JSONResponse(found)

    async def report(self, request: Request, session: Session) -> Response:
        report = await asyncio.to_thread(reports.get, self.settings.reports, request.path_params["name"])
        if report is None:
            return _error(404, "There is no such report.", "it may have been moved")
        if report.kind == "pipeline":
            return JSONResponse(report.as_object() | {"frame": f"/reports/{report.name}/report.html"})
        return JSONResponse(report.as_object() | {"html": await asyncio.to_thread(reports.render, report)})

    async def report_file(self, request: Request, session: Session) -> Response:
        report = await asyncio.to_thread(reports.get, self.settings.reports, request.path_params["name"])
        file = request.path_params["file"]
        if report is not None and report.kind == "pipeline" and file == report.path.name:
            return FileResponse(report.path, headers={"Content-Security-Policy": REPORT_POLICY})
        found = None if report is None else await asyncio.to_thread(reports.read_picture, report, file)
        if found is None:
            return _error(404, "There is no such file.", "")
        return Response(found[0], media_type=found[1], headers={"Content-Security-Policy": REPORT_POLICY})

    # -- what an operator does ------------------------------------------------------------------------------

    async def action(self, request: Request, session: Session) -> Response:
        if session.role is not Role.OPERATOR:
            return _error(403, f"{session.user} may look, and not act.", self._how_to_act())
        done = await act(self.console, session.user, request.path_params["name"], await _body(request))
        return JSONResponse({"done": done})


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a request. Another site's page cannot send this type without being asked first."""
    if not request.headers.get("content-type", "").startswith("application/json"):
        return {}
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_text(value: object) -> TypeGuard[str]:
    """JSON may have halves of characters, which nothing else takes."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _error(status: int, text: str, hint: str) -> Response:
    return JSONResponse({"error": text, "hint": hint}, status_code=status)


def _integer(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 9 else default
