"""Requests and files that several tests need."""

from typing import Any

from tidegate.broker.hooks import ConnectRequest

# The cheapest hash Argon2 allows: these tests are about decisions, not about cost.
CHEAP = {"time_cost": 1, "memory_cost_kib": 8, "parallelism": 1}


def connect_request(**fields: Any) -> ConnectRequest:
    given: dict[str, Any] = {
        "client_id": "c1",
        "username": None,
        "password": None,
        "version": 5,
        "peer": "192.0.2.1:4711",
        "listener": "test",
    }
    return ConnectRequest(**(given | fields))
