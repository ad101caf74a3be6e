"""Rights that refuse: plugged into a broker to see how it says no."""

from tidegate.broker.connection import Connection
from tidegate.broker.session import Session


class ReadOnly:
    """Nobody may publish."""

    def may_publish(self, client: Connection, topic: str) -> bool:
        return False

    def may_subscribe(self, client: Connection, topic_filter: str) -> bool:
        return True

    def may_receive(self, session: Session, topic: str) -> bool:
        return True


class NoSecrets:
    """Subscriptions to `secret` are not allowed."""

    def may_publish(self, client: Connection, topic: str) -> bool:
        return True

    def may_subscribe(self, client: Connection, topic_filter: str) -> bool:
        return topic_filter != "secret"

    def may_receive(self, session: Session, topic: str) -> bool:
        return topic != "secret"
