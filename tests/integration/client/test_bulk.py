"""Messages by the thousand: taken as lists, acknowledged in one piece, and the load said by the application."""

import asyncio
import json

import pytest

from tidegate.client import Client, Message, ReportOptions
from tidegate.testing import BrokerThread

DEADLINE = 30.0


async def publish(port: int, number: int, qos: int = 1) -> None:
    async with Client(f"127.0.0.1:{port}") as client:
        for each in range(number):
            await client.publish("bulk/1", str(each), qos=qos)


async def take(client: Client, number: int, maximum: int) -> list[Message]:
    taken: list[Message] = []
    async with asyncio.timeout(DEADLINE):
        while len(taken) < number:
            some = await client.messages.get_many(maximum)
            assert 1 <= len(some) <= maximum
            taken += some
    return taken


@pytest.mark.parametrize("maximum", [1, 7, 1000])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_lists_keep_the_order_and_the_bound(tidegate_broker: BrokerThread, qos: int, maximum: int) -> None:
    async def run() -> None:
        async with Client(f"127.0.0.1:{tidegate_broker.port}", manual_ack=True) as client:
            await client.subscribe("bulk/#", qos=2)
            await publish(tidegate_broker.port, 50, qos)
            messages = await take(client, 50, maximum)
            assert [int(message.payload) for message in messages] == list(range(50))
            client.ack_many(messages)
            assert client.statistics()["acknowledgements_owed"] == 0

    asyncio.run(run())


def test_what_was_not_acknowledged_comes_again(tidegate_broker: BrokerThread) -> None:
    address = f"127.0.0.1:{tidegate_broker.port}"

    async def run() -> None:
        async with Client(address, client_id="bulk", manual_ack=True, session_expiry_interval=60) as client:
            await client.subscribe("bulk/#", qos=1)
            await publish(tidegate_broker.port, 30)
            messages = await take(client, 30, 1000)
            client.ack_many(messages[10:20])  # waits for those in front of it
            assert client.statistics()["acknowledgements_owed"] == 30
            client.ack_many(messages[:10])
            client.ack_many(messages[:10])  # a second time changes nothing
            assert client.statistics()["acknowledgements_owed"] == 10
        async with Client(
            address, client_id="bulk", manual_ack=True, clean_start=False, session_expiry_interval=60
        ) as client:
            again = await take(client, 10, 1000)
            assert [int(message.payload) for message in again] == list(range(20, 30))
            client.ack_many(messages)  # of a connection that is gone
            assert client.statistics()["acknowledgements_owed"] == 10

    asyncio.run(run())


def test_a_refusal_in_the_midst_keeps_its_place(tidegate_broker: BrokerThread) -> None:
    async def run() -> None:
        async with Client(f"127.0.0.1:{tidegate_broker.port}", manual_ack=True) as client:
            await client.subscribe("bulk/#", qos=1)
            await publish(tidegate_broker.port, 3)
            first, second, third = await take(client, 3, 1000)
            second.ack(0x83)
            client.ack_many([first, third])
            assert client.statistics()["acknowledgements_owed"] == 0

    asyncio.run(run())


@pytest.mark.parametrize("carrier", ["ping", "puback", "publish"])
def test_the_broker_hears_what_the_application_says(tidegate_broker: BrokerThread, carrier: str) -> None:
    address = f"127.0.0.1:{tidegate_broker.port}"

    async def run() -> None:
        reports = ReportOptions(carrier=carrier, manual=True)
        async with (
            Client(address, client_id="worker", manual_ack=True, reports=reports) as client,
            Client(address) as operator,
            asyncio.timeout(DEADLINE),
        ):
            await client.subscribe("$share/crew/bulk/#", qos=1)
            await operator.subscribe("$SYS/tide/groups")
            await publish(tidegate_broker.port, 3)
            messages = await take(client, 3, 1000)
            assert client.report_load(queue_length=5000, processing_time=0.25, count=10)
            client.ack_many(messages)
            async for message in operator.messages:
                rows = json.loads(message.payload)["rows"]
                if rows and rows[0]["members"][0]["service_ms"] == 250.0:
                    break
            assert client.statistics()["reports_sent"] == 1

    asyncio.run(run())


def test_a_server_that_wants_no_reports_gets_none(tidegate_broker: BrokerThread) -> None:
    async def run() -> None:
        address = f"127.0.0.1:{tidegate_broker.port}"
        async with Client(address, reports=ReportOptions(carrier="off", manual=True)) as client:
            assert not client.report_load(queue_length=1, processing_time=0.1)

    asyncio.run(run())
