"""Durable state of a broker: sessions, queues, retained messages and wills in one SQLite file."""

from tidegate.broker.store.errors import StoreError
from tidegate.broker.store.settings import Durability, StoreSettings
from tidegate.broker.store.store import Store

__all__ = ["Durability", "Store", "StoreError", "StoreSettings"]
