"""MQTT 3.1, 3.1.1 and 5.0 without I/O: packets, codec, topics and the QoS state machines."""

from tidegate.mqtt.codes import ConnectReturnCode, PacketType, ReasonCode, connect_return_code
from tidegate.mqtt.decode import decode_packet
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.errors import Blame, MalformedPacket, MQTTError, PacketTooLarge, ProtocolError
from tidegate.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from tidegate.mqtt.properties import Properties, Property
from tidegate.mqtt.reader import PacketReader
from tidegate.mqtt.session import Inbound, InFlight, Outbound, PubrecOutcome

__all__ = [
    "Auth",
    "Blame",
    "Connack",
    "Connect",
    "ConnectReturnCode",
    "Disconnect",
    "InFlight",
    "Inbound",
    "MQTTError",
    "MalformedPacket",
    "Outbound",
    "Packet",
    "PacketReader",
    "PacketTooLarge",
    "PacketType",
    "Pingreq",
    "Pingresp",
    "Properties",
    "Property",
    "ProtocolError",
    "Puback",
    "Pubcomp",
    "Publish",
    "Pubrec",
    "PubrecOutcome",
    "Pubrel",
    "ReasonCode",
    "Suback",
    "Subscribe",
    "Subscription",
    "Unsuback",
    "Unsubscribe",
    "Will",
    "connect_return_code",
    "decode_packet",
    "encode_packet",
]
