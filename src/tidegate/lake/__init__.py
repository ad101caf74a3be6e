"""The lake: what nodes record, as Parquet. `Recorder` needs pyarrow (`tidegate[lake]`), imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.lake.errors import LakeError, NotInstalled, require_pyarrow
from tidegate.lake.settings import LakeSettings

if TYPE_CHECKING:
    from tidegate.lake.recorder import Recorder


def __getattr__(name: str) -> Any:
    if name == "Recorder":
        require_pyarrow()
        from tidegate.lake.recorder import Recorder

        return Recorder
    raise AttributeError(name)


__all__ = ["LakeError", "LakeSettings", "NotInstalled", "Recorder", "require_pyarrow"]
