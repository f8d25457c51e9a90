"""Bulk reads: every type, every engine, fresh commits, and a database that goes away."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import make_url, select

from mirror_assets.errors import DatabaseUnavailableError
from mirror_assets.metastore.arrow_reader import ArrowReader, stream
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.tables import dl_add_files
from mirror_assets_tests.builders import a_metastore, a_table, add, commit
from mirror_assets_tests.delta.samples import stats_of

COLUMNS = ("path", "size", "data_change", "stats", "tags", "dv_offset")


def read(metastore: Metastore) -> list[dict[str, object]]:
    query = select(*(dl_add_files.c[name] for name in COLUMNS)).order_by(dl_add_files.c.path)
    return pa.Table.from_batches(stream(metastore, query)).to_pylist()


def test_rows_come_typed_also_where_the_first_ones_are_null(metastore: Metastore) -> None:
    table = a_table(metastore)
    commit(metastore, table, *(add(f"{n:05}.parquet") for n in range(5_000)))
    commit(metastore, table, add("last-ü😀", stats=stats_of(3), size=2**40))

    rows = read(metastore)

    assert len(rows) == 5_001
    assert rows[0]["stats"] is None
    assert rows[-1] == {
        "path": "last-ü😀",
        "size": 2**40,
        "data_change": True,
        "stats": stats_of(3),
        "tags": None,
        "dv_offset": None,
    }


def test_few_rows_come_in_the_same_types_as_many(metastore: Metastore) -> None:
    commit(metastore, a_table(metastore), add("a.parquet", stats=stats_of(3)))
    query = select(*(dl_add_files.c[name] for name in COLUMNS))

    with ArrowReader(metastore) as reader:
        many = pa.Table.from_batches(reader.stream(query))
        few = pa.Table.from_batches(reader.stream(query, at_most=1))

    assert few.equals(many)


def test_each_read_sees_what_was_committed_before_it(metastore: Metastore) -> None:
    table = a_table(metastore)
    for number in range(1, 4):
        commit(metastore, table, add(f"{number}.parquet"))
        assert len(read(metastore)) == number


@pytest.mark.postgres
def test_a_connection_that_breaks_in_a_stream_is_worth_another_try(
    postgres_url: Callable[[], str],
) -> None:
    url = postgres_url()
    dsn = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with a_metastore(url) as metastore:
        table = a_table(metastore)
        commit(
            metastore,
            table,
            *(add(f"{n}.parquet", stats=stats_of(1, padding="x" * 4_000)) for n in range(8_000)),
        )
        batches = stream(metastore, select(dl_add_files))
        next(batches)
        with psycopg.connect(dsn, autocommit=True) as killer:
            killer.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )

        with pytest.raises(DatabaseUnavailableError):
            list(batches)
