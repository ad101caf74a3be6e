"""A shop in one process: a broker, gateways with shelf labels, routers, a worker, and a task that changes prices.

The worker's first run of the task dies after the labels have shown the new price; the second run changes nothing twice.
In real life each part is a process of its own (`tidegate rpc …`). Run it and see:

    python examples/rpc_prices.py
"""

import asyncio

from tidegate.broker import Broker
from tidegate.rpc import (
    BackRouter,
    Call,
    Dispatcher,
    Emulator,
    ForwardRouter,
    Job,
    Options,
    Retry,
    TaskWorker,
)

LABELS = [f"{number:012x}" for number in range(1, 6)]


async def new_price(job: Job) -> str:
    await job.require(
        Call(device=label, method="image", fields={"price": job.body["price"]}) for label in LABELS
    )
    if job.task.attempt == 1:
        raise RuntimeError("the worker stumbles after the labels have obeyed")
    return f"{len(LABELS)} labels show {job.body['price']} after {job.task.attempt} attempts"


async def main() -> None:
    async with Broker(port=0) as broker, asyncio.timeout(30):
        options = Options(url=f"mqtt://127.0.0.1:{broker.port}", default_gateway="shop")
        async with (
            Emulator(options, ["shop"]) as gateways,
            BackRouter(options),
            ForwardRouter(options),
            TaskWorker(options, {"new-price": new_price}, retry=Retry(base=0.01)),
            Dispatcher(options) as dispatcher,
        ):
            result = await (await dispatcher.submit("new-price", {"price": "1.99"}))
            print(result.value)
            print("price changes at labels:", gateways.counters["effects"])


if __name__ == "__main__":
    asyncio.run(main())
