"""Connections that break around COMMIT: the outcome is found out, and never doubled."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest
from sqlalchemy import make_url

from mirror_assets.errors import DatabaseUnavailableError, TableExistsError
from mirror_assets.metastore import doubt, postgres_sessions
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.dialect import OutcomeUnknownError
from mirror_assets.metastore.heads import lock_heads
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.outcomes import AlreadyCommitted, CommitRequest, Committed
from mirror_assets_tests.builders import a_metastore, a_table, add, commit, paths, remove
from mirror_assets_tests.faults.tcp_proxy import TcpProxy, When


@pytest.fixture
def direct(postgres_url):
    """The metastore itself, without the proxy."""
    with a_metastore(postgres_url()) as metastore:
        yield metastore


@pytest.fixture
def proxy(direct):
    url = direct.engine.url
    with TcpProxy(url.host, url.port) as proxy:
        yield proxy


@pytest.fixture
def through(direct, proxy):
    """The metastore as the writer sees it, through the proxy."""
    url = direct.engine.url.set(host="127.0.0.1", port=proxy.port)
    metastore = Metastore.open(url.render_as_string(hide_password=False))
    yield metastore
    metastore.close()


def commit_ids(metastore, table):
    return [row["commit_id"] for row in LogReader(metastore).history(table)]


def end_other_backends(metastore):
    url = make_url(metastore.engine.url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and pid != pg_backend_pid()"
        )


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("commit_id", [None, "mine"])
def test_a_commit_whose_connection_breaks_at_commit_happens_once(
    direct, proxy, through, when, commit_id
):
    table = a_table(direct)
    proxy.cut(b"COMMIT", when)
    outcome = SqlTxnLogWriter(through).commit(table, [add("a")], commit_id=commit_id)
    assert proxy.count == 1
    assert isinstance(outcome, Committed)
    assert outcome.version == 1
    assert outcome.commit_id == (commit_id or outcome.commit_id)
    reader = LogReader(direct)
    assert commit_ids(direct, table)[:-1] == [outcome.commit_id]
    assert paths(reader.live_files(table)) == ["a"]
    (found,) = reader.commits(table, first=1)
    assert (found.sha256, found.timestamp_ms) == (outcome.sha256, outcome.timestamp_ms)
    found.encode(table)


@pytest.mark.parametrize("when", When)
def test_a_group_whose_connection_breaks_at_commit_happens_once(direct, proxy, through, when):
    tables = [a_table(direct) for _ in range(3)]
    proxy.cut(b"COMMIT", when, times=2)
    requests = [CommitRequest(table=table, actions=[add("a")]) for table in tables]
    outcomes = SqlTxnLogWriter(through).commit_all(requests)
    assert [(type(o), o.version) for o in outcomes] == [(Committed, 1)] * 3
    assert [LogReader(direct).table(table).head_version for table in tables] == [1, 1, 1]


@pytest.mark.parametrize("words", [b"INSERT INTO dl_table_versions", b"UPDATE dl_tables"])
def test_a_connection_that_breaks_before_commit_loses_nothing(direct, proxy, through, words):
    table = a_table(direct)
    proxy.cut(words, When.AFTER)
    outcome = SqlTxnLogWriter(through).commit(table, [add("a")])
    assert proxy.count == 1
    assert isinstance(outcome, Committed)
    assert paths(LogReader(direct).live_files(table)) == ["a"]


def test_an_outcome_that_was_found_out_survives_another_broken_connection(direct, proxy, through):
    """The commit is there: who cannot read it back at once must not be told that it failed."""
    table = a_table(direct)
    proxy.cut(b"COMMIT", When.AFTER)
    proxy.cut(b"SELECT dl_table_versions.timestamp_ms, dl_table_versions.sha256", When.BEFORE)
    outcome = SqlTxnLogWriter(through).commit(table, [add("a")])
    assert proxy.count == 2
    assert isinstance(outcome, Committed)
    assert LogReader(direct).table(table).head_version == 1


def test_a_database_that_stays_away_after_commit_leaves_the_commit_id(
    direct, proxy, through, monkeypatch
):
    monkeypatch.setattr(doubt, "_SECONDS", 2.0)
    table = a_table(direct)
    proxy.cut(b"COMMIT", When.AFTER, times=None)
    writer = SqlTxnLogWriter(through)
    with pytest.raises(OutcomeUnknownError) as caught:
        writer.commit(table, [add("a")], commit_id="mine-7")
    assert "mine-7" in str(caught.value)
    assert caught.value.table == table
    proxy.refuses = False
    again = SqlTxnLogWriter(direct).commit(table, [add("a")], commit_id="mine-7")
    assert again == AlreadyCommitted(table=table, version=1, reason="commit_id")


def test_a_database_that_was_never_there_is_said_quickly(direct, proxy, through):
    table = a_table(direct)
    proxy.refuses = True
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailableError) as caught:
        SqlTxnLogWriter(through).commit(table, [add("a")])
    assert time.monotonic() - began < 5
    assert caught.value.remedy
    proxy.refuses = False
    assert SqlTxnLogWriter(through).commit(table, [add("a")]).version == 1


def test_a_writer_goes_on_after_its_pooled_connections_were_ended(direct):
    """All of a pool's connections are stale after a restart, not only the first."""
    table = a_table(direct)
    writer = SqlTxnLogWriter(direct)
    held = [direct.engine.connect() for _ in range(8)]
    for connection in held:
        connection.close()
    end_other_backends(direct)
    assert isinstance(writer.commit(table, [add("a")]), Committed)
    assert LogReader(direct).table(table).head_version == 1


def test_reads_pass_after_their_pooled_connections_were_ended(direct):
    table = a_table(direct)
    commit(direct, table, add("a"))
    held = [direct.engine.connect() for _ in range(3)]
    for connection in held:
        connection.close()
    end_other_backends(direct)
    reader = LogReader(direct)
    assert reader.summary(table).num_files == 1
    assert paths(reader.live_files(table)) == ["a"]


def test_reads_pass_after_the_network_cut_their_connections(direct, proxy, through):
    table = a_table(direct)
    assert LogReader(through).table(table).head_version == 0
    proxy.drop_all()
    assert LogReader(through).table(table).head_version == 0


def test_a_connection_that_was_idle_for_long_is_asked_before_it_is_used(
    direct, proxy, through, monkeypatch
):
    """A connection that vanished without a word looks alive."""
    table = a_table(direct)
    assert LogReader(through).table(table).head_version == 0
    monkeypatch.setattr(postgres_sessions, "_IDLE_SECONDS", 0.0)
    proxy.cut(b";\x00", When.BEFORE)  # the empty statement that asks
    assert LogReader(through).table(table).head_version == 0
    assert proxy.count == 1


@pytest.mark.parametrize("when", When)
def test_a_table_whose_connection_breaks_at_commit_is_created_once(direct, proxy, through, when):
    proxy.cut(b"COMMIT", when)
    table = a_table(through)
    assert proxy.count == 1
    assert [record.name for record in LogReader(direct).tables()] == [table]
    assert len(commit_ids(direct, table)) == 1
    assert commit(through, table, add("a")).version == 1


def test_a_table_that_stays_in_doubt_leaves_its_commit_id(direct, proxy, through, monkeypatch):
    monkeypatch.setattr(doubt, "_SECONDS", 2.0)
    proxy.cut(b"COMMIT", When.AFTER, times=None)
    with pytest.raises(OutcomeUnknownError) as caught:
        a_table(through)
    (table,) = (record.name for record in LogReader(direct).tables())
    assert caught.value.table == table
    assert commit_ids(direct, table)[0] in str(caught.value)


def test_another_s_table_of_the_same_name_is_not_taken_for_the_own(direct):
    table = a_table(direct)
    with pytest.raises(TableExistsError):
        a_table(direct, table)


def test_a_session_waits_for_no_lock_forever_unless_its_url_says_so(direct):
    shown = {"lock_timeout": "1min", "idle_in_transaction_session_timeout": "5min"}
    url = direct.engine.url.update_query_dict({"options": "-c lock_timeout=7s"})
    own = Metastore.open(url.render_as_string(hide_password=False))
    for metastore, limits in ((direct, shown), (own, {**shown, "lock_timeout": "7s"})):
        with metastore.read() as connection:
            for name, value in limits.items():
                assert connection.exec_driver_sql(f"show {name}").scalar() == value
    own.close()


def test_a_head_that_another_holds_too_long_is_tried_again(direct):
    table = a_table(direct)
    url = direct.engine.url.update_query_dict({"options": "-c lock_timeout=200ms"})
    hasty = Metastore.open(url.render_as_string(hide_password=False))
    locked = threading.Event()

    def hold():
        with direct.write() as connection:
            lock_heads(direct.statements, connection, [table])
            locked.set()
            time.sleep(0.5)

    holder = threading.Thread(target=hold)
    holder.start()
    locked.wait()
    outcome = SqlTxnLogWriter(hasty).commit(table, [add("a")])
    holder.join()
    hasty.close()
    assert isinstance(outcome, Committed)


def test_a_transaction_that_hangs_is_ended_and_says_so(direct):
    url = direct.engine.url.update_query_dict(
        {"options": "-c idle_in_transaction_session_timeout=100ms"}
    )
    hanging = Metastore.open(url.render_as_string(hide_password=False))
    with pytest.raises(DatabaseUnavailableError, match="idle-in-transaction"):
        hang(hanging, seconds=0.6)
    assert LogReader(hanging).tables() == []
    hanging.close()


def hang(metastore, *, seconds):
    with metastore.write() as connection:
        connection.exec_driver_sql("select 1")
        time.sleep(seconds)
        connection.exec_driver_sql("select 1")


def test_a_transaction_that_the_server_ends_is_tried_again(direct):
    table = a_table(direct)
    commit(direct, table, add("a"))
    stop = threading.Event()

    def disturb():
        while not stop.wait(0.02):
            end_other_backends(direct)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    with_bulk = [add(f"b{n}") for n in range(600)]
    changes = [[add("x")], with_bulk, [remove("a")], [add("y"), remove("x")]]
    try:
        outcomes = [commit_in_spite_of_it(direct, table, actions) for actions in changes]
    finally:
        stop.set()
        disturber.join()
    assert [outcome.version for outcome in outcomes] == [2, 3, 4, 5]
    direct.close()
    assert len(commit_ids(direct, table)) == len(set(commit_ids(direct, table))) == 6
    assert LogReader(direct).table(table).num_files == 601


def commit_in_spite_of_it(metastore, table, actions):
    """What a patient client does: the same commit id again, until it is told."""
    commit_id = f"{table}-{len(actions)}-{actions[0].path}"
    for _ in range(200):
        try:
            return SqlTxnLogWriter(metastore).commit(table, actions, commit_id=commit_id)
        except (DatabaseUnavailableError, OutcomeUnknownError):
            time.sleep(0.02)
    raise AssertionError("never told")
