"""Queue and store by the name of the backend. The only place that knows there is more than one."""

from __future__ import annotations

from tidegate.rpc.errors import RpcError
from tidegate.rpc.mqtt_queue import MqttQueue
from tidegate.rpc.mqtt_store import MqttStore
from tidegate.rpc.options import BackendName, Options
from tidegate.rpc.protocols import ReturnStore, TaskQueue

_HINT = "pip install 'tidegate[rpc]'"


def make_queue(options: Options, name: str) -> TaskQueue:
    if options.backend == BackendName.MQTT:
        return MqttQueue(options, name)
    try:
        from tidegate.rpc.rabbit_queue import RabbitQueue
    except ImportError:
        raise RpcError("aio-pika is not installed", hint=_HINT) from None
    return RabbitQueue(options, name)


def make_store(options: Options, name: str) -> ReturnStore:
    if options.backend == BackendName.MQTT:
        return MqttStore(options, name)
    try:
        from tidegate.rpc.redis_store import RedisStore
    except ImportError:
        raise RpcError("redis is not installed", hint=_HINT) from None
    return RedisStore(options)
