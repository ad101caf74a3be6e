"""Which libraries are tried, over which transports, in which versions of MQTT."""

import pytest

from tests.interop.peers.aiomqtt_peer import AiomqttPeer
from tests.interop.peers.base import Peer
from tests.interop.peers.gmqtt_peer import GmqttPeer
from tests.interop.peers.mqttjs_peer import MqttjsPeer
from tests.interop.peers.paho_peer import PahoPeer

KINDS: dict[str, type[Peer]] = {
    "paho": PahoPeer,
    "aiomqtt": AiomqttPeer,
    "gmqtt": GmqttPeer,
    "mqttjs": MqttjsPeer,
}
TRANSPORTS = {
    "paho": ("tcp", "tls", "ws", "wss"),
    "aiomqtt": ("tcp", "tls", "ws", "wss"),
    "gmqtt": ("tcp", "tls"),
    "mqttjs": ("tcp", "tls", "ws", "wss"),
}
VERSIONS = (4, 5)

every_kind = pytest.mark.parametrize("kind", KINDS)
every_version = pytest.mark.parametrize("version", VERSIONS, ids=["v3.1.1", "v5"])
every_transport = pytest.mark.parametrize(
    ("kind", "transport"),
    [(kind, transport) for kind in KINDS for transport in TRANSPORTS[kind]],
    ids=[f"{kind}-{transport}" for kind in KINDS for transport in TRANSPORTS[kind]],
)
