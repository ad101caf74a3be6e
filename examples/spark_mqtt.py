"""MQTT in a Spark notebook, cell by cell: `python examples/spark_mqtt.py --port 1883`, with a broker there.

Needs `pip install 'tidegate[spark]'` and Java 17. Cells are marked as Jupyter, VS Code and Databricks do (`# %%`).
"""

# %% A session of your own, and the two lines
import argparse
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tidegate.spark import register

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=1883)
URL = f"mqtt://127.0.0.1:{parser.parse_args().port}"
FOLDER = Path(tempfile.mkdtemp(prefix="spark-mqtt-"))

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
register(spark)


# %% A stream of JSON readings. The first run only makes the subscription: nothing is published yet.
def readings(spool: str) -> DataFrame:
    return (
        spark.readStream.format("mqtt")
        .option("url", URL)
        .option("topics", "plant/+/temperature")
        .option("spool", str(FOLDER / spool))
        .option("payload", "json")
        .option("idleTimeout", "1")
        .schema("event_id BIGINT, celsius DOUBLE, topic STRING")
        .load()
    )


def run_once() -> None:
    query = (
        readings("spool")
        .dropDuplicates(["event_id"])  # at least once becomes once
        .writeStream.format("parquet")
        .option("path", str(FOLDER / "rows"))
        .option("checkpointLocation", str(FOLDER / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


run_once()

# %% Publish a data frame: a column `topic`, everything else as JSON
measured = spark.range(1000).select(
    sf.concat(sf.lit("plant/"), sf.col("id") % 3, sf.lit("/temperature")).alias("topic"),
    sf.col("id").alias("event_id"),
    (20 + sf.col("id") % 7).cast("double").alias("celsius"),
)
for _ in range(2):  # twice, as after a crash
    measured.write.format("mqtt").option("url", URL).option("payload", "json").mode("append").save()
print("published 2000 messages")

# %% Read what came while nobody was looking: the broker kept it for the session
run_once()
rows = spark.read.parquet(str(FOLDER / "rows"))
print("different events:", rows.count())
topics = rows.groupBy("topic").agg(sf.count("*").alias("n"), sf.max("celsius").alias("most"))
for row in topics.orderBy("topic").collect():
    print(row.topic, row.n, row.most)

# %% What is retained, as a batch
named = [("plant/0/name", "boiler"), ("plant/1/name", "mill")]
frame = spark.createDataFrame(named, "topic STRING, payload STRING")
frame.write.format("mqtt").option("url", URL).option("retain", "true").mode("append").save()
names = (
    spark.read.format("mqtt")
    .option("url", URL)
    .option("topics", "plant/+/name")
    .option("idleTimeout", "1")
    .load()
)
for row in names.select("topic", sf.col("payload").cast("string").alias("name")).orderBy("topic").collect():
    print(row.topic, "is the", row.name)
