"""Re-authentication of a connected MQTT 5 client with AUTH packets (section 4.12.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.broker.hooks import ConnectRequest, Verdict
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.errors import ProtocolError
from tidegate.mqtt.packets import Auth
from tidegate.mqtt.properties import Properties, Property

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection


def on_auth(conn: Connection, packet: Auth) -> Verdict | None:
    """Take one step; the verdict when the exchange is over and the client must go, else None."""
    method = packet.properties.get(Property.AUTHENTICATION_METHOD)
    if conn.auth_method is None or method != conn.auth_method:  # [MQTT5-4.12.0-6] [MQTT5-4.12.1-1]
        raise ProtocolError("AUTH without the authentication method of CONNECT")
    if packet.reason_code == ReasonCode.RE_AUTHENTICATE:
        request = ConnectRequest(
            client_id=conn.session.client_id,
            username=conn.username,
            password=None,
            version=conn.version,
            peer=conn.peer,
            listener=conn.listener.name,
            properties=packet.properties,
        )
        conn.exchange = conn.core.methods[method].start(request)
    elif conn.exchange is None:
        raise ProtocolError("AUTH outside an exchange")
    answer = conn.exchange.step(packet.properties.get(Property.AUTHENTICATION_DATA))
    properties: Properties = {Property.AUTHENTICATION_METHOD: method}
    code = ReasonCode.CONTINUE_AUTHENTICATION
    if isinstance(answer, Verdict):
        conn.exchange = None
        if answer.reason_code != ReasonCode.SUCCESS:
            return answer
        code = ReasonCode.SUCCESS
        conn.core.alarms.cancel(conn.expiry_alarm)
        conn.expiry_alarm = None
        if answer.expires is not None:
            conn.expires_at(answer.expires)
        if answer.data is not None:
            properties[Property.AUTHENTICATION_DATA] = answer.data
    else:
        properties[Property.AUTHENTICATION_DATA] = answer
    conn.session.write(encode_packet(Auth(reason_code=code, properties=properties), 5))
    return None
