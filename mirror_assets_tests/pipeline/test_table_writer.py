"""DataFrames become rows that three readers see, in every mode, and in none they should not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandera.pyspark as pandera
import pytest
from pyspark.sql import types as T  # noqa: N812 - PySpark's own name for it

from mirror_assets.errors import (
    RowsRefusedError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    WriteRefusedError,
)
from mirror_assets.metastore.outcomes import AlreadyCommitted, Conflict
from mirror_assets.metastore.registry import create_table
from mirror_assets.pipeline import table_writer
from mirror_assets.pipeline.table_writer import Application, write_table
from mirror_assets_tests.builders import changed, commit
from mirror_assets_tests.delta.samples import a_field, a_schema
from mirror_assets_tests.pipeline.lakehouse import TABLE, by_all, by_deltalake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirror_assets.pipeline.data_writer import WrittenFiles
    from mirror_assets_tests.pipeline.lakehouse import Lakehouse


def orders(lakehouse: Lakehouse, *ids: int) -> DataFrame:
    rows = [(number, f"p{number % 2}") for number in ids]
    return lakehouse.spark.createDataFrame(rows, "id long, p string").coalesce(1)


def test_rows_of_a_dataframe_are_read_by_three_readers_with_values_and_partitions(
    lakehouse: Lakehouse,
) -> None:
    values = ["a b", "x:y", "p%q", "s/t", "u=v", "w?#&+", "é", "😀", None, 'quo"te']
    rows = [(number, value) for number, value in enumerate(values)]
    frame = lakehouse.spark.createDataFrame(rows, "id long, p string")

    written = lakehouse.write(frame, partition_by=["p"])
    lakehouse.mirror()

    assert (written.version, written.rows) == (1, 10)
    for seen in by_all(lakehouse.spark, lakehouse.place()):
        assert seen == sorted(rows, key=repr)
    listed = {add.partition_values["p"] for add in lakehouse.reader.live_files(TABLE)}
    assert listed == set(values)
    info = lakehouse.info()
    assert info["operationParameters"] == {"mode": "Append", "partitionBy": '["p"]'}
    assert info["operationMetrics"]["numOutputRows"] == "10"
    assert info["isBlindAppend"] is True
    assert lakehouse.orphans() == set()


def test_overwrite_replaces_all_rows_or_those_of_the_partitions_asked_for(
    lakehouse: Lakehouse,
) -> None:
    place = lakehouse.place()
    lakehouse.write(orders(lakehouse, 1, 2, 3, 4), partition_by=["p"])

    done = lakehouse.write(orders(lakehouse, 11), mode="overwrite", partition_overwrite=True)
    lakehouse.mirror()
    assert by_deltalake(place) == [(11, "p1"), (2, "p0"), (4, "p0")]
    assert done.removed_files == 1

    lakehouse.write(orders(lakehouse, 20), mode="overwrite", replace_where="p = 'p0'")
    lakehouse.mirror()
    assert by_deltalake(place) == [(11, "p1"), (20, "p0")]
    assert lakehouse.info()["operationParameters"]["predicate"] == "p = 'p0'"

    lakehouse.write(orders(lakehouse, 30), mode="overwrite")
    lakehouse.mirror()
    assert by_deltalake(place) == [(30, "p0")]
    assert lakehouse.info()["operationMetrics"]["numRemovedFiles"] == "2"


def test_replace_where_takes_only_rows_inside_and_only_partition_columns(
    lakehouse: Lakehouse,
) -> None:
    lakehouse.write(orders(lakehouse, 1, 2), partition_by=["p"])
    for condition in ("id = 2", "p ="):
        with pytest.raises(WriteRefusedError, match="no condition on the partition columns"):
            lakehouse.write(orders(lakehouse, 2), mode="overwrite", replace_where=condition)
    with pytest.raises(WriteRefusedError, match="only the mode 'overwrite'"):
        lakehouse.write(orders(lakehouse, 2), replace_where="p = 'p0'")
    assert lakehouse.orphans() == set()
    with pytest.raises(WriteRefusedError, match="outside of replace_where"):
        lakehouse.write(orders(lakehouse, 3), mode="overwrite", replace_where="p = 'p0'")
    assert lakehouse.reader.table(TABLE).head_version == 1


def test_a_table_that_is_there_is_left_alone_or_refused_when_asked(lakehouse: Lakehouse) -> None:
    lakehouse.write(orders(lakehouse, 1), mode="errorifexists")
    assert lakehouse.write(orders(lakehouse, 2), mode="ignore").outcome is None
    with pytest.raises(TableExistsError):
        lakehouse.write(orders(lakehouse, 2), mode="errorifexists")
    with pytest.raises(TableNotFoundError):
        write_table(orders(lakehouse, 2), "sales.none", access=lakehouse.access)
    assert lakehouse.reader.table(TABLE).head_version == 1


def test_columns_are_matched_by_name_widened_and_never_narrowed(lakehouse: Lakehouse) -> None:
    spark = lakehouse.spark
    fields = [a_field("id"), a_field("amount", "decimal(12,2)"), a_field("note", "string")]
    create_table(lakehouse.metastore, TABLE, str(lakehouse.place()), a_schema(*fields))

    frame = spark.createDataFrame([(7, 1)], "AMOUNT int, id int")
    lakehouse.write(frame)
    lakehouse.mirror()
    assert by_deltalake(lakehouse.place(), "id, amount, note") == [(pytest.approx(7), 1, None)]

    for schema, problem in [
        ("id string", "'id' is string, the table has long"),
        ("id long, other int", "'other' is no column"),
        ("id long, amount double", "'amount' is double"),
        ("id long, note array<string>", "'note' is array<string>"),
    ]:
        with pytest.raises(SchemaMismatchError, match=problem):
            lakehouse.write(spark.createDataFrame([], schema))


def test_a_new_column_joins_the_table_in_the_commit_of_its_first_rows(lakehouse: Lakehouse) -> None:
    spark = lakehouse.spark
    lakehouse.write(spark.sql("select 1L as id, named_struct('a', 1) as s"))
    wider = spark.sql("select named_struct('b', 'x', 'a', 2) as s, 2L as id, 'new' as note")
    written = lakehouse.write(wider, merge_schema=True)
    lakehouse.mirror()

    expected = [(1, None, 1, None), (2, "new", 2, "x")]
    columns = "id, note, s.a as sa, s.b as sb"
    for seen in by_all(spark, lakehouse.place(), columns):
        assert seen == expected
    assert written.version == 2
    history = lakehouse.reader.history(TABLE, 1)[0]
    assert (history["num_metadata"], history["num_adds"]) == (1, 1)


def test_rows_that_break_a_rule_of_the_table_are_refused_and_nothing_is_committed(
    lakehouse: Lakehouse,
) -> None:
    spark = lakehouse.spark
    required = {**a_field("id"), "nullable": False}
    properties = {"delta.constraints.positive": "amount > 0"}
    schema = a_schema(required, a_field("amount", "integer"))
    create_table(
        lakehouse.metastore, TABLE, str(lakehouse.place()), schema, configuration=properties
    )
    for row, message in [((None, 1), "id is null"), ((1, 0), "positive"), ((1, None), "positive")]:
        with pytest.raises(RowsRefusedError, match=message):
            lakehouse.write(spark.createDataFrame([row], "id long, amount int"))
    assert lakehouse.reader.table(TABLE).head_version == 0
    lakehouse.write(spark.createDataFrame([(1, 5)], "id long, amount int"))
    assert lakehouse.reader.table(TABLE).head_version == 1


def test_a_write_that_lost_is_told_so_and_its_files_are_known(lakehouse: Lakehouse) -> None:
    lakehouse.write(orders(lakehouse, 1))
    metadata = lakehouse.reader.summary(TABLE).metadata
    original = table_writer.write_files

    def raced(*args: Any, **kwargs: Any) -> WrittenFiles:
        done = original(*args, **kwargs)
        commit(lakehouse.metastore, TABLE, changed(metadata, **{"delta.appendOnly": "false"}))
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_writer, "write_files", raced)
        lost = lakehouse.write(orders(lakehouse, 2))
    assert isinstance(lost.outcome, Conflict)
    assert lost.orphans is not None
    assert {name.partition("/")[0] for name in lakehouse.orphans()} == {lost.orphans}


def test_an_application_that_counts_its_writes_never_writes_twice(lakehouse: Lakehouse) -> None:
    job = Application(app_id="nightly", version=7)
    first = lakehouse.write(orders(lakehouse, 1), application=job)
    again = lakehouse.write(orders(lakehouse, 1), application=job)
    assert first.rows == 1
    assert isinstance(again.outcome, AlreadyCommitted)
    lakehouse.mirror()
    assert by_deltalake(lakehouse.place()) == [(1, "p1")]
    assert lakehouse.orphans() == set()


def test_rows_that_break_a_declared_schema_are_refused_with_its_report(
    lakehouse: Lakehouse,
) -> None:
    schema = pandera.DataFrameSchema(
        {
            "id": pandera.Column(T.LongType(), pandera.Check.gt(0)),
            "p": pandera.Column(T.StringType()),
        }
    )
    with pytest.raises(RowsRefusedError, match="in id") as refused:
        lakehouse.write(orders(lakehouse, 0, 1), check=schema)
    assert refused.value.report["DATA"]["DATAFRAME_CHECK"][0]["column"] == "id"
    assert lakehouse.reader.tables() == []
    assert lakehouse.write(orders(lakehouse, 1), check=schema).rows == 1
