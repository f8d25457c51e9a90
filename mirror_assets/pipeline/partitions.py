"""Which partitions a condition selects: Spark itself decides, on the values alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from mirror_assets.delta.conflicts import PartitionPredicate
from mirror_assets.errors import WriteRefusedError
from mirror_assets.pipeline.data_writer import Target
from mirror_assets.pipeline.schemas import quoted

_NUMBER: Final = "__mirror_assets_number"


def matching_partitions(
    spark: SparkSession, target: Target, partitions: Collection[PartitionPredicate], condition: str
) -> set[PartitionPredicate]:
    """Those of the partitions for which the condition is true.

    Raises WriteRefusedError for a condition on anything but partition columns.
    """
    listed = list(partitions)
    columns = target.partition_columns
    names = ", ".join(f"{quoted(name)} string" for name in columns)
    rows = [(n, *(dict(p).get(c) for c in columns)) for n, p in enumerate(listed)]
    values = spark.createDataFrame(rows, f"{_NUMBER} long, {names}")
    typed = values.select(
        _NUMBER,
        *(
            F.col(quoted(name)).cast(cast_name(target.partition_types[name].name)).alias(name)
            for name in columns
        ),
    )
    try:
        chosen = typed.where(condition).select(_NUMBER).collect()
    except AnalysisException as exc:
        reason = str(exc).partition("\n")[0]
        message = f"{condition!r} is no condition on the partition columns {columns}: {reason}"
        remedy = "rewrite other rows with `delete_rows` or `update_rows`"
        raise WriteRefusedError(message, table=target.table, remedy=remedy) from exc
    return {listed[row[0]] for row in chosen}


def cast_name(name: str) -> str:
    """A type's name as a cast takes it."""
    return {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}.get(
        name, name
    )
