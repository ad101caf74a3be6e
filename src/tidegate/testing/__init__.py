"""What tests of Tidegate, and of programs built on it, need: real things, made small and quick."""

from tidegate.testing.thread import BrokerThread, NodeThread

__all__ = ["BrokerThread", "NodeThread"]
