"""Tidegate: an MQTT 3.1.1 and 5.0 broker that learns what is normal and treats each client accordingly.

This module stays empty but for the version: importing `tidegate` must cost nothing, because every command
and every room goes through it.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
