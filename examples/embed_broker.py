"""A broker inside a program, with a doorman and a guest book.

`Doorman` lets only people with the right password in; `GuestBook` publishes, from inside the process, who is
there. Both are plain objects: a hook is any object with the right methods. Run it and see:

    python examples/embed_broker.py
"""

import asyncio

from tidegate.broker import Broker, Hooks
from tidegate.broker.connection import Connection
from tidegate.broker.hooks import ConnectRequest, Verdict
from tidegate.broker.index import Subscription
from tidegate.broker.reasons import CloseReason
from tidegate.broker.session import Session
from tidegate.client import Client, ConnectRefused, Message
from tidegate.mqtt import ReasonCode

PASSWORDS = {"anna": b"anchor", "bert": b"buoy"}


class Doorman:
    def authenticate(self, request: ConnectRequest) -> Verdict:
        if request.username in PASSWORDS and PASSWORDS[request.username] == request.password:
            return Verdict(user=request.username)
        return Verdict(reason_code=ReasonCode.BAD_USER_NAME_OR_PASSWORD)


class GuestBook:
    """Keeps one retained message per person, so that those who come later know, too."""

    broker: Broker

    def on_connected(self, client: Connection) -> None:
        self.broker.publish(f"guests/{client.username}", b"here", retain=True)

    def on_disconnected(self, client: Connection, reason: CloseReason) -> None:
        self.broker.publish(f"guests/{client.username}", b"gone", retain=True)

    def on_subscribed(self, session: Session, subscription: Subscription) -> None: ...

    def on_unsubscribed(self, session: Session, subscription: Subscription) -> None: ...


async def main() -> None:
    book = GuestBook()
    book.broker = Broker(port=0, hooks=Hooks(authenticator=Doorman(), session_observers=(book,)))
    async with book.broker as broker, asyncio.timeout(30):
        address = f"mqtt://127.0.0.1:{broker.port}"

        try:
            await Client(address, username="mallory", password="guess").connect()
        except ConnectRefused as refusal:
            print("mallory:", ReasonCode(refusal.reason_code).name)

        async with Client(address, username="anna", password="anchor") as anna:
            await anna.subscribe("guests/+")
            async with Client(address, username="bert", password="buoy"):
                for _ in range(2):
                    print_guest(await anext(anna.messages))
            print_guest(await anext(anna.messages))


def print_guest(message: Message) -> None:
    print(message.topic, message.text)


if __name__ == "__main__":
    asyncio.run(main())
