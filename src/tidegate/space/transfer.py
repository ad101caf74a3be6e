"""Evaluates the WHERE of an update where it can be stopped, and brings back what it would change."""

from __future__ import annotations

import json
from typing import BinaryIO

from pyoxigraph import RdfFormat, Triple, parse

from tidegate.space.engine import SpaceEngine
from tidegate.space.errors import Fault, SpaceError
from tidegate.space.outline import outline
from tidegate.space.runner import Runner
from tidegate.space.terms import to_ntriples
from tidegate.space.trust import is_bounded
from tidegate.space.update import Operation


async def evaluate_update(
    runner: Runner, engine: SpaceEngine, text: str, operations: list[Operation]
) -> tuple[list[Triple], list[Triple]]:
    """What the operations would remove and add. Several see each other's work, which a child does on its own copy."""

    def job(output: BinaryIO) -> None:
        removed, added = engine.rehearse(operations)
        output.write(json.dumps([to_ntriples(removed), to_ntriples(added)]).encode())

    store, is_one = engine.store, len(operations) == 1
    queries = [query for each in operations for query in (each.removes, each.adds) if query]
    is_trusted = is_one and all(is_bounded(outline(query), len(store)) for query in queries)
    name = f"update {text}" if is_trusted else ""
    try:
        answer = await runner.run(name, len(store), job, of=store, is_writing=not is_one)
    except SpaceError as error:
        if error.fault is Fault.TOO_LARGE:
            error.hint = "split it: a FILTER, or { SELECT … LIMIT … } in its WHERE, takes a part at a time"
        raise
    removed, added = json.loads(answer)
    return read_ntriples(removed), read_ntriples(added)


def read_ntriples(text: str) -> list[Triple]:
    """The reverse of `to_ntriples`."""
    return [each.triple for each in parse(text.encode(), RdfFormat.N_TRIPLES)] if text else []
