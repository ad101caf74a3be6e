"""Tasks that need no code of the user's, and how a worker finds those that do."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from typing import Any

from tidegate.rpc.backbone import Call
from tidegate.rpc.errors import RpcError
from tidegate.rpc.worker import Handler, Job, TaskFailed


async def calls(job: Job) -> list[str]:
    """`{"calls": [{"device", "method", "fields"}]}`: call all of them; the task is done when all devices did it."""
    try:
        wanted = [
            Call(device=str(each["device"]), method=str(each["method"]), fields=dict(each.get("fields", {})))
            for each in job.body["calls"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise TaskFailed(f"the task's body is not {{'calls': [{{'device', 'method'}}]}}: {error!r}") from None
    return [result.outcome for result in await job.require(wanted)]


HANDLERS: dict[str, Handler] = {"calls": calls}


def load_handlers(name: str) -> Mapping[str, Handler]:
    """The dictionary `module:name` stands for; raises `RpcError`."""
    module_name, _, attribute = name.partition(":")
    # A module beside the one who starts the worker, as `python -m` would find it.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise RpcError(f"--app {name}: {error}", hint="write MODULE:NAME of a dict of coroutines") from None
    if not isinstance(found, Mapping) or not all(map(inspect.iscoroutinefunction, found.values())):
        raise RpcError(f"--app {name} is no dict of coroutine functions", hint='{"price": set_price}')
    return found
