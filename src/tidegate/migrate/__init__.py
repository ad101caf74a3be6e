"""From other brokers' configuration to Tidegate's: what can be said the same way, and what cannot."""

from tidegate.migrate.errors import MigrationError
from tidegate.migrate.mosquitto import Conversion, convert_mosquitto
from tidegate.migrate.remarks import Kind, Remark

__all__ = ["Conversion", "Kind", "MigrationError", "Remark", "convert_mosquitto"]
