"""Follows the pointer of a policy folder: loads what becomes current, and keeps what is in force on any fault."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate.policy.errors import PolicyError
from tidegate.policy.settings import PolicySettings
from tidegate.policy.snapshot import Snapshot, load
from tidegate.policy.store import PolicyStore

RETRY = 30.0  # seconds until a snapshot that was refused is looked at again

log = logging.getLogger("tidegate.policy")


class PolicyWatcher:
    """`apply` is called on the loop with each snapshot that was loaded; `tell` with every attempt (version, error)."""

    def __init__(
        self,
        settings: PolicySettings,
        apply: Callable[[Snapshot], None],
        tell: Callable[[str, str, str], None] = lambda _before, _version, _error: None,
    ) -> None:
        self.settings = settings
        self._apply = apply
        self._tell = tell
        self._store = PolicyStore(Path(settings.path))
        self._snapshot: Snapshot | None = None
        self._refused = ""  # what was refused last, and why: it is said once
        self._refused_version = ""
        self._retry_at = 0.0
        self.loads = 0
        self.faults = 0

    @property
    def version(self) -> str:
        return self._snapshot.version if self._snapshot is not None else ""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self.settings.poll)

    async def look(self) -> None:
        """Take what is current, if it is new and sound."""
        version = ""
        try:
            current = await asyncio.to_thread(self._store.current)
            version = current or ""
            if not version or version == self.version or self._is_too_soon(version):
                return
            snapshot = await asyncio.to_thread(load, self._store, version, self.settings)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a file must not end the node's learning
            self._refuse(version, error)
            return
        old, before = [self._snapshot], self.version
        self._snapshot = snapshot
        self._apply(snapshot)
        self._refused = ""
        self.loads += 1
        log.info(
            "policy in force",
            extra={
                "version": snapshot.version,
                "publishers": len(snapshot.priors),
                "members": len(snapshot.speeds),
            },
        )
        self._tell(before, snapshot.version, "")
        await asyncio.to_thread(old.clear)  # its memory is given back there, not on the loop

    def _is_too_soon(self, version: str) -> bool:
        """What was refused is rarely better a moment later, and reading all of it is work."""
        return version == self._refused_version and asyncio.get_running_loop().time() < self._retry_at

    def _refuse(self, version: str, error: Exception) -> None:
        self._refused_version = version
        self._retry_at = asyncio.get_running_loop().time() + RETRY
        said = f"{version} {error}"
        if said == self._refused:
            return
        self._refused = said
        self.faults += 1
        log.warning(
            "policy not taken, the old one stays",
            extra={"version": version, "in_force": self.version, "error": str(error), "hint": _hint(error)},
        )
        self._tell(self.version, version, str(error))

    def statistics(self) -> dict[str, Any]:
        return {"policy_loads": self.loads, "policy_faults": self.faults}


def _hint(error: Exception) -> str:
    return error.hint if isinstance(error, PolicyError) else ""
