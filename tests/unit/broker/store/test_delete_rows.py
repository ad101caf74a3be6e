"""Deleting by key looks keys up; it never reads the whole table."""

import sqlite3

import pytest

from tidegate.broker.store.schema import TABLES
from tidegate.broker.store.writer import delete_rows

KEYS = [
    ("queue", "session_id, seq", [(1, 2), (3, 4)]),
    ("subscription", "session_id, topic_filter", [(1, b"a"), (2, b"b")]),
    ("inbound", "session_id, packet_identifier", [(1, 2), (3, 4)]),
    ("session", "id", [(1,), (2,)]),
    ("queue", "session_id", [(1,), (2,)]),
    ("subscription", "session_id", [(1,), (2,)]),
    ("message", "id", [(1,), (2,)]),
    ("retained", "topic", [(b"a",), (b"b",)]),
    ("will", "client_id", [("a",), ("b",)]),
]


@pytest.mark.parametrize(("table", "columns", "rows"), KEYS)
def test_keys_are_looked_up(table: str, columns: str, rows: list[tuple[object, ...]]) -> None:
    with sqlite3.connect(":memory:") as db:
        db.executescript(TABLES)
        statements: list[str] = []
        db.set_trace_callback(statements.append)
        delete_rows(db, table, columns, rows)
        db.set_trace_callback(None)
        statement = next(each for each in statements if "DELETE" in each)
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}")]
    assert any(step.startswith(f"SEARCH {table} USING") for step in plan), plan
    assert f"SCAN {table}" not in plan


def test_only_the_named_rows_go() -> None:
    with sqlite3.connect(":memory:") as db:
        db.executescript(TABLES)
        db.executemany(
            "INSERT INTO inbound VALUES (?, ?)",
            [(session, number) for session in range(3) for number in range(200)],
        )
        delete_rows(db, "inbound", "session_id, packet_identifier", [(1, number) for number in range(150)])
        left = db.execute("SELECT session_id, count(*) FROM inbound GROUP BY 1").fetchall()
    assert left == [(0, 200), (1, 50), (2, 200)]
