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
    OutboxError,
    OutboxFull,
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
from tidegate.client.load_meter import Carrier, ReportOptions
from tidegate.client.message import Message
from tidegate.client.options import NEVER, ClientOptions, WhenFull
from tidegate.client.publishing import Acknowledgement
from tidegate.client.redirect import TooManyRedirects
from tidegate.mqtt.packets import Subscription, Will
from tidegate.mqtt.properties import Property
from tidegate.net.operators import operators_way

__all__ = [
    "NEVER",
    "Acknowledgement",
    "Carrier",
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
    "OutboxError",
    "OutboxFull",
    "Property",
    "PublishRefused",
    "Refused",
    "ReportOptions",
    "ServerDisconnected",
    "ServerLimits",
    "ServerSilent",
    "SessionLost",
    "SubscribeRefused",
    "Subscription",
    "TooManyRedirects",
    "UnsubscribeRefused",
    "WhenFull",
    "Will",
    "operators_way",
]
