"""Verdicts of the gate and ranks again, from the rows of `check` in the order of `seq` (spec 1 (e) 9)."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Final

from tidegate import flow
from tidegate.flow.backoff import (
    AdaptiveSettings,
    BackoffPolicy,
    Identity,
    IdentityTable,
    Load,
    Mode,
    Prior,
    Publisher,
)
from tidegate.flow.priority import AgeingPriority, Band, PriorityPolicy
from tidegate.pipeline.replay.record import Findings, Row

COLUMNS: Final = (
    "seq",
    "kind",
    "t",
    "client_id",
    "user",
    "publisher",
    "address",
    "load",
    "count",
    "bytes",
    "d_f",
    "fr_avg",
    "rank",
    "place",
    "rate",
    "prior_rate",
    "prior_dispersion",
    "limit",
    "prior_rank",
    "detail",
)


class _Counting:
    """A policy that remembers the publishers it makes, by number from 1, and by key."""

    def __init__(self, policy: BackoffPolicy) -> None:
        self.policy = policy
        self.mode = policy.mode
        self.is_per_message = policy.is_per_message
        self.by_number: list[Publisher] = []
        self.by_key: dict[Hashable, Publisher] = {}
        self.numbers: dict[int, int] = {}  # by identity of the object

    @property
    def load(self) -> Load:
        return self.policy.load

    @load.setter
    def load(self, load: Load) -> None:
        self.policy.load = load

    def publisher(self, key: Hashable, prior: Prior | None = None) -> Publisher:
        made = self.policy.publisher(key, prior)
        self.by_number.append(made)
        self.by_key[made.key] = made
        self.numbers[id(made)] = len(self.by_number)
        return made

    def join(self, publisher: Publisher) -> None:
        self.policy.join(publisher)

    def leave(self, publisher: Publisher) -> None:
        self.policy.leave(publisher)


class GateReplay:
    """One run. Feed rows in the order of `seq`; rows before a `policy` event cannot be compared."""

    def __init__(self) -> None:
        self.findings = Findings()
        self._expected = 1
        self._policy: _Counting | None = None
        self._table: IdentityTable | None = None
        self._priority: PriorityPolicy | None = None

    def feed(self, row: Row) -> None:
        self.findings.events += 1
        seq = row["seq"]
        if seq != self._expected and self._policy is not None:
            self.findings.note(
                f"events {self._expected} to {seq - 1} are missing: nothing is compared until a gate begins anew"
            )
            self._policy = None
        self._expected = seq + 1
        if row["kind"] == "policy":
            self._begin(row)
        elif self._policy is None:
            self.findings.note(f"begins in the middle: event {seq} depends on what came before")
        else:
            getattr(self, f"_on_{row['kind']}", self._ignore)(row)

    def _ignore(self, row: Row) -> None:
        self.findings.note(f"events of kind {row['kind']} are unknown")

    def _begin(self, row: Row) -> None:
        detail = json.loads(row["detail"])
        backoff = detail["backoff"]
        make = flow.backoff_policy(backoff["name"])
        options = dict(backoff["options"])
        mode = Mode(backoff["mode"])
        if "settings" in options:
            policy = make(AdaptiveSettings(**options["settings"]), mode=mode)
        else:
            policy = make(**options, mode=mode)
        policy.load = Load[row["load"]]
        self._policy = _Counting(policy)
        self._table = IdentityTable(self._policy)
        self._priority = flow.priority_policy(detail["priority"]["name"])(**detail["priority"]["options"])

    def _on_load(self, row: Row) -> None:
        assert self._policy is not None
        self._policy.load = Load[row["load"]]

    def _on_open(self, row: Row) -> None:
        assert self._policy is not None
        assert self._table is not None
        prior = None
        if row["prior_rate"] is not None:
            prior = Prior(
                rate=row["prior_rate"],
                dispersion=row["prior_dispersion"],
                limit=row["limit"],
                rank=row["prior_rank"],
            )
        publisher = self._table.open(row["client_id"], row["user"], row["address"], row["t"], prior)
        if row["detail"] is not None and isinstance(self._priority, AgeingPriority):
            self._priority.pin(publisher.key, _band(row))
        self.findings.compare(row, "publisher", self._policy.numbers[id(publisher)])

    def _on_close(self, row: Row) -> None:
        assert self._table is not None
        assert self._priority is not None
        publisher = self._table.known(row["client_id"], row["user"])
        self._table.close(row["client_id"], row["user"], row["address"], row["t"])
        if publisher is not None and not self._table.is_connected(row["client_id"], row["user"]):
            self._priority.remove(publisher.key)

    def _on_observe(self, row: Row) -> None:
        assert self._policy is not None
        number = row["publisher"]
        if not 0 < number <= len(self._policy.by_number):
            self.findings.compare(row, "publisher", None)
            return
        publisher = self._policy.by_number[number - 1]
        self.findings.compare(row, "d_f", publisher.observe(row["t"], row["count"], row["bytes"]))
        self.findings.compare(row, "fr_avg", publisher.trained_rate)

    def _on_rate(self, row: Row) -> None:
        assert self._policy is not None
        assert self._priority is not None
        key = Identity(row["client_id"], row["user"])
        publisher = self._policy.by_key.get(key)
        self.findings.compare(row, "rate", None if publisher is None else publisher.likely_rate)
        self._priority.update(key, row["rate"])

    def _on_rank(self, row: Row) -> None:
        assert self._priority is not None
        key = Identity(row["client_id"], row["user"])
        if row["rank"] is not None:
            self.findings.compare(row, "rank", self._priority.rank(key))
        if row["place"] is not None:
            if isinstance(self._priority, AgeingPriority) and row["detail"] is not None:
                place = self._priority.key_in(_band(row), key, row["t"])
            else:
                place = self._priority.key(key, row["t"])
            self.findings.compare(row, "place", place)


def _band(row: Row) -> Band:
    first, last = json.loads(row["detail"])
    return Band(first=first, last=last)
