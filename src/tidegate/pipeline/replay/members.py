"""Choices of shared groups again, from the rows of `member` in the order of `seq` (spec 5)."""

from __future__ import annotations

import json
from random import Random
from typing import Final

from tidegate import flow
from tidegate.flow.load_report import LoadReport
from tidegate.flow.shared import ClientLoad, Member, SharedPolicy
from tidegate.pipeline.replay.record import Findings, Row

COLUMNS: Final = (
    "seq",
    "kind",
    "group",
    "topic_filter",
    "policy",
    "client_id",
    "t",
    "topic",
    "publisher",
    "qos",
    "place",
    "members",
    "count",
    "left",
    "processed",
    "m_q",
    "m_s",
    "t_p",
    "service",
    "rtt",
    "detail",
)
BY_CHANCE: Final = frozenset({"random", "sticky"})  # their choices depend on a generator that is not recorded


class _Group:
    """Members in the order of joining; tuples are kept, because policies know them by identity."""

    def __init__(self) -> None:
        self.policy: SharedPolicy | None = None
        self.name = ""
        self.members: tuple[Member, ...] = ()
        self.parts: dict[tuple[str, ...], tuple[Member, ...]] = {}

    def change(self, members: tuple[Member, ...]) -> None:
        self.members = members
        self.parts = {}

    def some(self, keys: tuple[str, ...]) -> tuple[Member, ...]:
        found = self.parts.get(keys)
        if found is None:
            by_key = {member.key: member for member in self.members}
            found = self.parts[keys] = tuple(by_key[key] for key in keys)
        return found


class MemberReplay:
    """One run. Feed rows in the order of `seq`; a run of which events are missing is compared up to there."""

    def __init__(self) -> None:
        self.findings = Findings()
        self._expected = 1
        self._loads: dict[str, ClientLoad] = {}
        self._groups: dict[tuple[str, str], _Group] = {}
        self._random = Random(0)

    def feed(self, row: Row) -> None:
        self.findings.events += 1
        seq = row["seq"]
        if seq != self._expected:
            self.findings.note(f"event {self._expected} is missing: nothing after it is compared")
            return
        self._expected = seq + 1
        getattr(self, f"_on_{row['kind']}", self._ignore)(row)

    def _ignore(self, row: Row) -> None:
        self.findings.note(f"events of kind {row['kind']} are unknown")

    def _group(self, row: Row) -> _Group:
        return self._groups.setdefault((row["group"], row["topic_filter"]), _Group())

    def _on_group(self, row: Row) -> None:
        group = self._group(row)
        group.name = row["policy"]
        make = flow.shared_policy(group.name)
        options = json.loads(row["detail"] or "{}")
        # Only one policy has parameters, and only rules set them.
        group.policy = make(**options) if group.name == "earliest_finish" else make()

    def _on_join(self, row: Row) -> None:
        group = self._group(row)
        client_id = row["client_id"]
        load = self._loads.setdefault(client_id, ClientLoad(row["t"]))
        group.change((*group.members, Member(client_id, load, row["t"])))

    def _on_leave(self, row: Row) -> None:
        group = self._group(row)
        group.change(tuple(member for member in group.members if member.key != row["client_id"]))

    def _on_choose(self, row: Row) -> None:
        group = self._group(row)
        if group.policy is None:
            self.findings.note("a group chose before its policy was told")
            return
        members = group.members if row["detail"] is None else group.some(tuple(json.loads(row["detail"])))
        place = group.policy.choose(members, row["topic"].encode(), row["publisher"], row["t"], self._random)
        if group.name in BY_CHANCE:
            self.findings.note(f"choices of {group.name} are chance and are not compared")
            return
        self.findings.compare(row, "members", len(members))
        self.findings.compare(row, "place", place)
        load = members[row["place"]].load if row["place"] < len(members) else None
        for name, computed in (
            ("m_q", load and load.queue_length),
            ("m_s", load and load.sent_since_report),
            ("t_p", load and load.mean_time),
            ("service", load and load.service),
        ):
            self.findings.compare(row, name, computed)

    def _on_sent(self, row: Row) -> None:
        for member in self._group(row).members:
            if member.key == row["client_id"]:
                member.on_sent(row["t"], row["qos"])
                return
        self.findings.note(f"{row['client_id']} was sent a message of a group that it is not in")

    def _on_forget(self, row: Row) -> None:
        known = self._loads.get(row["client_id"])
        if known is None:
            self._loads[row["client_id"]] = ClientLoad(row["t"])
        else:
            known.forget(row["t"])

    def _load(self, row: Row) -> ClientLoad:
        return self._loads.setdefault(row["client_id"], ClientLoad(row["t"]))

    def _on_prior(self, row: Row) -> None:
        self._load(row).prime(row["service"])

    def _on_owes(self, row: Row) -> None:
        self._load(row).owes(row["left"], row["t"])

    def _on_rtt(self, row: Row) -> None:
        self._load(row).on_rtt(row["rtt"])

    def _on_done(self, row: Row) -> None:
        self._load(row).on_done(row["t"], row["count"], row["left"])

    def _on_report(self, row: Row) -> None:
        report = LoadReport(
            queue_length=row["m_q"],
            processing_time=row["t_p"],
            count=row["count"],
            processed=row["processed"],
        )
        self._load(row).on_report(row["t"], report)
