"""MQTT.js in a Node.js process of its own, told what to do by JSON lines (see `js/peer.js`)."""

import base64
import itertools
import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.interop.peers.base import DEADLINE, Inbox, Message, Options, Properties

SCRIPT = Path(__file__).parents[1] / "js" / "peer.js"

# Our field: the library's name for the property.
NAMES = {
    "response_topic": "responseTopic",
    "correlation_data": "correlationData",
    "content_type": "contentType",
    "payload_format_indicator": "payloadFormatIndicator",
    "message_expiry_interval": "messageExpiryInterval",
    "topic_alias": "topicAlias",
}


def to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def to_mqttjs(properties: Properties | None) -> dict[str, Any] | None:
    if properties is None:
        return None
    made: dict[str, Any] = {}
    for ours, theirs in NAMES.items():
        value = getattr(properties, ours)
        if value is not None:
            made[theirs] = to_base64(value) if isinstance(value, bytes) else value
    if made.get("payloadFormatIndicator") is not None:
        made["payloadFormatIndicator"] = bool(made["payloadFormatIndicator"])  # the library wants a boolean
    user: dict[str, list[str]] = {}
    for name, value in properties.user:
        user.setdefault(name, []).append(value)
    if user:
        made["userProperties"] = user
    return made


def from_mqttjs(found: dict[str, Any]) -> Properties:
    values = {ours: found[theirs] for ours, theirs in NAMES.items() if theirs in found}
    if "correlation_data" in values:
        values["correlation_data"] = base64.b64decode(values["correlation_data"])
    if "payload_format_indicator" in values:
        values["payload_format_indicator"] = int(values["payload_format_indicator"])
    user = []
    for name, given in found.get("userProperties", {}).items():
        user += [(name, value) for value in ([given] if isinstance(given, str) else given)]
    return Properties(user=tuple(user), **values)


class MqttjsPeer:
    """A command gets one answer with its number; messages come whenever they come."""

    def __init__(self, options: Options) -> None:
        self.inbox = Inbox()
        self._options = options
        self._numbers = itertools.count(1)
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            ["node", str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, name="mqttjs-reader", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "message" not in said:
                self._answers.put(said)
                continue
            message = said["message"]
            self.inbox.put(
                Message(
                    topic=message["topic"],
                    payload=base64.b64decode(message["payload"]),
                    qos=message["qos"],
                    retain=message["retain"],
                    properties=from_mqttjs(message["properties"]),
                )
            )

    def _ask(self, command: str, **arguments: object) -> dict[str, Any]:
        number = next(self._numbers)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"number": number, "command": command, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._answers.get(timeout=DEADLINE)
        assert answer.get("number") == number, f"unexpected answer to {command}: {answer}"
        assert "error" not in answer, f"{command}: {answer['error']}"
        return answer

    def connect(self) -> bool:
        options, address = self._options, self._options.address
        will = options.will
        connack = self._ask(
            "connect",
            address={
                "transport": address.transport,
                "host": address.host,
                "port": address.port,
                "path": address.path,
                "ca": str(address.ca_file) if address.is_tls else None,
            },
            client_id=options.client_id,
            version=options.version,
            clean_start=options.clean_start,
            session_expiry=options.session_expiry,
            topic_alias_maximum=options.topic_alias_maximum,
            will=will
            and {
                "topic": will.topic,
                "payload": to_base64(will.payload),
                "qos": will.qos,
                "retain": will.retain,
            },
        )
        return bool(connack["session_present"])

    def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        return int(self._ask("subscribe", topic_filter=topic_filter, qos=qos)["granted"])

    def unsubscribe(self, topic_filter: str) -> None:
        self._ask("unsubscribe", topic_filter=topic_filter)

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        self._ask(
            "publish",
            topic=topic,
            payload=to_base64(payload),
            qos=qos,
            retain=retain,
            properties=to_mqttjs(properties),
        )

    def disconnect(self) -> None:
        self._ask("disconnect")

    def drop(self) -> None:
        self._process.kill()  # as abnormal as a close can be
        self._process.wait(DEADLINE)

    def close(self) -> None:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        if process.poll() is None:
            process.stdin.close()  # the script disconnects and ends when its input does
            try:
                process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        if not process.stdin.closed:
            process.stdin.close()
        process.stdout.close()
