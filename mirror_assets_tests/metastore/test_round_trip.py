"""Properties of the metastore: rows lose nothing, and SQL tells the state that replay does."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from mirror_assets.delta import commit_file
from mirror_assets.delta.actions import CommitInfo
from mirror_assets.delta.table_state import replay
from mirror_assets.metastore import tables
from mirror_assets.metastore.dialect import BULK_ROWS
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.outcomes import Committed
from mirror_assets.metastore.rows import ACTION_TABLES, add_columns, from_row, to_row
from mirror_assets_tests import strategies
from mirror_assets_tests.builders import (
    a_metastore,
    a_table,
    add,
    commit,
    remove,
    state_in_sql,
    txn,
)
from mirror_assets_tests.delta.samples import a_domain, a_vector, stats_of

often = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
seldom = settings(often, max_examples=15)


@pytest.fixture
def sqlite(tmp_path):
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as opened:
        yield opened


@pytest.fixture
def duckdb(tmp_path):
    with a_metastore(f"duckdb:///{tmp_path / 'metastore.duckdb'}") as opened:
        yield opened


@pytest.fixture
def postgresql(postgres_url):
    with a_metastore(postgres_url()) as opened:
        yield opened


def through_sql(metastore, actions, *, bulk):
    """The actions after they were rows of a table, by the road of few rows or of many."""
    lines = {}
    with metastore.write() as connection:
        for table in ACTION_TABLES:
            connection.execute(table.delete())
        for ordinal, action in enumerate(actions):
            table, row = to_row(action, (1, 0, ordinal))
            if bulk:
                metastore.dialect.insert_bulk(connection, table, [row])
            else:
                metastore.statements.insert(connection, table, [row])
    with metastore.read() as connection:
        for table in ACTION_TABLES:
            for row in connection.execute(select(table)).mappings():
                lines[row["ordinal"]] = from_row(table, row)
    return [lines[ordinal] for ordinal in sorted(lines)]


@given(actions=st.lists(strategies.row_actions, max_size=6), bulk=st.booleans())
@often
def test_rows_of_sqlite_lose_nothing(sqlite, actions, bulk):
    assert through_sql(sqlite, actions, bulk=bulk) == actions


@given(actions=st.lists(strategies.row_actions, max_size=6), bulk=st.booleans())
@seldom
def test_rows_of_duckdb_lose_nothing(duckdb, actions, bulk):
    assert through_sql(duckdb, actions, bulk=bulk) == actions


@given(actions=st.lists(strategies.row_actions, max_size=6), bulk=st.booleans())
@seldom
def test_rows_of_postgresql_lose_nothing(postgresql, actions, bulk):
    assert through_sql(postgresql, actions, bulk=bulk) == actions


@given(adds=st.lists(strategies.adds, max_size=6))
@often
def test_adds_that_are_made_together_have_the_rows_of_each_alone(adds):
    ordinals = [3 * number for number, _ in enumerate(adds)]
    together = add_columns(adds, 7, 42, ordinals)
    alone = [to_row(add, (7, 42, n))[1] for n, add in zip(ordinals, adds, strict=True)]
    assert list(together) == alone
    assert [together[n] for n in range(len(together))] == alone
    assert list(together[1:]) == alone[1:]


def plain(info):
    """Without the members that the writer itself fills in."""
    own = {"inCommitTimestamp", "tags", "txnId", "readVersion", "isBlindAppend"}
    return CommitInfo({key: value for key, value in info.fields.items() if key not in own})


#: few, so that files come, go and come again
paths = st.sampled_from(["a", "%C3%A9", "é"])
vectors = st.sampled_from([None, a_vector(offset=None), a_vector(offset=0)])
files = st.builds(
    lambda path, vector, size: add(path, size=size, deletion_vector=vector, stats=stats_of(9)),
    paths,
    vectors,
    st.integers(0, 2**40),
)
gone = st.builds(lambda path, vector: remove(path, deletion_vector=vector), paths, vectors)
others = st.one_of(
    st.builds(txn, st.sampled_from(["etl", "Etl", ""]), st.integers(0, 3)),
    st.builds(
        a_domain,
        st.sampled_from(["d1", "d2"]),
        configuration=strategies.column_texts,
        removed=st.booleans(),
    ),
    strategies.unknown_actions,
    strategies.commit_infos.map(plain),
)


@st.composite
def commits(draw):
    """Actions that may stand in one commit: each key once."""
    drawn = draw(st.lists(st.one_of(files, gone, gone, others), max_size=6))
    kept, keys = [], set()
    for action in drawn:
        key = key_of(action)
        if key not in keys:
            keys.add(key)
            kept.append(action)
    return kept


def key_of(action):
    match action:
        case CommitInfo():
            return "commitInfo"
        case _ if hasattr(action, "path"):
            return (type(action).__name__, action.path)
        case _ if hasattr(action, "app_id"):
            return ("txn", action.app_id)
        case _ if hasattr(action, "domain"):
            return ("domain", action.domain)
        case _:
            return commit_file.encode_action(action)


def made_lawful(actions, state):
    """Take out what the state forbids: txns of long ago, a second vector, an add of its remove."""
    removed = {(a.path, a.dv_id) for a in actions if type(a).__name__ == "RemoveFile"}
    live = dict(state.files)
    kept = []
    for action in actions:
        if type(action).__name__ == "AddFile":
            standing = [dv for path, dv in live if path == action.path and dv != action.dv_id]
            if (action.path, action.dv_id) in removed:
                continue
            if any((action.path, dv) not in removed for dv in standing):
                continue
        known = state.txns.get(getattr(action, "app_id", None))
        if known is not None and known.version >= action.version:
            continue
        kept.append(action)
    return kept


def history_in(metastore, log):
    """Commit a generated history; the table and the actions of each version, as they were given."""
    table = a_table(
        metastore,
        features=["domainMetadata", "deletionVectors"],
        configuration={"delta.enableDeletionVectors": "true"},
    )
    committed = [next(LogReader(metastore).commits(table)).file.actions]
    state = replay(enumerate(committed))
    for actions in log:
        lawful = made_lawful(actions, state)
        assert isinstance(commit(metastore, table, *lawful), Committed)
        committed.append(lawful)
        state = state.apply(len(committed) - 1, lawful)
    return table, committed


def check_history(metastore, log):
    table, committed = history_in(metastore, log)
    for version in range(len(committed)):
        in_memory = replay(enumerate(committed[: version + 1]))
        assert state_in_sql(metastore, table, version) == in_memory
    found = list(LogReader(metastore).commits(table))
    for given_actions, read in zip(committed[1:], found[1:], strict=True):
        rest = [a for a in read.file.actions if not isinstance(a, CommitInfo)]
        assert rest == [a for a in given_actions if not isinstance(a, CommitInfo)]
        data = read.encode(table)
        assert commit_file.decode(data).actions == read.file.actions
        for info in (a for a in given_actions if isinstance(a, CommitInfo)):
            assert info.fields.items() <= read.file.actions[0].fields.items()


@given(log=st.lists(commits(), max_size=6))
@often
def test_a_history_in_sqlite_is_the_replay_in_memory_at_every_version(sqlite, log):
    check_history(sqlite, log)


@given(log=st.lists(commits(), max_size=5))
@seldom
def test_a_history_in_postgresql_is_the_replay_in_memory_at_every_version(postgresql, log):
    check_history(postgresql, log)


@pytest.mark.parametrize("count", [BULK_ROWS - 1, BULK_ROWS, BULK_ROWS + 1])
def test_commits_around_the_bulk_limit_lose_nothing(metastore, reader, count):
    table = a_table(metastore)
    extra = {"é\x01": [None, 1.5, {"x": "\x00"}]}
    given_files = [msgspec.structs.replace(add(f"{n}"), extra=extra) for n in range(count)]
    commit(metastore, table, *given_files)
    assert list(reader.live_files(table)) == given_files
    with metastore.read() as connection:
        rows = connection.execute(select(tables.dl_add_files.c.ordinal)).scalars().all()
    assert sorted(rows) == list(range(1, count + 1))
