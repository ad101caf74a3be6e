"""Evaluates the WHERE of an update where it can be stopped, and brings back what it would change."""

from __future__ import annotations

import json
from typing import BinaryIO

from pyoxigraph import RdfFormat, Triple, parse

from tidegate.space.engine import SpaceEngine
from tidegate.space.runner import Runner
from tidegate.space.terms import to_ntriples
from tidegate.space.update import Operation


async def evaluate_update(
    runner: Runner, engine: SpaceEngine, text: str, operations: list[Operation]
) -> tuple[list[Triple], list[Triple]]:
    """What the operations would remove and add. Several see each other's work, which a child does on its own copy."""

    def job(output: BinaryIO) -> None:
        removed, added = engine.rehearse(operations)
        output.write(json.dumps([to_ntriples(removed), to_ntriples(added)]).encode())

    # One that changes the store on the way must never run in a thread beside others: no name, no thread.
    name = f"update {text}" if len(operations) == 1 else ""
    answer = await runner.run(name, len(engine.store), job)
    removed, added = json.loads(answer)
    return _triples(removed), _triples(added)


def _triples(text: str) -> list[Triple]:
    return [each.triple for each in parse(text.encode(), RdfFormat.N_TRIPLES)] if text else []
