"""paho-mqtt, MQTT 5, against any broker: a question, an answer, and a goodbye.

One client answers questions; another asks one and matches the answer by its correlation data. Start a broker
(`tidegate serve`), then:

    python examples/paho_client.py --port 1883
"""

import argparse
import queue
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

TIMEOUT = 10.0


def connected(host: str, port: int, *topic_filters: str) -> tuple[Client, "queue.Queue[Any]"]:
    """A client that runs on a thread of its own and has its subscriptions, and what it receives."""
    inbox: queue.Queue[Any] = queue.Queue()
    subscribed: queue.Queue[object] = queue.Queue()
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.on_message = lambda *arguments: inbox.put(arguments[-1])
    client.on_connect = lambda client, *_: client.subscribe([(each, 1) for each in topic_filters])
    client.on_subscribe = lambda *_: subscribed.put(None)
    client.connect(host, port)
    client.loop_start()
    subscribed.get(timeout=TIMEOUT)
    return client, inbox


def main(host: str, port: int) -> None:
    server, requests = connected(host, port, "pier/questions")
    client, answers = connected(host, port, "pier/answers/7")

    asked: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    asked.ResponseTopic = "pier/answers/7"
    asked.CorrelationData = b"q1"
    asked.UserProperty = [("language", "en")]
    client.publish("pier/questions", "How deep is it?", qos=1, properties=asked)

    question = requests.get(timeout=TIMEOUT)
    print("asked:", question.payload.decode(), question.properties.UserProperty)
    reply: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    reply.CorrelationData = question.properties.CorrelationData
    server.publish(question.properties.ResponseTopic, "3.2 m", qos=1, properties=reply)

    answer = answers.get(timeout=TIMEOUT)
    print("answered:", answer.payload.decode(), answer.properties.CorrelationData.decode())
    for each in (client, server):
        each.disconnect()
        each.loop_stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    arguments = parser.parse_args()
    main(arguments.host, arguments.port)
