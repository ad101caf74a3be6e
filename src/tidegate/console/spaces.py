"""A space as its answers tell it: asked one small question, it says its version, its size and its load."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, Final

from tidegate.client import Client, NoResponder
from tidegate.client.errors import ClientError, OperationTimeout
from tidegate.console.errors import ActionRefused, RoomMissing

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
PATIENCE: Final = 3.0
COUNT: Final = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"
LOAD: Final = {
    "proc": "processing", "queue": "queueing", "limit": "limit", "cap": "capacity", "watch": "watchers",
}  # fmt: skip


async def look(client: Client | None, name: str) -> dict[str, Any]:
    """Version, triples and load of a space; raises RoomMissing if nobody serves it."""
    if not NAME.fullmatch(name):
        raise ActionRefused("That is no name of a space.", "letters, digits, _ and -")
    if client is None or not client.is_connected:
        raise RoomMissing("The console is not connected to its node.", "")
    try:
        answer = await client.request(
            f"tide/space/{name}/query",
            COUNT,
            timeout=PATIENCE,
            user_properties=(("accept", "application/sparql-results+json"),),
        )
    except (NoResponder, OperationTimeout):
        raise RoomMissing(
            f"Nobody serves a space called {name}.", f"tidegate space serve --space {name}"
        ) from None
    except ClientError as error:
        raise RoomMissing(str(error), error.hint) from None
    pairs = dict(answer.user_properties)
    if "fault" in pairs:
        return {"name": name, "problem": answer.text, "hint": pairs.get("hint", "")}
    return {
        "name": name,
        "version": pairs.get("version", ""),
        "triples": _count(answer.payload),
        "load": read_load(pairs.get("tide-load", "")),
    }


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
