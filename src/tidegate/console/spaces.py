"""A space as its answers tell it: asked one small question, it says its version and its load.

Counting its triples is work for a space that grows with them, so it is asked to only after it changed, and so rarely
that it spends no more than one part in `SHARE` of its time on it. A space that keeps nothing counts its versions anew
when it is started again, so the same version may be of another life: after a silence, and now and then, triples are
counted then, too. All pages that show a space share its answers.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from math import isfinite
from typing import Any, Final

from tidegate.client import Client, NoResponder
from tidegate.client.errors import ClientError, OperationTimeout
from tidegate.console.errors import ActionRefused, RoomMissing
from tidegate.console.shared import SHARE, SharedAnswer

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
PATIENCE: Final = 3.0
SILENCE: Final = 10.0  # seconds without an answer after which a space may be in another life
RECOUNT: Final = 30.0  # seconds after which it may be, though it has always answered
KEPT: Final = 100  # spaces; a browser may ask for any name
ASK: Final = "ASK {}"
COUNT: Final = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"
LOAD: Final = {
    "proc": "processing", "queue": "queueing", "limit": "limit", "cap": "capacity", "watch": "watchers",
}  # fmt: skip


class Spaces:
    """Those that pages have asked for, by name."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spaces: dict[str, _Space] = {}

    async def look(self, client: Client | None, name: str) -> dict[str, Any]:
        """Version, triples and load of a space; raises RoomMissing if nobody serves it."""
        if not NAME.fullmatch(name):
            raise ActionRefused("That is no name of a space.", "letters, digits, _ and -")
        if client is None or not client.is_connected:
            raise RoomMissing("The console is not connected to its node.", "")
        space = self._spaces.get(name)
        if space is None:
            if len(self._spaces) >= KEPT:
                self._spaces.clear()
            space = self._spaces[name] = _Space(name, self._clock)
        return await space.look(client)


class _Space:
    """The last answer of one space, and when it counted its triples."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self.name = name
        self._clock = clock
        self._shared = SharedAnswer[dict[str, Any]](clock=clock)
        self._answered_at = 0.0
        self._triples: int | None = None
        self._counted: str | None = None  # the version whose triples they are
        self._next_count = self._recount_at = 0.0

    async def look(self, client: Client) -> dict[str, Any]:
        return await self._shared.get(lambda: self._ask(client))

    async def _ask(self, client: Client) -> dict[str, Any]:
        try:
            answer = await _request(client, self.name, ASK)
        except RoomMissing:
            self._triples = self._counted = None  # who answers next may be another one
            raise
        before, self._answered_at = self._answered_at, self._clock()
        if self._answered_at - before > SILENCE:
            self._counted = None
        pairs = dict(answer.user_properties)
        if "fault" in pairs:
            return {"name": self.name, "problem": answer.text, "hint": pairs.get("hint", "")}
        version = pairs.get("version", "")
        if self._should_count(version):
            await self._count(client)
        return {
            "name": self.name,
            "version": version,
            "triples": self._triples,
            "load": read_load(pairs.get("tide-load", "")),
        }

    def _should_count(self, version: str) -> bool:
        now = self._clock()
        return now >= self._next_count and (version != self._counted or now >= self._recount_at)

    async def _count(self, client: Client) -> None:
        began = self._clock()
        try:
            answer = await _request(client, self.name, COUNT)
        except RoomMissing:
            return  # it takes too long; the space itself has just answered
        finally:
            now = self._clock()
            self._next_count = now + (now - began) * SHARE
        counted = _count(answer.payload)
        if counted is not None:
            self._triples, self._counted = counted, dict(answer.user_properties).get("version", "")
            self._recount_at = now + RECOUNT


async def _request(client: Client, name: str, query: str) -> Any:
    try:
        return await client.request(
            f"tide/space/{name}/query",
            query,
            timeout=PATIENCE,
            user_properties=(("accept", "application/sparql-results+json"),),
        )
    except (NoResponder, OperationTimeout):
        raise RoomMissing(
            f"Nobody serves a space called {name}.", f"tidegate space serve --space {name}"
        ) from None
    except ClientError as error:
        raise RoomMissing(str(error), error.hint) from None


def read_load(text: str) -> dict[str, float]:
    """`proc=0.012;queue=0.05`, as far as it is understood."""
    found: dict[str, float] = {}
    for part in text.split(";"):
        short, _, value = part.partition("=")
        if short.strip() in LOAD:
            try:
                number = float(value)
            except ValueError:
                continue
            if isfinite(number):
                found[LOAD[short.strip()]] = number
    return found


def _count(payload: bytes) -> int | None:
    try:
        return int(json.loads(payload)["results"]["bindings"][0]["n"]["value"])
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError):
        return None
