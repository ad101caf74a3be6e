"""A space service over HTTP: the SPARQL 1.1 Protocol, and RDF in and out of a space.

    GET, POST  /<space>/sparql    query and update, as the protocol has it
    GET        /<space>/data      all triples
    POST       /<space>/data      insert RDF
    DELETE     /<space>/data      remove the RDF in the body
    POST       /<space>/watch     begin a standing query; /<space>/check: what was missed of it
    GET        /                  what is there, and how busy

The token of `Authorization: Bearer …` says who asks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from tidegate.flow.timeout import NAME
from tidegate.net.doorway import Doorway
from tidegate.net.errors import ListenError
from tidegate.net.listen import Listening, listen
from tidegate.space.errors import Fault, SpaceError, malformed
from tidegate.space.formats import SPARQL_QUERY, SPARQL_UPDATE, plain_type
from tidegate.space.requests import JSON, Operation, Request, Response
from tidegate.space.rights import Access, is_loopback
from tidegate.space.service import SpaceService

log = logging.getLogger("tidegate.space.http")

STATUS: Final = {
    Fault.MALFORMED: 400,
    Fault.UNSUPPORTED: 400,
    Fault.UNKNOWN_SPACE: 404,
    Fault.UNKNOWN_WATCH: 404,
    Fault.FORBIDDEN: 403,
    Fault.TOO_LARGE: 413,
    Fault.TIMEOUT: 504,
    Fault.BUSY: 503,
    Fault.CONTENT_TYPE: 406,
    Fault.INTERNAL: 500,
}
_FORM: Final = "application/x-www-form-urlencoded"
_GRAPHS: Final = ("default-graph-uri", "named-graph-uri", "using-graph-uri", "using-named-graph-uri")
OPEN: Final = 1024  # requests served at once
MOST_WAITING: Final = 512  # connections whose request is not complete, or that ask for nothing
HELD_BYTES: Final = 268_435_456  # of bodies that are not complete
PATIENCE: Final = 30.0  # seconds without a byte until such a connection is closed
SWEEP: Final = 1.0
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")
_UPDATE: Final = re.compile(
    rb"(?:\s++|#[^\n]*+|(?:PREFIX\s++[^\s<]*+\s*+|BASE\s*+)<[^>]*+>)*+"
    rb"(?:INSERT|DELETE|CLEAR|LOAD|DROP|CREATE|WITH|ADD|MOVE|COPY)\b",
    re.IGNORECASE,
)
EVERYTHING: Final = b"CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }"


class HttpFront:
    """`async with HttpFront(service, port=0) as front: front.port`"""

    def __init__(
        self,
        service: SpaceService,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._service = service
        self._host = host
        self._wanted = port
        self._tls = tls
        self.port = 0
        self._open = 0  # requests that are served
        self._door = Doorway(MOST_WAITING, HELD_BYTES)
        self._callers: dict[asyncio.BaseTransport, _Caller] = {}
        self._listening: Listening | None = None
        self._sweeping: asyncio.Task[None] | None = None
        app = web.Application(client_max_size=service.limits.request_bytes, middlewares=[self._guard])
        app.router.add_get("/", self._about)
        app.router.add_route("*", "/{space}/sparql", self._sparql)
        app.router.add_route("*", "/{space}/data", self._data)
        app.router.add_post("/{space}/watch", self._watch)
        app.router.add_post("/{space}/check", self._check)
        app.on_response_prepare.append(self._announce)
        log.addFilter(_is_of_interest)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, logger=log)

    async def __aenter__(self) -> HttpFront:
        await self._runner.setup()
        try:
            self._listening = await listen(
                self._take_call, host=self._host, port=self._wanted, ssl=self._tls, door=self._door
            )
        except ListenError as error:
            await self._runner.cleanup()
            raise SpaceError(
                Fault.INTERNAL,
                f"cannot listen on {self._host}:{self._wanted}: {error.problem}",
                hint="choose another port with --http-port, 0 for any",
            ) from None
        self.port = self._listening.port
        self._sweeping = asyncio.create_task(self._sweep())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._listening is not None and self._sweeping is not None:
            self._listening.close()
            self._sweeping.cancel()
            for waiting in self._door:
                waiting.abort()
            await self._runner.cleanup()
            await self._listening.wait_closed()

    def _take_call(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return _Caller(self._door, self._callers, server())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            for late in self._door.expired(PATIENCE):
                late.abort()

    def _caller(self, request: web.Request) -> _Caller | None:
        return None if request.transport is None else self._callers.get(request.transport)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Before anything of a body is read."""
        try:
            if self._service.rights.is_open:
                _check_local(request)
            return await handler(request)
        except SpaceError as error:
            return self._refusal(request, error)
        except _UnknownToken as error:
            return self._refusal(request, error.error, status=401)
        finally:
            caller = self._caller(request)
            if caller is not None:
                caller.rest()

    def _refusal(self, request: web.Request, error: SpaceError, *, status: int = 0) -> web.Response:
        """Of what the service never saw; clients slow down by its load all the same."""
        status = status or self._status(request, error, is_about_body=True)
        return _failure(error, {NAME.title(): self._load(request, error.retry_after)}, status)

    async def _announce(self, request: web.Request, response: web.StreamResponse) -> None:
        """With what aiohttp refuses itself, such as 405; it calls this for every answer."""
        if response.status >= 400:
            response.headers.setdefault(NAME.title(), self._load(request))

    def _load(self, request: web.Request, retry_after: float = 0.0) -> str:
        # Not by `match_info`: it is empty where no route took the request.
        space = request.path.removeprefix("/").partition("/")[0]
        asked = Request(space=space, operation=_operation(request), body=b"")
        return self._service.announce(asked, retry_after=retry_after).encode()

    def _status(self, request: web.Request, error: SpaceError, *, is_about_body: bool) -> int:
        """401 where a token could help and none was sent; a content type is of the body or of the answer."""
        rights = self._service.rights
        if error.fault is Fault.FORBIDDEN and rights.tokens and _scheme(request) != "bearer":
            return 401
        if error.fault is Fault.CONTENT_TYPE and is_about_body:
            return 415
        return STATUS[error.fault]

    async def _about(self, request: web.Request) -> web.Response:
        """Of the spaces that whoever asks may read."""
        who, rights = self._who(request), self._service.rights
        statistics = self._service.statistics()
        spaces = statistics["spaces"]
        statistics["spaces"] = {name: spaces[name] for name in spaces if rights.may(who, name, Access.READ)}
        return web.json_response(statistics)

    def _who(self, request: web.Request) -> str:
        _, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            return self._service.rights.who(token.strip() if _scheme(request) == "bearer" else None)
        except SpaceError as error:
            raise _UnknownToken(error) from None

    async def _read(self, request: web.Request, operation: Operation) -> bytes:
        """The body of a request, if whoever sends it may ask for that."""
        self._admit(request, operation)
        return await _readable(self._body(request))

    async def _body(self, request: web.Request) -> bytes:
        """As `request.read()`; but who sends it slowly, or much at once, has a place in the door meanwhile."""
        caller = self._caller(request)
        limit = self._service.limits.request_bytes
        body = bytearray()
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > limit:
                raise web.HTTPRequestEntityTooLarge(max_size=limit, actual_size=len(body))
            if caller is not None:
                self._door.progressed(caller)
                self._door.hold(caller, len(body))
        return bytes(body)

    async def _form(self, request: web.Request) -> dict[str, list[str]]:
        body = await self._body(request)
        charset = request.charset or "utf-8"
        return parse_qs(body.rstrip().decode(charset), keep_blank_values=True, encoding=charset)

    def _admit(self, request: web.Request, operation: Operation) -> None:
        space, who = request.match_info["space"], self._who(request)
        self._service.admit(Request(space=space, operation=operation, body=b"", who=who))

    def _admit_form(self, request: web.Request) -> None:
        """It may be either, and most are queries."""
        try:
            self._admit(request, Operation.QUERY)
        except SpaceError as error:
            try:
                self._admit(request, Operation.UPDATE)
            except SpaceError:
                raise error from None

    async def _sparql(self, request: web.Request) -> web.Response:
        operation, body = await self._protocol(request)
        return await self._ask(request, operation, body, None)

    async def _protocol(self, request: web.Request) -> tuple[Operation, bytes]:
        """SPARQL 1.1 Protocol, section 2: one query or one update, in one of five ways."""
        for name in _GRAPHS:
            if name in request.query:
                raise SpaceError(Fault.UNSUPPORTED, f"{name} is not offered", hint="a space is one graph")
        if request.method == "GET":
            return Operation.QUERY, _one(request.query.getall("query", []), "query")
        if request.method != "POST":
            raise web.HTTPMethodNotAllowed(request.method, ["GET", "POST"])
        kind = plain_type(request.headers.get("Content-Type"))
        if kind == _FORM:
            self._admit_form(request)
            form = await _readable(self._form(request))
            for name in _GRAPHS:
                if name in form:
                    raise SpaceError(Fault.UNSUPPORTED, f"{name} is not offered", hint="a space is one graph")
            queries, updates = form.get("query", []), form.get("update", [])
            if updates and queries:
                raise malformed("both query and update are given", "send them one after the other")
            if updates:
                return Operation.UPDATE, _one(updates, "update")
            return Operation.QUERY, _one(queries, "query")
        if kind == SPARQL_QUERY:
            return Operation.QUERY, await self._read(request, Operation.QUERY)
        if kind == SPARQL_UPDATE:
            return Operation.UPDATE, await self._read(request, Operation.UPDATE)
        raise SpaceError(
            Fault.CONTENT_TYPE,
            f"{kind or 'nothing'} is not a SPARQL request",
            hint=f"send {SPARQL_QUERY}, {SPARQL_UPDATE} or a form",
        )

    async def _data(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            return await self._ask(request, Operation.QUERY, EVERYTHING, None)
        operation = {"POST": Operation.INSERT, "DELETE": Operation.REMOVE}.get(request.method)
        if operation is None:
            raise web.HTTPMethodNotAllowed(request.method, ["GET", "POST", "DELETE"])
        kind = request.headers.get("Content-Type")
        return await self._ask(request, operation, await self._read(request, operation), kind)

    async def _watch(self, request: web.Request) -> web.Response:
        kind = request.headers.get("Content-Type")
        return await self._ask(request, Operation.WATCH, await self._read(request, Operation.WATCH), kind)

    async def _check(self, request: web.Request) -> web.Response:
        return await self._ask(request, Operation.CHECK, await self._read(request, Operation.CHECK), JSON)

    async def _ask(
        self, request: web.Request, operation: Operation, body: bytes, content_type: str | None
    ) -> web.Response:
        who = self._who(request)
        if self._open >= OPEN:
            raise SpaceError(Fault.BUSY, "too many requests", hint="try again later", retry_after=1.0)
        caller = self._caller(request)
        if caller is not None:
            caller.serve()
        self._open += 1
        try:
            response = await self._handle(request, operation, body, content_type, who)
        finally:
            self._open -= 1
        if response.error is not None:
            error = _explained(response.error, operation, body)
            is_rdf = operation in (Operation.INSERT, Operation.REMOVE)
            return _failure(error, _headers(response), self._status(request, error, is_about_body=is_rdf))
        headers = _headers(response)
        return web.Response(body=response.body, headers={**headers, "Content-Type": response.content_type})

    async def _handle(
        self, request: web.Request, operation: Operation, body: bytes, content_type: str | None, who: str
    ) -> Response:
        return await self._service.handle(
            Request(
                space=request.match_info["space"],
                operation=operation,
                body=body,
                content_type=content_type,
                accept=request.headers.get("Accept"),
                who=who,
                client=f"http/{who}/{request.remote}",
            )
        )


class _Caller(asyncio.Protocol):
    """A connection: it has a place in the door as long as no request of it is served."""

    def __init__(
        self, door: Doorway, callers: dict[asyncio.BaseTransport, _Caller], inner: asyncio.Protocol
    ) -> None:
        self._door = door
        self._callers = callers
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def serve(self) -> None:
        """A whole request is there."""
        self._door.leave(self)

    def rest(self) -> None:
        """It was answered, or refused."""
        self._door.leave(self)
        if self._transport is not None:
            self._door.enter(self, self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._door.enter(self, transport)
        self._callers[transport] = self
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)
        if self._transport is not None:
            del self._callers[self._transport]
            self._transport = None
        self._inner.connection_lost(exc)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _is_of_interest(record: logging.LogRecord) -> bool:
    """aiohttp logs what is no HTTP, and bodies that cannot be read after an answer, as if the fault were ours."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


class _UnknownToken(Exception):
    def __init__(self, error: SpaceError) -> None:
        self.error = error


def _check_local(request: web.Request) -> None:
    """Where everybody may do everything, web pages of other places may not: browsers say where they come from."""
    origin = request.headers.get("Origin")
    try:
        is_local = is_loopback(request.url.host or "")
        is_local = is_local and (origin is None or urlsplit(origin).netloc == request.host)
    except ValueError:  # one of them has brackets or a port that are none
        is_local = False
    if not is_local:
        raise SpaceError(
            Fault.FORBIDDEN,
            f"requests from {(origin or request.host)[:100]!r} are not served",
            hint="give --rights FILE, or ask from this machine",
        )


async def _readable(reading: Awaitable[T]) -> T:
    """What is read of a body, if its bytes are what its head says."""
    try:
        return await reading
    except (ValueError, LookupError):  # the charset of a form: of other bytes, or of no name that is known
        raise malformed("the form is not in its charset", "send UTF-8") from None
    except (web.RequestPayloadError, ConnectionError):  # the latter: it ends too early, and nobody waits
        raise malformed("the body cannot be read", "check its Content-Encoding and its chunks") from None


def _one(values: list[str], name: str) -> bytes:
    if len(values) != 1:
        raise malformed(f"{len(values)} times {name!r}", f"give {name}= once")
    try:
        return values[0].encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8 are surrogates here
        raise malformed(f"{name} is not UTF-8") from None


def _headers(response: Response) -> dict[str, str]:
    headers = {"Tide-Version": str(response.version)}
    if load := response.load.encode():
        headers[NAME.title()] = load
    return headers


def _scheme(request: web.Request) -> str:
    return request.headers.get("Authorization", "").partition(" ")[0].lower()


def _operation(request: web.Request) -> Operation:
    """What it would have been, as far as its head tells."""
    last = request.path.rpartition("/")[2]
    if last in (Operation.WATCH, Operation.CHECK):
        return Operation(last)
    is_update = plain_type(request.headers.get("Content-Type")) == SPARQL_UPDATE
    is_writing = is_update or (last == "data" and request.method != "GET")
    return Operation.UPDATE if is_writing else Operation.QUERY


def _explained(error: SpaceError, operation: Operation, body: bytes) -> SpaceError:
    """An update where a query should be is what many clients send at first."""
    if operation is Operation.QUERY and error.fault is Fault.MALFORMED and _UPDATE.match(body):
        return malformed(str(error), f"it is an update: POST it as update=…, or as {SPARQL_UPDATE}")
    return error


def _failure(error: SpaceError, headers: dict[str, str], status: int) -> web.Response:
    if error.retry_after > 0.0:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    hint = error.hint
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
        hint = f"send `Authorization: Bearer TOKEN`, or {hint}" if hint else "send `Authorization: Bearer TOKEN`"
    fields = {"error": str(error), "fault": error.fault.value, "hint": hint}
    return web.Response(
        status=status,
        text=json.dumps(fields) + "\n",
        content_type="application/json",
        headers=headers,
    )
