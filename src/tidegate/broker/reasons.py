"""Why connections end."""

from enum import StrEnum


class CloseReason(StrEnum):
    """Why a connection ended; every connection ends with exactly one of these."""

    CLIENT_DISCONNECTED = "client disconnected"
    CLIENT_GONE = "client closed the connection without DISCONNECT"
    PROTOCOL_ERROR = "protocol error"
    KEEP_ALIVE = "keep-alive timeout"
    TAKEN_OVER = "session taken over"
    SLOW_READER = "client did not read"
    SLOW_PACKET = "client did not complete a packet"
    NOT_AUTHORIZED = "not authorised"
    ADMINISTRATIVE = "closed by the administrator"
    GAVE_WAY = "memory was over its bound"
    MOVED = "sent to another node"
    SHUTDOWN = "server shutting down"
    SERVER_ERROR = "unexpected error in the server"
