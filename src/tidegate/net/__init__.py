"""Sockets for brokers and clients: listeners, dialers, TLS, WebSocket and an in-memory pair.

Nothing here knows a session or a subscription: bytes come in on one side, an `asyncio.Protocol` sits on the
other.
"""
