"""Somebody looks into the store file of a running broker with a tool of his own: that harms nobody."""

import sqlite3
from pathlib import Path

from tests.crash.process import BrokerProcess
from tidegate.broker.store.store import FILE_NAME
from tidegate.mqtt import Publish
from tidegate.mqtt.properties import Property
from tidegate.testing.raw import RawClient

STAYS = {Property.SESSION_EXPIRY_INTERVAL: 3600}


def look(data: Path) -> int:
    db = sqlite3.connect(data / FILE_NAME)
    (count,) = db.execute("SELECT count(*) FROM queue").fetchone()
    db.close()
    return int(count)


def test_what_is_acknowledged_after_a_stranger_read_the_file_survives_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.port) as reader, RawClient(broker.port) as writer:
            reader.connect("reader", properties=STAYS)
            reader.subscribe("t", qos=1)
            reader.disconnect()
            writer.connect("writer")
            for number in range(10):
                assert look(broker.data) == number
                writer.publish("t", b"%d" % number, qos=1)
        broker.restart()
        with RawClient(broker.port) as reader:
            assert reader.connect("reader", clean_start=False, properties=STAYS).session_present
            assert [reader.take(Publish).payload for _ in range(10)] == [
                b"%d" % number for number in range(10)
            ]
