"""The broker's decisions computed again from what was recorded, by the same `flow/` objects. Imports no pyspark."""
