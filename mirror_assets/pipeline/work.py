"""Spark distributes work items, not rows.

A task gets an item, does its work against SQL and the store by itself, and answers with one small
document of facts; no row and no file goes through the driver. Only what Spark Connect knows too is
used, so the same call runs on `local[*]`, a cluster, or `sc://`.

A task that fails for good answers with its error, which is raised here as what it was. What may
pass (TransientError, and whatever nobody foresaw) is left to Spark, which tries the task again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

import orjson
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirror_assets import errors
from mirror_assets.errors import MirrorAssetsError, PermanentError, SparkJobError

Item = TypeVar("Item")
Facts = dict[str, Any]

#: how a job's failure comes to its driver; the second, if PySpark does not know the exception
SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
_SCHEMA: Final = "item bigint, facts string, error string"
_ARROW: Final = pa.schema([("item", pa.int64()), ("facts", pa.string()), ("error", pa.string())])
_SHOWN: Final = 2_000


@dataclass(frozen=True, slots=True)
class Workers:
    """A Spark session as far as work items go: for those who know nothing else of Spark."""

    spark: SparkSession

    def run(
        self, items: Sequence[Item], task: Callable[[Item], Facts], *, slices: int | None = None
    ) -> list[Facts]:
        """See `run_items`."""
        return run_items(self.spark, items, task, slices=slices)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Spark session stays with its driver; hand the task an Access instead")


def run_items(
    spark: SparkSession,
    items: Sequence[Item],
    task: Callable[[Item], Facts],
    *,
    slices: int | None = None,
) -> list[Facts]:
    """Run the task on every item, in parallel; the facts of each, in the order of the items.

    `slices` is the number of Spark tasks, one per item by default. Raises the error of the first
    item that failed for good, SparkJobError if Spark gave up.
    """
    if not items:
        return []
    width = min(len(items), slices or len(items))
    work = _work(list(items), task, width)
    try:
        rows = spark.range(0, width, 1, width).mapInArrow(work, _SCHEMA).collect()
    except SPARK_ERRORS as exc:
        message = f"a Spark job of {len(items)} items failed: {_reason(exc)}"
        raise SparkJobError(message) from exc
    found = {row["item"]: row for row in rows}
    for number in range(len(items)):
        if number not in found:
            raise SparkJobError(f"Spark lost the answer of item {number}")
        if found[number]["error"] is not None:
            raise _revived(orjson.loads(found[number]["error"]))
    return [orjson.loads(found[number]["facts"]) for number in range(len(items))]


def _work(
    items: list[Item], task: Callable[[Item], Facts], width: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def answer(number: int) -> tuple[int, str | None, str | None]:
        try:
            return number, orjson.dumps(task(items[number])).decode(), None
        except PermanentError as error:
            return number, None, orjson.dumps(error.as_dict()).decode()

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for slice_number in batch.column(0).to_pylist():
                answers = [answer(number) for number in range(slice_number, len(items), width)]
                columns = zip(*answers, strict=True)
                arrays = [pa.array(c, f.type) for c, f in zip(columns, _ARROW, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)

    return work


def _revived(document: dict[str, Any]) -> MirrorAssetsError:
    kind = getattr(errors, document["error"], PermanentError)
    members = {name: document[name] for name in ("table", "version", "rule", "remedy")}
    error: MirrorAssetsError = kind(document["message"], **members)
    return error


def _reason(exc: Exception) -> str:
    """The last line of a Python traceback says most; Java's frames say nothing to a reader."""
    text = str(exc).strip()
    lines = [line for line in text.splitlines() if line and not line.startswith(("\tat ", "  "))]
    return " | ".join(dict.fromkeys(lines))[:_SHOWN]
