"""The readers that judge a log: deltalake, DuckDB and Delta Spark, asked the same question.

An answer is the rows, or what the reader said instead of them. Answers of one reader about two
places can be compared; those of two readers cannot, since each has types of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

import duckdb
import duckdb_extension_delta
import duckdb_extension_httpfs
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import DataFrame, SparkSession

    from mirror_assets_tests.store_services import S3Server


@dataclass(frozen=True)
class Rows:
    """What a table holds, without an order."""

    columns: str
    count: int
    digest: str


@dataclass(frozen=True)
class Refused:
    """What a reader says instead, without the place it was said of."""

    words: str


Answer = Rows | Refused


class Reader(Protocol):
    def __call__(self, root: str, *, version: int | None = None) -> Answer: ...


def deltalake_reader(s3: S3Server | None = None) -> Reader:
    options = object_store_options(s3)

    def read(root: str, *, version: int | None = None) -> Answer:
        def rows() -> Rows:
            table = DeltaTable(root, version=version, storage_options=options)
            query = QueryBuilder().register("t", table).execute("select * from t")
            return arrow_rows(pa.table(query.read_all()))

        return _answer(root, rows)

    return read


def duckdb_reader(s3: S3Server | None = None) -> Reader:
    connections = [duckdb_connection(s3)]

    def read(root: str, *, version: int | None = None) -> Answer:
        at = "" if version is None else f", version => {version}"
        place = root.replace("'", "''")

        def rows() -> Rows:
            try:
                return _digest(connections[-1], f"delta_scan('{place}'{at})")
            except (duckdb.InternalException, duckdb.FatalException):
                # After an internal error nothing goes any more.
                connections.append(duckdb_connection(s3))
                raise

        return _answer(root, rows)

    return read


def spark_reader(spark: SparkSession, s3: S3Server | None = None) -> Reader:
    def read(root: str, *, version: int | None = None) -> Answer:
        def rows() -> Rows:
            source = spark.read.format("delta").options(**s3a_options(s3))
            if version is not None:
                source = source.option("versionAsOf", version)
            frame = source.load(root.replace("s3://", "s3a://"))
            # The sum of hashes is the same in any order.
            digest = f"sum(cast({_row_hash(frame)} as decimal(38, 0)))"
            (row,) = frame.selectExpr("count(*) as rows", f"{digest} as digest").collect()
            return Rows(frame.schema.json(), row["rows"], str(row["digest"]))

        return _answer(root, rows)

    return read


def _row_hash(frame: DataFrame) -> str:
    columns = ", ".join(f"`{name.replace('`', '``')}`" for name in frame.columns)
    if not {"map", "variant"} & set(re.findall(r"\w+", frame.schema.json())):
        return f"xxhash64({columns})"
    # JSON also takes maps and variants, and is slow.
    return f"xxhash64(to_json(struct({columns}), map('ignoreNullFields', 'false')))"


def live_files(root: str, s3: S3Server | None = None) -> Answer:
    """The live files as deltalake lists them: what can be said of a log without its data."""
    options = object_store_options(s3)

    def rows() -> Rows:
        actions = DeltaTable(root, storage_options=options).get_add_actions(flatten=True)
        table = pa.table(actions)
        # Not the statistics: a foreign checkpoint may have left them out, ours have them.
        told = ("path", "size_bytes", "deletion_vector", "partition.")
        return arrow_rows(table.select([n for n in table.column_names if n.startswith(told)]))

    return _answer(root, rows)


def spark_live_files(spark: SparkSession, root: str, s3: S3Server | None = None) -> Answer:
    def rows() -> Rows:
        source = spark.read.format("delta").options(**s3a_options(s3))
        frame = source.load(root.replace("s3://", "s3a://"))
        files = sorted(_without_place(root, file) for file in frame.inputFiles())
        return Rows(frame.schema.json(), len(files), "\n".join(files))

    return _answer(root, rows)


def s3a_options(s3: S3Server | None) -> dict[str, str]:
    """How Spark's own S3 client reaches the server; Delta passes them on."""
    if s3 is None:
        return {}
    return {
        "fs.s3a.endpoint": s3.endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": s3.access_key,
        "fs.s3a.secret.key": s3.secret_key,
        "fs.s3a.aws.credentials.provider": (
            "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
        ),
    }


def duckdb_connection(s3: S3Server | None = None) -> duckdb.DuckDBPyConnection:
    """With the extensions that come as wheels; nothing is downloaded."""
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    connection.execute(f"load '{_extension(duckdb_extension_delta)}'")
    if s3 is not None:
        connection.execute(f"load '{_extension(duckdb_extension_httpfs)}'")
        endpoint = s3.endpoint.removeprefix("http://")
        connection.execute(
            f"create secret (type s3, key_id '{s3.access_key}', secret '{s3.secret_key}', "
            f"region 'us-east-1', endpoint '{endpoint}', url_style 'path', use_ssl false)"
        )
    return connection


def arrow_rows(table: pa.Table) -> Rows:
    connection = _hasher()
    connection.register("found", table.select(sorted(table.column_names)))
    try:
        return _digest(connection, "found")
    finally:
        connection.unregister("found")


@cache
def _hasher() -> duckdb.DuckDBPyConnection:
    """Opening one takes longer than most tables."""
    return duckdb.connect()


def _digest(connection: duckdb.DuckDBPyConnection, source: str) -> Rows:
    """Count and sum of hashes, which are the same in any order."""
    columns = connection.sql(
        f"select column_name, column_type from (describe from {source})"
    ).fetchall()
    query = f"select count(*), sum(hash(t)::hugeint)::varchar from {source} t"
    count, digest = connection.sql(query).fetchall()[0]
    return Rows(str(sorted(columns)), count, digest or "")


def _answer(root: str, rows: Callable[[], Rows]) -> Answer:
    try:
        return rows()
    except Exception as error:  # noqa: BLE001 - whatever a reader says is its answer
        said = _without_place(root, _words(error)).strip().splitlines() or [""]
        # Which of several missing files is named first is chance.
        return Refused(f"{type(error).__name__}: {re.sub('<root>/.*', '<file>', said[0])}")


def _words(error: Exception) -> str:
    """What it says; an exception of the JVM says it in its first cause."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return str(error)
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString())


def _without_place(root: str, text: str) -> str:
    """The text without names that differ from place to place, or from call to call."""
    bare = root.split("://", 1)[-1].rstrip("/")
    text = unquote(text)
    return re.sub(rf"(file:|s3a?:)?/*{re.escape(bare.lstrip('/'))}/?", "<root>/", text)


def object_store_options(s3: S3Server | None) -> dict[str, str] | None:
    """How deltalake reaches the server."""
    if s3 is None:
        return None
    return {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def _extension(module: ModuleType) -> Path:
    (site,) = module.__path__ if module.__file__ is None else [str(Path(module.__file__).parent)]
    return next(Path(site).rglob("*.duckdb_extension"))
