"""An MQTT 3.1.1 and 5.0 broker for one event loop."""

import logging

from tidegate.broker.broker import Broker
from tidegate.broker.hooks import Hooks
from tidegate.broker.listener import Listener
from tidegate.broker.settings import Features, Limits, QueueFull

__all__ = ["Broker", "Features", "Hooks", "Limits", "Listener", "QueueFull"]

# A program that embeds a broker decides where its log goes; until then it goes nowhere.
logging.getLogger("tidegate").addHandler(logging.NullHandler())
