"""What only the holder of the head can give: commit timestamps and row ids."""

from __future__ import annotations

import threading
import time

import orjson
import pytest
from sqlalchemy import update

from mirror_assets.delta.actions import AddFile, CommitInfo, MetaData
from mirror_assets.delta.conflicts import ROW_TRACKING_DOMAIN
from mirror_assets.delta.features import protocol_with
from mirror_assets.errors import RuleViolationError
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.tables import dl_tables
from mirror_assets_tests.builders import a_table, add, changed, commit, remove
from mirror_assets_tests.delta.samples import a_domain, a_vector, stats_of

ICT = "delta.enableInCommitTimestamps"
HOUR_MS = 3_600_000


def stamps(reader, table):
    infos = [
        next(a for a in found.file.actions if isinstance(a, CommitInfo))
        for found in reader.commits(table)
    ]
    return [info.get("inCommitTimestamp") for info in infos]


def test_a_new_table_has_in_commit_timestamps_that_are_the_commit_s_time(metastore, reader):
    table = a_table(metastore)
    before = time.time_ns() // 1_000_000
    done = commit(metastore, table, add("a"))
    after = time.time_ns() // 1_000_000
    assert stamps(reader, table)[1] == done.timestamp_ms
    assert before - 1 <= done.timestamp_ms <= after + 2
    (found,) = reader.commits(table, first=1)
    assert isinstance(found.file.actions[0], CommitInfo)


def test_timestamps_increase_strictly_while_the_clock_stands_still_or_jumps_back(metastore, reader):
    table = a_table(metastore)
    ahead = time.time_ns() // 1_000_000 + HOUR_MS
    with metastore.write() as connection:
        connection.execute(update(dl_tables).values(head_timestamp_ms=ahead))
    done = [commit(metastore, table, add(f"{n}")).timestamp_ms for n in range(3)]
    assert done == [ahead + 1, ahead + 2, ahead + 3]
    assert stamps(reader, table)[1:] == done
    assert reader.version_at(table, ahead + 2) == 2


def test_a_table_without_in_commit_timestamps_gets_none(metastore, reader):
    table = a_table(metastore, configuration={ICT: "false"})
    done = [commit(metastore, table, add(f"{n}")).timestamp_ms for n in range(3)]
    assert stamps(reader, table) == [None] * 4
    assert done == sorted(set(done))


def test_a_table_with_history_notes_when_in_commit_timestamps_began(metastore, reader):
    table = a_table(metastore, configuration={ICT: "false"})
    commit(metastore, table, add("a"))
    summary = reader.summary(table)
    enabled = changed(summary.metadata, **{ICT: "true"})
    protocol = protocol_with(summary.protocol, ["inCommitTimestamp"])
    done = commit(metastore, table, protocol, enabled)
    configuration = reader.summary(table).metadata.configuration
    assert configuration["delta.inCommitTimestampEnablementVersion"] == "2"
    noted = configuration["delta.inCommitTimestampEnablementTimestamp"]
    assert noted == str(done.timestamp_ms)
    later = commit(metastore, table, add("b"))
    assert stamps(reader, table) == [None, None, done.timestamp_ms, later.timestamp_ms]
    commit(metastore, table, changed(reader.summary(table).metadata, owner="me"))
    configuration = reader.summary(table).metadata.configuration
    assert configuration["delta.inCommitTimestampEnablementVersion"] == "2"


def test_a_table_that_begins_with_in_commit_timestamps_notes_nothing(metastore, reader):
    table = a_table(metastore)
    (first,) = reader.commits(table)
    metadata = next(a for a in first.file.actions if isinstance(a, MetaData))
    assert not [key for key in metadata.configuration if "Enablement" in key]


def ranges(reader, table):
    """The row ids of each file, and the version it says they are from."""
    found = []
    for file in reader.live_files(table):
        records = orjson.loads(file.stats)["numRecords"]
        first = file.base_row_id
        found.append((range(first, first + records), file.default_row_commit_version))
    return found


def mark(reader, table):
    return orjson.loads(reader.domains(table)[ROW_TRACKING_DOMAIN].configuration)


def assert_no_overlap(reader, table):
    ids = [number for row_ids, _ in ranges(reader, table) for number in row_ids]
    assert len(ids) == len(set(ids))
    assert mark(reader, table)["rowIdHighWaterMark"] >= max(ids)


def test_new_files_get_row_ids_above_the_high_water_mark(metastore, reader):
    table = a_table(metastore, features=["rowTracking"])
    commit(metastore, table, add("a", stats=stats_of(3)), add("b", stats=stats_of(2)))
    commit(metastore, table, add("c", stats=stats_of(4)))
    assert ranges(reader, table) == [(range(3), 1), (range(3, 5), 1), (range(5, 9), 2)]
    assert mark(reader, table) == {"rowIdHighWaterMark": 8}
    commit(metastore, table, remove("c"))
    commit(metastore, table, add("d", stats=stats_of(1)))
    assert ranges(reader, table)[-1] == (range(9, 10), 4)


def test_row_ids_that_a_writer_brings_are_kept_and_never_given_again(metastore, reader):
    table = a_table(metastore, features=["rowTracking"])
    own = add("a", stats=stats_of(10), base_row_id=0, default_row_commit_version=1)
    moved = a_domain(ROW_TRACKING_DOMAIN, configuration='{"rowIdHighWaterMark":9}')
    commit(metastore, table, own, moved)
    commit(metastore, table, add("b", stats=stats_of(5)))
    assert next(iter(reader.live_files(table))) == own
    assert_no_overlap(reader, table)


def test_a_live_file_that_is_added_again_keeps_its_row_ids(metastore, reader):
    table = a_table(
        metastore,
        features=["rowTracking", "deletionVectors"],
        configuration={"delta.enableDeletionVectors": "true"},
    )
    commit(metastore, table, add("a", stats=stats_of(3)), add("b", stats=stats_of(2)))
    vector = a_vector(cardinality=1)
    commit(metastore, table, remove("b"), add("b", stats=stats_of(2), deletion_vector=vector))
    commit(metastore, table, add("a", stats=stats_of(3), data_change=False))
    assert sorted(ranges(reader, table), key=str) == [(range(3), 1), (range(3, 5), 1)]
    assert mark(reader, table) == {"rowIdHighWaterMark": 4}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"rowIdHighWaterMark":"9"}'])
def test_a_high_water_mark_that_is_none_is_refused(metastore, reader, text):
    table = a_table(metastore, features=["rowTracking"])
    with pytest.raises(RuleViolationError) as caught:
        commit(metastore, table, a_domain(ROW_TRACKING_DOMAIN, configuration=text))
    assert caught.value.rule == "DL-RT-03"


def test_a_file_without_a_record_count_is_refused_where_rows_are_tracked(metastore, reader):
    table = a_table(metastore, features=["rowTracking"])
    with pytest.raises(RuleViolationError) as caught:
        commit(metastore, table, add("a"))
    assert (caught.value.rule, caught.value.table) == ("DL-RT-01", table)
    assert reader.table(table).head_version == 0


def test_appenders_at_the_same_time_get_row_ids_that_do_not_overlap(metastore, reader):
    table = a_table(metastore, features=["rowTracking"])
    failures = []

    def append(name):
        try:
            for number in range(4):
                file: AddFile = add(f"{name}-{number}", stats=stats_of(number + 1))
                SqlTxnLogWriter(metastore).commit(table, [file], read_version=0)
        except Exception as error:  # noqa: BLE001 - shown by the test itself
            failures.append(error)

    threads = [threading.Thread(target=append, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert reader.table(table).num_files == 12
    assert_no_overlap(reader, table)
    assert mark(reader, table) == {"rowIdHighWaterMark": 29}
