"""The rest of a made-up lake beside `publish`: gateways and labels, calls, groups, checks, the nodes themselves.

Each function makes one hour of one table as columns, as `lake.arrow.complete` takes them, vectorised like the traffic.
Times are µs since 1970 and lie within the hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.lake.generate_fleet import Floats, Ints, Random

HOUR_US: Final = 3_600_000_000
Columns = Mapping[str, pa.Array]

GRID: Final = 20.0  # metres between two gateways
NOISE: Final = 4.0  # dB of a single advertisement
HEARD: Final = -92.0  # dBm below which nothing is heard
LOSS_EXPONENT: Final = 2.7  # indoors
TOLERANCE_DB: Final = (
    5.0  # a gateway this close to the strongest is right as well: no rule with hysteresis does better
)


def timestamps(values: Ints) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def names(index: NDArray[Any], dictionary: list[str]) -> pa.Array:
    """Names by number, as plain strings: the writer makes the dictionary."""
    found = pa.DictionaryArray.from_arrays(
        pa.array(index.astype(np.int32)), pa.array(dictionary, pa.string())
    )
    return found.dictionary_decode()


class Store:
    """Gateways on a grid and electronic labels on shelves; some labels are carried elsewhere, some gateways die."""

    def __init__(self, devices: int, hours: int, rng: Random) -> None:
        side = max(2, round((devices / 25) ** 0.5))
        self.gateways = [f"0200000000{n:02X}" if n < 256 else f"02000000{n:04X}" for n in range(side * side)]
        self.gateway_at = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2) * GRID
        self.macs = [f"0A{n:010X}" for n in range(devices)]
        extent = side * GRID
        self.before = rng.uniform(-GRID / 2, extent - GRID / 2, (devices, 2))
        is_moved = rng.random(devices) < 0.10
        self.after = np.where(
            is_moved[:, None], rng.uniform(-GRID / 2, extent - GRID / 2, (devices, 2)), self.before
        )
        span = hours * HOUR_US
        self.moved_us = np.where(is_moved, rng.uniform(0.2, 0.8, devices) * span, np.inf)
        dies = rng.choice(len(self.gateways), size=max(1, len(self.gateways) // 10), replace=False)
        self.died_us = np.full(len(self.gateways), np.inf)
        self.died_us[dies] = rng.uniform(0.3, 0.85, len(dies)) * span
        self.hours = hours

    def strength(self, offset_us: float) -> Floats:
        """True RSSI of each device at each gateway at a moment; -inf at a dead one."""
        place = np.where((self.moved_us <= offset_us)[:, None], self.after, self.before)
        distance = np.sqrt(((place[:, None, :] - self.gateway_at[None, :, :]) ** 2).sum(-1)).clip(1.0)
        found: Floats = -45.0 - 10.0 * LOSS_EXPONENT * np.log10(distance)
        found[:, self.died_us <= offset_us] = -np.inf
        return found

    def hour(self, index: int, start_us: int, rows: int, rng: Random) -> Columns:
        """Each device is heard by its strongest gateways, in rounds spread over the hour."""
        devices = len(self.macs)
        heard = min(3, len(self.gateways))
        # A round of all devices takes `heard` rows each; the last rounds of the lake must tell where devices are now.
        rounds = max(4, rows // (devices * heard))
        parts: list[tuple[Ints, Ints, Floats, Ints, Ints]] = []
        for number in range(rounds):
            begin = number * HOUR_US / rounds
            strength = self.strength(index * HOUR_US + begin)
            best = np.argpartition(-strength, heard - 1, axis=1)[:, :heard]
            right = strength.argmax(1)
            at = begin + rng.uniform(0.0, HOUR_US / rounds, devices)
            device = np.repeat(np.arange(devices), heard)
            gateway = best.reshape(-1)
            # All gateways hear the same advertisement.
            moment = np.repeat(at, heard) + rng.uniform(0.0, 2_000.0, devices * heard)
            true = self.strength_at(device, gateway, index * HOUR_US + moment)
            rssi = true + rng.normal(0.0, NOISE, len(device))
            has = rssi > HEARD
            parts.append(
                (
                    device[has],
                    gateway[has],
                    rssi[has],
                    moment[has].astype(np.int64),
                    np.repeat(right, heard)[has],
                )
            )
        device, gateway, rssi, moment, right = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(moment)
        return {
            "ts": timestamps(start_us + moment[order].clip(0, HOUR_US - 1)),
            "mac": names(device[order], self.macs),
            "gw": names(gateway[order], self.gateways),
            "rssi": pa.array(np.round(rssi[order])),
            "label": names(right[order], self.gateways),
        }

    def strength_at(self, device: Ints, gateway: Ints, offset_us: Floats) -> Floats:
        """The same for single advertisements."""
        has_moved = self.moved_us[device] <= offset_us
        place = np.where(has_moved[:, None], self.after[device], self.before[device])
        distance = np.sqrt(((place - self.gateway_at[gateway]) ** 2).sum(-1)).clip(1.0)
        found: Floats = -45.0 - 10.0 * LOSS_EXPONENT * np.log10(distance)
        return np.where(self.died_us[gateway] <= offset_us, -np.inf, found)

    def labels(self) -> dict[str, pa.Array]:
        """The right gateway of each device at the end, and all that are right enough."""
        strength = self.strength(self.hours * HOUR_US - 1)
        best = strength.max(1)
        right = [
            [self.gateways[g] for g in np.flatnonzero(strength[d] >= best[d] - TOLERANCE_DB)]
            for d in range(len(self.macs))
        ]
        return {
            "mac": pa.array(self.macs),
            "gw": names(strength.argmax(1), self.gateways),
            "acceptable": pa.array(right, pa.list_(pa.string())),
            "moved_us": pa.array(np.where(np.isfinite(self.moved_us), self.moved_us, -1).astype(np.int64)),
        }


HOPS_MS: Final = (5.0, 2.0, 1.0, 40.0, 2.0, 1.5)  # median of each hop of a call


def calls(store: Store, hour_of_day: int, start_us: int, rows: int, rng: Random) -> Columns:
    """Calls to labels, hop by hop. Between 18 and 20 o'clock the return routers are the bottleneck."""
    begin = rng.integers(0, HOUR_US - 200_000_000, rows)
    hops = rng.lognormal(0.0, 0.5, (rows, len(HOPS_MS))) * np.asarray(HOPS_MS) * 1e3
    if hour_of_day in (18, 19):
        hops[:, 4] *= 60.0
    moments = begin[:, None] + np.concatenate([np.zeros((rows, 1)), np.cumsum(hops, axis=1)], axis=1).astype(
        np.int64
    )
    outcome = rng.choice(4, size=rows, p=[0.96, 0.02, 0.015, 0.005])
    is_lost = outcome == 2
    end = np.where(is_lost, begin + 60_000_000, moments[:, 6])
    device = rng.integers(0, len(store.macs), rows)
    gateway = rng.integers(0, len(store.gateways), rows)
    order = np.argsort(end)
    columns: dict[str, pa.Array] = {
        "ts": timestamps(start_us + end[order]),
        "backbone": pa.array(["mqtt"] * rows),
        "replicas": pa.array(np.full(rows, 2, np.int32)),
        "workers": pa.array(np.full(rows, 50, np.int32)),
        "request_id": pa.array([f"{start_us // HOUR_US:x}-{n:08x}" for n in range(rows)]),
        "mac": names(device[order], store.macs),
        "gw": names(gateway[order], store.gateways),
        "outcome": names(outcome[order], ["ack", "nack", "timeout", "misrouted"]),
        "attempt": pa.array(np.ones(rows, np.int32)),
    }
    columns["task_id"] = columns["request_id"]
    for at, name in enumerate(("t_enqueued", "t_worker", "t_fwd", "t_mqtt", "t_gw", "t_bck", "t_reply")):
        # A call that timed out was published and never answered.
        values = timestamps(start_us + moments[order, at])
        columns[name] = pa.compute.if_else(
            pa.array(is_lost[order] & (at >= 4)), pa.scalar(None, values.type), values
        )
    return columns


MEMBERS: Final = (
    (0.025, 0.2),
    (0.025, 0.2),
    (0.050, 0.4),
    (0.010, 0.1),
)  # seconds a message takes, and its spread


def members(start_us: int, window_us: int, groups: int, rng: Random) -> Columns:
    """States of shared groups, once a window; the third member is the slow one."""
    windows = HOUR_US // window_us
    size = len(MEMBERS)
    window = np.repeat(np.arange(windows), groups * size)
    group = np.tile(np.repeat(np.arange(groups), size), windows)
    member = np.tile(np.arange(size), windows * groups)
    mean, spread = np.asarray(MEMBERS).T
    count = rng.poisson(4.0 / mean[member] / 40.0)
    service = mean[member] * (
        1.0 + rng.normal(0.0, 1.0, len(member)) * spread[member] / np.sqrt(count.clip(1))
    ).clip(0.2)
    has = count > 0
    return {
        "ts": timestamps(start_us + window * window_us),
        "kind": pa.array(["state"] * len(window)),
        "group": names(group, [f"workers-{n}" for n in range(groups)]),
        "topic_filter": pa.array(["jobs/#"] * len(window)),
        "policy": pa.array(["earliest_finish"] * len(window)),
        "client_id": names(
            group * size + member, [f"worker-{g}-{m}" for g in range(groups) for m in range(size)]
        ),
        "count": pa.array(count),
        "m_q": pa.array(rng.poisson(1.0, len(window))),
        "m_s": pa.array(count),
        "t_p": pa.array(np.where(has, service, np.nan), from_pandas=True),
        "service": pa.array(np.where(has, service, np.nan), from_pandas=True),
        "outstanding": pa.array(rng.poisson(1.0, len(window))),
        "wait": pa.array(service * rng.poisson(1.0, len(window))),
    }


ALPHA, DELTA = 2.0, 0.5


class Polling:
    """Knowledge processors under adaptive control: their timeout falls when updates were lost, else it grows."""

    def __init__(self, clients: int, rng: Random) -> None:
        self.loss_rate = rng.uniform(0.005, 0.05, clients)  # updates lost per second
        self._timeout = np.full(clients, 5.0)
        self._number = np.zeros(clients, np.int64)

    def hour(self, start_us: int, rows: int, rng: Random) -> Columns:
        """Steps of all clients together, a loop over steps only."""
        clients = len(self.loss_rate)
        steps = max(2, rows // clients)
        # Checks of the hour's beginning; the next hour goes on with the timeout that was reached.
        now = rng.uniform(0.0, 1.0, clients)
        parts = []
        for _ in range(steps):
            now = now + self._timeout
            losses = rng.poisson(self.loss_rate * self._timeout)
            used = self._timeout
            self._timeout = np.where(losses > 0, used / ALPHA, used + DELTA).clip(0.2, 60.0)
            self._number = self._number + 1
            parts.append((np.arange(clients), now, losses, used, self._number))
        client, at, lost, used, number = (np.concatenate(each) for each in zip(*parts, strict=True))
        has = at < 3_590.0
        client, at, lost, used, number = (each[has] for each in (client, at, lost, used, number))
        order = np.argsort(at)
        client, at, lost, used, number = (each[order] for each in (client, at, lost, used, number))
        sent = start_us + (at * 1e6).astype(np.int64)
        size = len(client)
        return {
            "ts": timestamps(sent),
            "kind": pa.array(["control"] * size),
            "client_id": names(client, [f"kp-{n:04d}" for n in range(clients)]),
            "level": pa.array(np.full(size, 2, np.int16)),
            "requirement": pa.array(["light"] * size),
            "init_mode": pa.array(["interval"] * size),
            "check_number": pa.array(number),
            "t_send": timestamps(sent),
            "t_resp": timestamps(sent + rng.integers(5_000, 50_000, size)),
            "dropped": pa.array(np.zeros(size, bool)),
            "losses": pa.array(lost),
            "t_ast": pa.array(used),
            "t_bck": pa.array(np.zeros(size)),
            "t_avg": pa.array(np.full(size, 0.02)),
            "congested": pa.array(np.zeros(size, bool)),
        }
