"""What every engine of the metastore promises: commits, and the state at every version."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select, update

from mirror_assets.delta import commit_file
from mirror_assets.delta.actions import CommitInfo, MetaData, TableProtocol
from mirror_assets.delta.table_state import replay
from mirror_assets.errors import (
    CommitIntegrityError,
    ConfigurationError,
    LocationError,
    RuleViolationError,
    TableExistsError,
    TableNotFoundError,
    VersionNotFoundError,
)
from mirror_assets.metastore import log_reader, tables
from mirror_assets.metastore.registry import create_table
from mirror_assets_tests.builders import (
    a_table,
    add,
    cdc,
    changed,
    commit,
    paths,
    remove,
    state_in_sql,
    txn,
    unknown,
)
from mirror_assets_tests.delta.samples import a_domain, a_schema


def test_a_new_table_has_version_0_with_protocol_and_metadata(metastore, reader):
    table = a_table(metastore, "sales.orders", location="/lake/orders")
    (first,) = reader.commits(table)
    assert first.version == 0
    kinds = [type(action) for action in first.file.actions]
    assert kinds == [CommitInfo, TableProtocol, MetaData]
    assert reader.table(table).location == "file:///lake/orders"
    assert state_in_sql(metastore, table).files == {}


def test_a_commit_is_read_back_as_it_was_given(metastore, reader):
    table = a_table(
        metastore,
        partitioned_by={"day": "date"},
        features=["domainMetadata", "changeDataFeed"],
    )
    actions = [
        add("day=1/a.parquet", partition_values={"day": "2026-01-01"}, tags={"b": None, "a": "1"}),
        add("day=2/b.parquet", partition_values={"day": None}, extra={"stats_parsed": None}),
        remove("gone.parquet", extended_file_metadata=False, extra={"weird": [1, {"x": None}]}),
        txn("app", 7),
        a_domain("app.settings", configuration='{"z":1,"a":2}'),
        cdc("_change_data/c.parquet", partition_values={"day": "2026-01-01"}),
        unknown("somethingNew", {"z": 1, "a": [None, "é"]}),
    ]
    done = commit(metastore, table, *actions)
    (found,) = reader.commits(table, first=done.version)
    info, *others = found.file.actions
    assert others == actions
    assert isinstance(info, CommitInfo)


def test_versions_are_gapless_and_the_history_tells_each(metastore, reader):
    table = a_table(metastore)
    done = [commit(metastore, table, add(f"{n}.parquet")) for n in range(5)]
    assert [outcome.version for outcome in done] == [1, 2, 3, 4, 5]
    history = reader.history(table)
    assert [row["version"] for row in history] == [5, 4, 3, 2, 1, 0]
    assert [row["sha256"] for row in history[:-1]] == [d.sha256 for d in reversed(done)]
    assert {row["mirror_status"] for row in history} == {"PENDING"}
    assert [row["version"] for row in reader.history(table, limit=2)] == [5, 4]


def test_the_state_at_every_version_equals_the_replay_in_memory(metastore, reader):
    table = a_table(metastore, features=["domainMetadata"])
    zero = next(reader.commits(table)).file.actions
    metadata = next(a for a in zero if isinstance(a, MetaData))
    log = [
        [*zero],
        [add("a", size=5), add("b", size=7), txn("etl", 1)],
        [remove("a"), add("c", size=11), a_domain("d1", configuration="one")],
        [add("a", size=13), txn("etl", 2), txn("other", 1)],
        [changed(metadata, owner="me"), a_domain("d1", configuration="two"), a_domain("d2")],
        [remove("never-there"), a_domain("d1", removed=True)],
        [add("b", size=17, data_change=False), remove("a"), remove("c")],
        [remove("a")],
        [],
    ]
    for version, actions in enumerate(log[1:], start=1):
        assert commit(metastore, table, *actions).version == version
    for version in range(len(log)):
        in_memory = replay(enumerate(log[: version + 1]))
        assert state_in_sql(metastore, table, version) == in_memory


def test_totals_equal_a_count_of_the_live_rows(metastore, reader):
    table = a_table(metastore)
    commit(metastore, table, add("a", size=5), add("b", size=7))
    commit(metastore, table, remove("a"), add("b", size=8), add("c", size=1))
    files = tables.dl_add_files
    query = select(func.count(), func.sum(files.c.size)).where(files.c.removed_version.is_(None))
    with metastore.read() as connection:
        count, size = connection.execute(query).one()
    head = reader.table(table)
    assert (head.num_files, head.size_bytes) == (count, size) == (2, 9)


def test_time_travel_by_timestamp_finds_the_newest_version_at_or_before_it(metastore, reader):
    table = a_table(metastore)
    first, second = (commit(metastore, table, add(name)).timestamp_ms for name in "ab")
    assert reader.version_at(table, first) == 1
    assert reader.version_at(table, second - 1) == 1
    assert reader.version_at(table, second) == 2
    assert reader.version_at(table, second + 10**9) == 2
    with pytest.raises(VersionNotFoundError):
        reader.version_at(table, 0)


@pytest.mark.parametrize("version", [-1, 2, 2**70])
def test_a_version_that_is_not_there_is_named_in_the_error(metastore, reader, version):
    table = a_table(metastore)
    commit(metastore, table, add("a"))
    with pytest.raises(VersionNotFoundError) as caught:
        list(reader.live_files(table, version))
    assert (caught.value.table, caught.value.version) == (table, version)


def test_live_files_come_in_the_order_of_their_commits(metastore, reader):
    table = a_table(metastore)
    commit(metastore, table, add("z"), add("b"))
    commit(metastore, table, add("a"), remove("b"))
    assert paths(reader.live_files(table)) == ["z", "a"]
    assert paths(reader.live_files(table, 1)) == ["z", "b"]


def test_the_frozen_bytes_are_those_of_the_canonical_encoding(metastore, reader):
    table = a_table(metastore)
    done = commit(metastore, table, CommitInfo({"zeta": 1, "operation": "X"}), add("é"), unknown())
    (found,) = reader.commits(table, first=1)
    data = found.encode(table)
    assert data == commit_file.encode(found.file.actions)
    assert hashlib.sha256(data).hexdigest() == done.sha256
    assert reader.history(table)[0]["byte_length"] == len(data)
    assert commit_file.decode(data, strict=True).actions == found.file.actions


@pytest.mark.parametrize("column", ["path", "partition_values", "size"])
def test_a_row_changed_in_sql_is_not_published(metastore, reader, column):
    table = a_table(metastore)
    commit(metastore, table, add("a", size=1))
    value = {"path": "b", "partition_values": '{"p":"1"}', "size": 2}[column]
    with metastore.write() as connection:
        connection.execute(update(tables.dl_add_files).values({column: value}))
    (found,) = reader.commits(table, first=1)
    with pytest.raises(CommitIntegrityError) as caught:
        found.encode(table)
    assert (caught.value.table, caught.value.version) == (table, 1)


def test_a_lost_row_is_not_published_either(metastore, reader):
    table = a_table(metastore)
    commit(metastore, table, add("a"), add("b"))
    with metastore.write() as connection:
        connection.execute(tables.dl_add_files.delete().where(tables.dl_add_files.c.path == "b"))
    (found,) = reader.commits(table, first=1)
    with pytest.raises(CommitIntegrityError):
        found.encode(table)


def test_commits_of_a_long_history_are_read_in_order(metastore, reader, monkeypatch):
    monkeypatch.setattr(log_reader, "_VERSIONS_PER_FETCH", 3)
    table = a_table(metastore)
    for version in range(1, 8):
        commit(metastore, table, add(f"{version}") if version in (1, 7) else txn("app", version))
    assert [found.version for found in reader.commits(table)] == list(range(8))
    assert [found.version for found in reader.commits(table, first=2, last=6)] == [2, 3, 4, 5, 6]
    assert [found.version for found in reader.commits(table, first=6, last=99)] == [6, 7]
    for found in reader.commits(table):
        found.encode(table)


def test_names_and_locations_are_taken_once(metastore, reader):
    a_table(metastore, "sales.orders", location="/lake/orders")
    with pytest.raises(TableExistsError, match="file:///lake/orders"):
        a_table(metastore, "sales.orders", location="/lake/elsewhere")
    with pytest.raises(TableExistsError, match=r"sales\.orders"):
        a_table(metastore, "sales.other", location="file:///lake/orders/")
    assert [table.name for table in reader.tables()] == ["sales.orders"]


@pytest.mark.parametrize("names", [["s.a", "s.b", "s.c", "s.d"], ["s.same"] * 4])
def test_tables_created_at_the_same_moment_do_not_get_in_each_other_s_way(metastore, reader, names):
    refused = []

    def create(name):
        try:
            a_table(metastore, name)
        except TableExistsError as error:
            refused.append(error.table)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(create, names))
    tables_found = reader.tables()
    assert [table.name for table in tables_found] == sorted(set(names))
    assert len({table.table_id for table in tables_found}) == len(tables_found)
    assert len(refused) == len(names) - len(tables_found)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("a; drop table dl_tables", "/lake/t", a_schema()), ConfigurationError),
        (("<b>t</b>", "/lake/t", a_schema()), ConfigurationError),
        (("t", "/lake/../etc", a_schema()), LocationError),
        (("t", "/lake/%2e%2e/etc", a_schema()), LocationError),
        (("t", "/lake/t", '{"type":"struct"'), RuleViolationError),
    ],
)
def test_a_table_that_is_refused_leaves_nothing(metastore, reader, arguments, error):
    with pytest.raises(error) as caught:
        create_table(metastore, *arguments)
    assert caught.value.remedy
    assert reader.tables() == []


def test_a_table_that_nobody_registered_is_not_found(metastore, writer, reader):
    with pytest.raises(TableNotFoundError) as caught:
        writer.commit("no.such", [add("a")])
    assert caught.value.table == "no.such"
    with pytest.raises(TableNotFoundError):
        reader.summary("no.such")
