"""An asyncio client for MQTT 5 and 3.1.1 that works against any broker."""

from tidegate.client.client import Client
from tidegate.client.errors import (
    ClientError,
    ConnectionLost,
    ConnectRefused,
    NoResponder,
    NotConnected,
    NotSupported,
    OperationTimeout,
    PublishRefused,
    Refused,
    ServerDisconnected,
    ServerSilent,
    SessionLost,
    SubscribeRefused,
    UnsubscribeRefused,
)
from tidegate.client.inbox import Messages
from tidegate.client.limits import ServerLimits
from tidegate.client.message import Message
from tidegate.client.options import NEVER, ClientOptions
from tidegate.client.publishing import Acknowledgement
from tidegate.mqtt.packets import Subscription, Will
from tidegate.mqtt.properties import Property

__all__ = [
    "NEVER",
    "Acknowledgement",
    "Client",
    "ClientError",
    "ClientOptions",
    "ConnectRefused",
    "ConnectionLost",
    "Message",
    "Messages",
    "NoResponder",
    "NotConnected",
    "NotSupported",
    "OperationTimeout",
    "Property",
    "PublishRefused",
    "Refused",
    "ServerDisconnected",
    "ServerLimits",
    "ServerSilent",
    "SessionLost",
    "SubscribeRefused",
    "Subscription",
    "UnsubscribeRefused",
    "Will",
]
