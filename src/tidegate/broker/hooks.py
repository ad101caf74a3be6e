"""What users can plug into a broker: several small protocols, each optional, each free when unused.

Hooks are resolved when the broker starts and when a connection opens, never per message. Answers that
are cached (rights) are asked for once per client and topic; `Broker.rights_changed()` forgets them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tidegate.errors import TidegateError
from tidegate.flow.moving import MOVE_OFFER, MOVING_TOPIC
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.properties import Properties, Property

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.index import Route, Subscription
    from tidegate.broker.message import Author, Message
    from tidegate.broker.reasons import CloseReason
    from tidegate.broker.session import Delivery, Session
    from tidegate.mqtt.packets import Packet, Subscribe


@dataclass(slots=True, kw_only=True)
class ConnectRequest:
    """What is known of a client that asks to be let in."""

    client_id: str
    username: str | None
    password: bytes | None = field(repr=False)
    version: int
    peer: str
    listener: str
    certificate: dict[str, Any] | None = None
    properties: Properties = field(default_factory=dict)


def follows(properties: Properties) -> bool:
    """Whether a client said in CONNECT that it goes where it is sent."""
    return MOVE_OFFER in properties.get(Property.USER_PROPERTY, ())


@dataclass(slots=True, kw_only=True)
class Verdict:
    """Let the client in (`SUCCESS`, with the user it is) or refuse it with a reason code."""

    reason_code: ReasonCode = ReasonCode.SUCCESS
    user: str | None = None
    reason: str = ""
    data: bytes | None = None  # Authentication Data of the last step of an exchange
    is_expected: bool = False  # a refusal that is no news: it is not logged
    expires: float | None = None  # when the proof runs out (wall clock), as a token or certificate does


class Authenticator(Protocol):
    """Decides on user name, password and certificate. May answer at once or later (a coroutine)."""

    def authenticate(self, request: ConnectRequest) -> Verdict | Awaitable[Verdict]: ...


class Exchange(Protocol):
    """One run of an extended authentication method (MQTT 5 AUTH)."""

    def step(self, data: bytes | None) -> bytes | Verdict:
        """Take the client's data; answer with data for the client, or the verdict."""
        ...


class AuthenticationMethod(Protocol):
    """An extended authentication method, by its name in the Authentication Method property."""

    name: str

    def start(self, request: ConnectRequest) -> Exchange: ...


class Authoriser(Protocol):
    """Rights. `may_receive` is asked at delivery: a wildcard subscription may cover topics one may not read."""

    def may_publish(self, client: Connection, topic: str) -> bool: ...

    def may_subscribe(self, client: Connection, topic_filter: str) -> bool: ...

    def may_receive(self, session: Session, topic: str) -> bool: ...


@runtime_checkable
class LateAuthoriser(Protocol):
    """An `Authoriser` that is asked for clients that are gone: when a will is published, or a retained message sent.

    Without this method, what a client left keeps the right it had then.
    """

    def may_still_publish(self, user: str | None, client_id: str, topic: str) -> bool: ...


class PublishObserver(Protocol):
    """Sees what is published. `on_run` gets neighbouring QoS 0 packets of one topic as they came."""

    def on_run(self, client: Connection, packets: bytes, count: int) -> None: ...

    def on_message(self, client: Connection, message: Message) -> None: ...


class SessionObserver(Protocol):
    """Sees clients come and go."""

    def on_connected(self, client: Connection) -> None: ...

    def on_disconnected(self, client: Connection, reason: CloseReason) -> None: ...

    def on_subscribed(self, session: Session, subscription: Subscription) -> None: ...

    def on_unsubscribed(self, session: Session, subscription: Subscription) -> None: ...


class SessionCopy(Protocol):
    """Follows the queue of one durable session, so that another node can have a copy of it."""

    def came(self, delivery: Delivery) -> None:
        """A message of QoS 1 or 2 is to be kept for the client."""
        ...

    def done(self, delivery: Delivery) -> None:
        """The client has it, or will never get it."""
        ...


class SessionElsewhere(TidegateError):
    """Another node has the client's session. With an address the client shall go there, else come again."""

    def __init__(self, client: str, address: str = "") -> None:
        super().__init__(client)
        self.address = address


class ForeignSession(TidegateError):
    """Another node has a session of that name, and it belongs to another user."""


class Cluster(Protocol):
    """What a node that is part of a cluster does otherwise; asked on routes that are made, never per message."""

    takes_orders: bool
    """Whether operators speak to this node, below `OPERATOR_TOPIC`."""

    def author_of(self, topic: bytes) -> Author | None:
        """Who left the retained message that comes by a link."""
        ...

    def restored(self) -> None:
        """What was in the store is there; nobody is connected yet."""
        ...

    def prepare(
        self, request: ConnectRequest, clean_start: bool, session: Session | None, user: str | None
    ) -> str | Awaitable[None] | None:
        """A client is to be let in: None if it is served here at once, or what to wait for before.

        Text is the Server Reference of the node where it belongs. What is waited for may raise `SessionElsewhere` or
        `ForeignSession`.
        """
        ...

    def on_ended(self, session: Session) -> None:
        """A session is about to end, with all it has."""
        ...

    def sends_on(self, conn: Connection, packet: Subscribe) -> bool:
        """Whether a client that subscribes was sent to another node; if so, its connection is closing."""
        ...

    def admits(self, session: Session, topic_filter: str, packet: Subscribe) -> bool:
        """Whether the cluster has room for one more subscriber of a filter."""
        ...

    def keeps(self, session: Session, topic_filter: bytes) -> bool:
        """Whether another node's subscription must stay for now, though it was given up."""
        ...

    def on_link(self, link: Connection, is_present: bool) -> None:
        """Another node connected; `is_present`: with the session it had before."""
        ...

    def route(self, link: Connection, whole: Route) -> Route:
        """Who gets a message that came from another node, of all who want its topic."""
        ...

    def group_route(self, link: Connection, identifier: int, topic: bytes) -> Route:
        """Who gets a message that another node chose us for, as a member of a shared subscription."""
        ...

    def on_message(self, link: Connection, message: Message) -> None:
        """A message of the cluster itself, below `LINK_TOPIC`; or a client's, to `READY_TOPIC`."""
        ...

    def on_packet(self, link: Connection, packet: Packet) -> bool:
        """A packet that a server sends; False if it makes no sense."""
        ...


LINK_CLIENT = "$link/"
"""Client identifiers of nodes begin so; on other listeners they are refused."""
LINK_USER = "$link"
"""Who a node is to another one."""
NODE_TOPIC = b"$tide/"
"""What nodes tell each other and keep for themselves is below this: no client of a cluster sees or changes it."""
LINK_TOPIC = b"$tide/link/"
LINK_RETAINED = LINK_TOPIC + b"retained/"
"""Retained messages for another node; all else below `LINK_TOPIC` must arrive."""
OPERATOR_TOPIC = b"$tide/cluster/"
"""What an operator publishes here, with the right to it, is for the head."""


READY_TOPIC = MOVING_TOPIC.encode()
"""A client says here, to its own node, that it is ready to leave."""


@dataclass(slots=True, kw_only=True)
class Hooks:
    """Everything plugged into one broker."""

    authenticator: Authenticator | None = None
    methods: tuple[AuthenticationMethod, ...] = ()
    authoriser: Authoriser | None = None
    publish_observers: tuple[PublishObserver, ...] = ()
    session_observers: tuple[SessionObserver, ...] = ()
    has_account: Callable[[str], bool] | None = None
    """Whether a user still is one. What a client leaves goes with its account; None: accounts do not end."""
    may_be_named: Callable[[str | None, str], bool] | None = None
    """Whether a user may use a client identifier; None: any that no other user has."""
