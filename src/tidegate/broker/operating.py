"""What an operator may order while the node runs: a message to `$tide/control/<action>`, answered by its PUBACK.

Rules. Who comes by the operator's socket may give every order. Else who may write the topic by the rights in force;
without rights, who comes by a unix socket. An order is a JSON object. What is refused says why in the Reason String
(MQTT 5). Every order is logged, with who gave it.
Nothing here is on the way of a message: the topic is found when its route is made.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidegate.broker.flow_settings import BandName
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.packets import Puback, Pubrec
from tidegate.mqtt.properties import Properties, Property

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core
    from tidegate.broker.gate import Gate

log = logging.getLogger("tidegate.operator")

CONTROL_TOPIC: Final = b"$tide/control/"
MAX_ORDER: Final = 4_096  # bytes
LONGEST_RELEASE: Final = 86_400.0  # seconds
DEFAULT_RELEASE: Final = 60.0


class OrderRefused(Exception):
    """Why an order cannot be carried out; the text is for the operator."""


def may_operate(conn: Connection, topic: bytes) -> bool:
    """Whether the client may give orders on this topic."""
    if conn.listener.is_operator:
        return True
    authorise = conn.core.authorise
    return conn.listener.takes_orders if authorise is None else authorise.may_publish(conn, topic.decode())


def on_order(conn: Connection, topic: bytes, payload: bytes) -> tuple[ReasonCode, str]:
    """Carry out an order; gives the reason code and words for its acknowledgement."""
    name = topic.removeprefix(CONTROL_TOPIC).decode()
    who = {"by": conn.username or conn.session.client_id, "peer": conn.peer}
    try:
        try:
            order = json.loads(payload) if len(payload) <= MAX_ORDER else None
        except (ValueError, RecursionError):
            order = None
        if not isinstance(order, dict):
            raise OrderRefused(f"an order is a JSON object of at most {MAX_ORDER} bytes")
        action = ACTIONS.get(name)
        if action is None:
            raise OrderRefused(f"there is no such order; known are {', '.join(ACTIONS)}")
        done = action(conn.core, order)
    except OrderRefused as error:
        log.warning("order refused", extra=who | {"order": name, "why": str(error)})
        return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, str(error)
    log.warning("order carried out", extra=who | {"order": name} | done)
    return ReasonCode.SUCCESS, ""


def answer_of(conn: Connection, qos: int, pid: bytes, code: ReasonCode, why: str) -> bytes:
    """The acknowledgement with its words; MQTT 3.1.1 has none."""
    kind = Puback if qos == 1 else Pubrec
    properties: Properties = {Property.REASON_STRING: why} if why and conn.problem_information else {}
    packet = kind(packet_identifier=int.from_bytes(pid, "big"), reason_code=code, properties=properties)
    return encode_packet(packet, conn.version)


def _release(core: Core, order: dict[str, Any]) -> dict[str, Any]:
    """`{"client": …, "seconds": 60}`: let a held publisher go on, and do not hold it again for so long."""
    seconds = order.get("seconds", DEFAULT_RELEASE)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0.0 <= seconds <= LONGEST_RELEASE:
        raise OrderRefused(f"seconds is a number from 0 to {LONGEST_RELEASE:.0f}")
    gate, conn = _publisher(core, order)
    gate.excuse(conn, float(seconds))
    return {"client": conn.session.client_id, "seconds": seconds}


def _pin(core: Core, order: dict[str, Any]) -> dict[str, Any]:
    """`{"client": …, "band": "urgent"}`: serve a publisher in a class of its own; null: by its rate, as others."""
    band = order.get("band")
    if band is not None and band not in list(BandName):
        raise OrderRefused(f"band is one of {', '.join(BandName)}, or null")
    gate, conn = _publisher(core, order)
    if not gate.pin(conn, None if band is None else BandName(band)):
        raise OrderRefused("classes need priority.policy = ageing, and room for one more")
    return {"client": conn.session.client_id, "band": band}


def _end(core: Core, order: dict[str, Any]) -> dict[str, Any]:
    """`{"client": …}`: the client is disconnected, and what its session has is gone; a will goes out."""
    client = _client(order)
    session = core.sessions.get(client)
    if session is None or session.is_link or session.is_operator:
        raise OrderRefused("this node has no session of this name")
    core.end_by_order(session)
    return {"client": client}


def _client(order: dict[str, Any]) -> str:
    client = order.get("client")
    if not isinstance(client, str):
        raise OrderRefused("client is the identifier of a client")
    return client


def _publisher(core: Core, order: dict[str, Any]) -> tuple[Gate, Connection]:
    session = core.sessions.get(_client(order))
    conn = None if session is None else session.conn
    if core.gate is None or conn is None or conn.publisher is None:
        raise OrderRefused("no publisher of this name is connected")
    return core.gate, conn


ACTIONS: Final[dict[str, Callable[[Core, dict[str, Any]], dict[str, Any]]]] = {
    "release": _release,
    "pin": _pin,
    "end": _end,
}
