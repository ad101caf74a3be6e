"""Remote calls to devices behind gateways: any number of routers, and every reply reaches its caller.

async with Backbone("mqtt://localhost") as backbone:
    result = await backbone.call("a1b2c3d4e5f6", "image", {"price": "1.99"}, deadline=5.0)
"""

from tidegate.rpc.back import BackRouter
from tidegate.rpc.backbone import Backbone, Call, Ticket
from tidegate.rpc.declared import load_types
from tidegate.rpc.dispatcher import Dispatcher, TaskResult, Tracked
from tidegate.rpc.errors import Full, Malformed, Refusal, RpcError, SchemaError, Unavailable
from tidegate.rpc.forward import ForwardRouter
from tidegate.rpc.gateway import Behaviour, Emulator
from tidegate.rpc.labels import SHELF_LABEL, SILENT_LABEL
from tidegate.rpc.manager import RouteManager
from tidegate.rpc.mqtt_store import Keeper
from tidegate.rpc.options import BackendName, Options
from tidegate.rpc.outcome import Outcome, Reason, Result
from tidegate.rpc.protocols import ReturnStore, TaskQueue
from tidegate.rpc.retry import Retry
from tidegate.rpc.schema import DeviceType, Field, Kind, Method, Names, Topics
from tidegate.rpc.worker import Job, TaskFailed, TaskWorker

__all__ = [
    "SHELF_LABEL",
    "SILENT_LABEL",
    "BackRouter",
    "Backbone",
    "BackendName",
    "Behaviour",
    "Call",
    "DeviceType",
    "Dispatcher",
    "Emulator",
    "Field",
    "ForwardRouter",
    "Full",
    "Job",
    "Keeper",
    "Kind",
    "Malformed",
    "Method",
    "Names",
    "Options",
    "Outcome",
    "Reason",
    "Refusal",
    "Result",
    "Retry",
    "ReturnStore",
    "RouteManager",
    "RpcError",
    "SchemaError",
    "TaskFailed",
    "TaskQueue",
    "TaskResult",
    "TaskWorker",
    "Ticket",
    "Topics",
    "Tracked",
    "Unavailable",
    "load_types",
]
