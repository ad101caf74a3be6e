"""Testing a program that speaks MQTT: installing Tidegate brings pytest fixtures with a real broker.

`tidegate_broker` is a broker on a free port, one a test; nothing to configure, nothing to clean up. Run it:

    pytest examples/test_with_fixture.py
"""

import paho.mqtt.client as mqtt
import paho.mqtt.publish as publish
from paho.mqtt.enums import CallbackAPIVersion

from tidegate.broker import Features, Limits
from tidegate.testing import BrokerThread


def announce(host: str, port: int, level: float) -> None:
    """The program under test: it tells the world how high the water is."""
    publish.single("tide/level", f"{level:.1f} m", qos=1, retain=True, hostname=host, port=port)


def read_once(host: str, port: int, topic: str) -> str:
    """Connect, wait for one message, and leave."""
    received: list[str] = []
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_connect = lambda client, *_: client.subscribe(topic)

    def on_message(client: mqtt.Client, _: object, message: mqtt.MQTTMessage) -> None:
        received.append(message.payload.decode())
        client.disconnect()

    client.on_message = on_message
    client.connect(host, port)
    client.loop_forever()  # until the disconnect above
    return received[0]


def test_the_level_is_announced(tidegate_broker: BrokerThread) -> None:
    announce(tidegate_broker.host, tidegate_broker.port, 3.21)
    assert read_once(tidegate_broker.host, tidegate_broker.port, "tide/level") == "3.2 m"


def test_a_broker_can_be_asked_what_it_saw(tidegate_broker: BrokerThread) -> None:
    announce(tidegate_broker.host, tidegate_broker.port, 3.21)
    assert tidegate_broker.statistics()["publish_received"] == 1


def test_a_broker_with_settings_of_its_own(tidegate_broker_factory) -> None:  # type: ignore[no-untyped-def]
    broker = tidegate_broker_factory(limits=Limits(max_retained=0), features=Features(sys_interval=0))
    announce(broker.host, broker.port, 3.21)
    assert broker.statistics()["retained"] == 0
