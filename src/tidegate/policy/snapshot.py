"""A snapshot as a node uses it: checked, cut down to what the node's settings allow, ready to be looked up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.flow.backoff import Prior
from tidegate.policy.errors import PolicyError
from tidegate.policy.lookup import SEPARATOR, Names, Priors, Speeds, numbers, sorted_by
from tidegate.policy.settings import PolicySettings
from tidegate.policy.store import PolicyStore
from tidegate.schema import Manifest

LONGEST_SERVICE = 3_600.0  # seconds; a member that takes longer for a message is out of order


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """What a version says about publishers and members."""

    manifest: Manifest
    priors: Mapping[str, Prior] = field(default_factory=dict)
    speeds: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def version(self) -> str:
        return self.manifest.version


def load(store: PolicyStore, version: str, settings: PolicySettings, now: datetime | None = None) -> Snapshot:
    """Read and check a snapshot; raises PolicyError. Takes seconds for millions of publishers: not on the loop."""
    manifest = store.verify(version)
    age = ((now or datetime.now(UTC)) - datetime.fromisoformat(manifest.created)).total_seconds()
    if settings.max_age and age > settings.max_age:
        raise PolicyError(version, f"is {age:.0f} s old", "policy.max_age says how old a snapshot may be")
    snapshot = Snapshot(manifest=manifest)
    baselines = manifest.tables.get("baselines")
    if baselines is not None and (settings.baselines or settings.limits):
        if baselines.rows > settings.max_clients:
            raise PolicyError(
                version, f"has {baselines.rows} publishers", "policy.max_clients says how many it may have"
            )
        snapshot.priors = _priors(store.read(version, "baselines"), version, settings)
    if "members" in manifest.tables and settings.members:
        snapshot.speeds = _speeds(store.read(version, "members"), version)
    return snapshot


def _priors(data: pa.Table, version: str, settings: PolicySettings) -> Priors:
    place = f"{version}, table baselines"
    names, data = sorted_by(data["client_id"].combine_chunks(), data, place)
    nothing = np.zeros(len(names))
    rate = numbers(data, "rate", place, settings.rate_ceiling)
    dispersion = numbers(data, "dispersion", place)
    limit = numbers(data, "limit", place)
    rank = numbers(data, "rank", place)
    limit = np.where(limit > 0.0, np.maximum(limit, settings.limit_floor), 0.0)
    return Priors(
        Names(names),
        {
            "rate": rate if settings.baselines else nothing,
            "dispersion": dispersion if settings.baselines else nothing,
            "limit": limit if settings.limits else nothing,
            "rank": rank if settings.baselines else nothing,
        },
    )


def _speeds(data: pa.Table, version: str) -> Speeds:
    place = f"{version}, table members"
    groups = data["group"].combine_chunks()
    keys = pc.binary_join_element_wise(groups, data["client_id"].combine_chunks(), SEPARATOR)
    names, data = sorted_by(keys, data, place)
    return Speeds(Names(names), numbers(data, "service", place, LONGEST_SERVICE))
