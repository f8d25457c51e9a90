"""Transactions over several tables: all of them, or none."""

from __future__ import annotations

import threading

import pytest

from mirror_assets.delta.actions import CommitInfo
from mirror_assets.delta.conflicts import ConflictReason
from mirror_assets.errors import CommitConflictError, RuleViolationError, TableNotFoundError
from mirror_assets.metastore.commit_plan import GROUP_TAG
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.outcomes import AlreadyCommitted, CommitRequest, Committed, Conflict
from mirror_assets_tests.builders import a_table, add, changed, commit, paths, remove, txn


def commit_together(writer, *commits, meanwhile=None):
    with writer.transaction() as transaction:
        for table, actions, *read_version in commits:
            transaction.commit(table, actions, read_version=next(iter(read_version), None))
        if meanwhile is not None:
            meanwhile()
    return transaction.outcomes


def info_of(reader, table, version):
    (found,) = reader.commits(table, first=version, last=version)
    return next(a for a in found.file.actions if isinstance(a, CommitInfo))


def test_every_participant_carries_the_same_group_id(metastore, writer, reader):
    tables = [a_table(metastore) for _ in range(3)]
    commit(metastore, tables[1], add("before"))
    with writer.transaction() as transaction:
        for table in reversed(tables):
            transaction.commit(table, [CommitInfo({"tags": {"own": "1"}}), add("a")])
    assert [outcome.version for outcome in transaction.outcomes] == [1, 2, 1]
    infos = [info_of(reader, o.table, o.version) for o in transaction.outcomes]
    (group,) = {info.get("tags")[GROUP_TAG] for info in infos}
    assert {info.get("tags")["own"] for info in infos} == {"1"}
    assert {reader.history(table, limit=1)[0]["group_id"] for table in tables} == {group}


def test_a_commit_to_one_table_has_no_group(metastore, writer, reader):
    table = a_table(metastore)
    commit(metastore, table, add("a"))
    assert info_of(reader, table, 1).get("tags") is None


def test_a_conflict_of_one_table_leaves_all_untouched(metastore, writer, reader):
    first, second = a_table(metastore), a_table(metastore)
    metadata = reader.summary(second).metadata
    commit(metastore, second, changed(metadata, owner="me"))
    requests = [
        CommitRequest(table=first, actions=[add("a")]),
        CommitRequest(table=second, actions=[add("b")], read_version=0),
    ]
    (conflict,) = writer.commit_all(requests)
    assert isinstance(conflict, Conflict)
    assert (conflict.table, conflict.winning_version) == (second, 1)
    assert conflict.reason is ConflictReason.METADATA_CHANGED
    assert [reader.table(t).head_version for t in (first, second)] == [0, 1]
    with pytest.raises(CommitConflictError) as caught:
        commit_together(writer, (first, [add("a")]), (second, [add("b")], 0))
    assert caught.value.table == second
    assert [reader.table(t).head_version for t in (first, second)] == [0, 1]
    assert list(reader.live_files(first)) == []


def test_a_breach_in_one_table_leaves_all_untouched(metastore, writer, reader):
    first, second = a_table(metastore), a_table(metastore)
    with pytest.raises(RuleViolationError) as caught:
        commit_together(writer, (first, [add("a")]), (second, [add("b", size=-1)]))
    assert caught.value.table == second
    with pytest.raises(TableNotFoundError):
        commit_together(writer, (first, [add("a")]), ("no.such", [add("b")]))
    assert [reader.table(t).head_version for t in (first, second)] == [0, 0]


def test_an_exception_in_the_block_commits_nothing(metastore, writer, reader):
    table = a_table(metastore)
    with pytest.raises(ZeroDivisionError):
        commit_together(writer, (table, [add("a")]), meanwhile=lambda: 1 / 0)
    assert reader.table(table).head_version == 0


def test_a_table_takes_part_once(metastore, writer, reader):
    table = a_table(metastore)
    with pytest.raises(CommitConflictError) as caught:
        commit_together(writer, (table, [add("a")]), (table, [remove("a")]))
    assert caught.value.remedy
    assert reader.table(table).head_version == 0


def test_an_empty_transaction_does_nothing(metastore, writer):
    with writer.transaction() as transaction:
        pass
    assert transaction.outcomes == []


def test_the_same_commit_id_commits_a_group_once(metastore, writer, reader):
    tables = [a_table(metastore) for _ in range(2)]
    requests = [CommitRequest(table=table, actions=[add("a")]) for table in tables]
    first = writer.commit_all(requests, commit_id="group-1")
    again = writer.commit_all(requests, commit_id="group-1")
    assert [type(outcome) for outcome in first] == [Committed, Committed]
    assert [type(outcome) for outcome in again] == [AlreadyCommitted, AlreadyCommitted]
    assert [outcome.version for outcome in again] == [1, 1]
    assert [reader.table(t).head_version for t in tables] == [1, 1]


def test_one_participant_s_txn_speaks_for_the_whole_group(metastore, writer, reader):
    first, second, third = (a_table(metastore) for _ in range(3))
    requests = [
        CommitRequest(table=first, actions=[add("a"), txn("app", 5)]),
        CommitRequest(table=second, actions=[add("a")]),
    ]
    writer.commit_all(requests)
    again = writer.commit_all(requests)
    assert [(type(o), o.version) for o in again] == [(AlreadyCommitted, 1), (AlreadyCommitted, 1)]
    others = [requests[0], CommitRequest(table=third, actions=[add("a")])]
    (done, lost) = writer.commit_all(others)
    assert isinstance(done, AlreadyCommitted)
    assert isinstance(lost, Conflict)
    assert reader.table(third).head_version == 0


def test_writers_that_name_tables_in_opposite_order_do_not_wait_for_each_other(metastore, reader):
    tables = [a_table(metastore) for _ in range(3)]
    rounds = 4
    outcomes = []
    failures = []

    def work(name, order):
        own = SqlTxnLogWriter(metastore)
        try:
            for number in range(rounds):
                with own.transaction() as transaction:
                    for table in order:
                        transaction.commit(table, [add(f"{name}-{number}")])
                outcomes.extend(transaction.outcomes)
        except Exception as error:  # noqa: BLE001 - shown by the test itself
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=(name, order))
        for name, order in (("up", tables), ("down", tables[::-1]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert {type(outcome) for outcome in outcomes} == {Committed}
    for table in tables:
        assert reader.table(table).head_version == 2 * rounds
        assert len(set(paths(reader.live_files(table)))) == 2 * rounds
