"""Commits to PostgreSQL in two round trips: what a connection has prepared, and who waits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from sqlalchemy import select

from mirror_assets.delta.conflicts import ReadSet
from mirror_assets.errors import DatabaseUnavailableError
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.outcomes import Committed, Conflict
from mirror_assets.metastore.statements import Prepared
from mirror_assets.metastore.tables import dl_tables
from mirror_assets_tests.builders import a_metastore, a_table, add, paths, remove

pytestmark = pytest.mark.postgres


@pytest.fixture
def metastore(postgres_url):
    with a_metastore(postgres_url()) as metastore:
        yield metastore


def test_a_rollback_does_not_lose_what_a_connection_has_prepared(metastore):
    """By itself psycopg deallocates everything after one, what the pipeline prepared too."""
    table, writer, reader = a_table(metastore), SqlTxnLogWriter(metastore), LogReader(metastore)
    everything = ReadSet(whole_table=True)
    for number in range(6):
        for _ in range(3):  # as often as psycopg would prepare these itself
            reader.table(table)
        lost = writer.commit(table, [add(f"lost{number}")], read_version=0, reads=everything)
        assert isinstance(lost, Conflict if number else Committed)
        done = writer.commit(table, [add(f"file{number}")])
        assert isinstance(done, Committed)
        assert reader.summary(table).version == done.version
    assert paths(reader.live_files(table)) == ["lost0", *(f"file{n}" for n in range(6))]


def test_threads_that_wait_for_one_table_do_not_hold_each_other_up(metastore):
    """Whoever waits for the head lets go of the interpreter, or its holder could not go on."""
    table, writer = a_table(metastore), SqlTxnLogWriter(metastore)

    def commit(number: int) -> int:
        return writer.commit(table, [add(f"file{number}")]).version

    with ThreadPoolExecutor(6) as threads:
        versions = list(threads.map(commit, range(60)))
    assert sorted(versions) == list(range(1, 61))


def test_what_was_looked_up_with_the_head_is_what_the_commit_meets(metastore):
    """Files and tombstones of paths that come and go, by a writer that knows the table."""
    table, writer, reader = a_table(metastore), SqlTxnLogWriter(metastore), LogReader(metastore)
    for _ in range(3):
        writer.commit(table, [add("a"), add("b")])
        writer.commit(table, [remove("a")])
        assert paths(reader.live_files(table)) == ["b"]
        assert paths(reader.tombstones(table)) == ["a"]
        assert reader.table(table).num_files == 1


def test_a_table_that_was_dropped_and_made_anew_is_not_taken_for_the_old_one(metastore):
    first, second = a_table(metastore), a_table(metastore)
    writer, reader = SqlTxnLogWriter(metastore), LogReader(metastore)
    writer.commit(first, [add("a")])
    writer.commit(second, [add("a"), add("b")])
    with metastore.write() as connection:  # another table has the name now
        for old, new in ((first, "x.gone"), (second, first)):
            named = dl_tables.c.name == old
            connection.execute(dl_tables.update().where(named).values(name=new))
    assert writer.commit(first, [add("a")]).version == 2
    assert reader.table(first).num_files == 2
    assert sorted(paths(reader.live_files(first))) == ["a", "b"]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_failed_statement_ends_the_transaction_and_not_the_connection(metastore, is_first):
    """What was to be prepared behind it is prepared later."""
    table = a_table(metastore)
    query = select(dl_tables.c.name).where(dl_tables.c.table_id == 1)
    good = Prepared(query, metastore.dialect, metastore.engine)
    bad = Prepared(dl_tables.insert(), metastore.dialect, metastore.engine)
    steps = [good.with_({"table_id_1": 1}), (bad, [None] * len(dl_tables.columns))]
    with pytest.raises(psycopg.errors.NotNullViolation), metastore.write() as connection:
        metastore.dialect.run(connection, steps[::-1] if is_first else steps)
    with metastore.read() as connection:
        assert good.run(connection, {}) == [(table,)]


def test_a_text_with_a_nul_is_refused_and_not_cut_off(metastore):
    named = Prepared(
        select(dl_tables.c.name).where(dl_tables.c.name == "x"), metastore.dialect, metastore.engine
    )
    with pytest.raises(psycopg.DataError, match="NUL"), metastore.read() as connection:
        named.run(connection, {"name_1": "x\0y"})


def test_a_read_whose_connection_is_lost_is_in_no_doubt(metastore):
    """Nothing was to be committed."""
    table = a_table(metastore)
    with pytest.raises(DatabaseUnavailableError):
        _summary_without_connection(metastore, table)
    assert LogReader(metastore).summary(table).version == 0


def _summary_without_connection(metastore, table):
    with metastore.read() as connection:
        connection.connection.driver_connection.close()
        metastore.statements.summary.run(connection, {"name": table, "at": None}, is_all=True)
