"""A streaming job that is meant to be killed: `python -m bench.spark.driver URL FOLDER`.

MQTT to Parquet with a checkpoint, as a user would write it. Started again with the same folder it goes on where the
checkpoint and the spool are. It prints the number of rows that were written, also by drivers before it, and ends when
standard input does.
"""

from __future__ import annotations

import sys
import threading

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from bench.spark.session import make_session
from bench.spark.speed import processed

TOPICS = "survive/#"


def start_query(spark: SparkSession, url: str, folder: str) -> StreamingQuery:
    """MQTT to Parquet; everything it keeps is in `folder`."""
    return (
        spark.readStream.format("mqtt")
        .option("url", url).option("topics", TOPICS).option("spool", f"{folder}/spool").option("payload", "json")
        .schema("event_id BIGINT, seq BIGINT")
        .load()
        .writeStream.format("parquet")
        .option("path", f"{folder}/rows").option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )  # fmt: skip


def main(url: str, folder: str) -> None:
    spark = make_session(folder, "bench.spark.survive", memory="1g")
    query = start_query(spark, url, folder)
    print("started", flush=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.wait(0.2):
        if (error := query.exception()) is not None:
            raise SystemExit(f"error: {error}")
        print(processed(query), flush=True)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])
