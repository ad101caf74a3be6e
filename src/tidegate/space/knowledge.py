"""The knowledge processor's side: `Space` asks and tells, `Watch` keeps an answer up to date and misses nothing.

async with Client("mqtt://localhost") as client:
    space = Space(client, "home")
    await space.insert('<urn:lamp> <urn:is> "on" .')
    async with space.watch("SELECT ?lamp WHERE { ?lamp <urn:is> 'on' }") as watch:
        async for change in watch:
            print(change.version, change.added, change.removed)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from pyoxigraph import Triple

from tidegate.client import Client, Message, NoResponder
from tidegate.flow import timeout_policy
from tidegate.flow.timeout import NAME, UNKNOWN, Announcement, TimeoutPolicy, parse_announcement
from tidegate.space.errors import Fault, SpaceError
from tidegate.space.formats import RESULTS_JSON, TURTLE, read_triples
from tidegate.space.requests import ACCEPT, JSON, PREFIX, Operation
from tidegate.space.terms import Row, row_from_json, to_ntriples
from tidegate.space.watch import Watch


@dataclass(slots=True, kw_only=True)
class Reply:
    """A response that went well. `version` is the space's that it is about."""

    body: bytes
    content_type: str
    version: int
    load: Announcement = UNKNOWN

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True, kw_only=True)
class Answer:
    """Rows of a SELECT in the order of `variables`; an ASK has `truth`."""

    variables: list[str]
    rows: list[Row]
    version: int
    truth: bool | None = None


class Space:
    """One space, over a connected client; `timeout` in seconds for each request. Raises `SpaceError`."""

    def __init__(self, client: Client, name: str, *, prefix: str = PREFIX, timeout: float = 10.0) -> None:
        self.client = client
        self.name = name
        self.prefix = prefix
        self.timeout = timeout

    async def request(
        self,
        operation: Operation,
        body: bytes | str,
        *,
        content_type: str | None = None,
        accept: str | None = None,
        timeout: float | None = None,
        qos: int = 1,
    ) -> Reply:
        """Ask for anything; raises `SpaceError` for a refusal, `OperationTimeout` if there is no answer, and
        `NoResponder` if the MQTT broker knows that nobody serves the space.
        """
        try:
            message = await self.client.request(
                f"{self.prefix}/{self.name}/{operation}",
                body,
                timeout=self.timeout if timeout is None else timeout,
                qos=qos,
                content_type=content_type,
                user_properties=((ACCEPT, accept),) if accept else (),
            )
        except NoResponder:
            raise NoResponder(
                f"nobody serves space {self.name!r}",
                hint=f"check the name, or start one: tidegate space serve --space {self.name}",
            ) from None
        return read_reply(message)

    async def query(self, text: str, **options: Any) -> Answer:
        """A SELECT or an ASK."""
        reply = await self.request(Operation.QUERY, text, accept=RESULTS_JSON, **options)
        fields = reply.json()
        if "boolean" in fields:
            return Answer(variables=[], rows=[], version=reply.version, truth=fields["boolean"])
        names = fields["head"]["vars"]
        rows = [row_from_json(names, each) for each in fields["results"]["bindings"]]
        return Answer(variables=names, rows=rows, version=reply.version)

    async def construct(self, text: str, **options: Any) -> list[Triple]:
        """A CONSTRUCT or a DESCRIBE."""
        reply = await self.request(Operation.QUERY, text, accept=TURTLE, **options)
        return read_triples(reply.body, reply.content_type)

    async def update(self, text: str, **options: Any) -> int:
        """A SPARQL update; the version after it."""
        return (await self.request(Operation.UPDATE, text, **options)).version

    async def insert(self, triples: str | bytes | list[Triple], content_type: str = TURTLE) -> int:
        body = to_ntriples(triples) if isinstance(triples, list) else triples
        return (await self.request(Operation.INSERT, body, content_type=content_type)).version

    async def remove(self, triples: str | bytes | list[Triple], content_type: str = TURTLE) -> int:
        """Remove these triples; blank nodes cannot be named, use `update` for them."""
        body = to_ntriples(triples) if isinstance(triples, list) else triples
        return (await self.request(Operation.REMOVE, body, content_type=content_type)).version

    def watch(
        self,
        text: str | None = None,
        *,
        s: str | None = None,
        p: str | None = None,
        o: str | None = None,
        policy: TimeoutPolicy | str = "active",
        patience: float = 2.0,
        qos: int = 0,
        random: Random | None = None,
        queue: int = 1000,
    ) -> Watch:
        """Keep the answer of a query, or of a triple mask, up to date: `async with space.watch(…) as watch`.

        `policy` is the control level: "active", "adaptive", "fixed", "paper", "off", or an object. `patience` is how
        long a check may take. `qos` is that of notifications: the checks make up for what QoS 0 loses.
        """
        if (text is None) == (s is None and p is None and o is None):
            raise SpaceError(
                Fault.MALFORMED, "give a query, or a mask of s, p and o", hint="not both, not none"
            )
        body = json.dumps({"s": s, "p": p, "o": o}) if text is None else text
        return Watch(
            self,
            body,
            JSON if text is None else None,
            timeout_policy(policy)() if isinstance(policy, str) else policy,
            patience=patience,
            qos=qos,
            random=random or Random(),
            queue=queue,
        )


def read_reply(message: Message) -> Reply:
    properties = dict(message.user_properties)
    load = parse_announcement(properties.get(NAME, ""))
    if "fault" in properties:
        try:
            fault = Fault(properties["fault"])
        except ValueError:
            fault = Fault.INTERNAL
        error = SpaceError(fault, message.text, hint=properties.get("hint", ""), retry_after=load.retry_after)
        error.load = load
        raise error
    return Reply(
        body=message.payload,
        content_type=message.content_type or "",
        version=int(properties.get("version", "0")),
        load=load,
    )
