"""Files in the metastore: replaced, given vectors, removed, and by the thousand."""

from __future__ import annotations

import pytest

from mirror_assets.delta.table_state import replay
from mirror_assets.errors import RuleViolationError
from mirror_assets.metastore.dialect import BULK_ROWS
from mirror_assets_tests.builders import a_table, add, commit, paths, remove, state_in_sql, txn
from mirror_assets_tests.delta.samples import a_vector, stats_of

VECTORS = {
    "features": ["deletionVectors"],
    "configuration": {"delta.enableDeletionVectors": "true"},
}
FIRST = a_vector(cardinality=1)
SECOND = a_vector(offset=0)
THIRD = a_vector(offset=None)


def with_vector(path, vector, **members):
    return add(path, deletion_vector=vector, stats=stats_of(10), **members)


def test_an_add_of_a_live_file_replaces_it(metastore, reader):
    table = a_table(metastore)
    commit(metastore, table, add("a", size=1), add("b"))
    commit(metastore, table, add("a", size=2, data_change=False, tags={"k": "v"}))
    (kept, replaced) = reader.live_files(table)
    assert (kept.path, replaced.path, replaced.size, replaced.tags) == ("b", "a", 2, {"k": "v"})
    assert [file.size for file in reader.live_files(table, 1)] == [1, 1000]
    assert list(reader.tombstones(table)) == []


def test_a_new_deletion_vector_replaces_the_file_and_leaves_a_tombstone(metastore, reader):
    table = a_table(metastore, **VECTORS)
    commit(metastore, table, add("a", stats=stats_of(10)))
    commit(metastore, table, remove("a"), with_vector("a", FIRST))
    commit(metastore, table, remove("a", deletion_vector=FIRST), with_vector("a", SECOND))
    commit(metastore, table, with_vector("a", THIRD), remove("a", deletion_vector=SECOND))
    assert [file.dv_id for file in reader.live_files(table)] == [THIRD.unique_id]
    assert [file.dv_id for file in reader.live_files(table, 2)] == [FIRST.unique_id]
    gone = [tombstone.dv_id for tombstone in reader.tombstones(table)]
    assert gone == ["", FIRST.unique_id, SECOND.unique_id]
    assert reader.table(table).num_files == 1


def test_a_file_that_comes_back_with_an_old_vector_is_no_tombstone_any_more(metastore, reader):
    table = a_table(metastore, **VECTORS)
    commit(metastore, table, with_vector("a", FIRST))
    commit(metastore, table, remove("a", deletion_vector=FIRST), add("a", stats=stats_of(10)))
    commit(metastore, table, remove("a"), with_vector("a", FIRST))
    log = [found.file.actions for found in reader.commits(table)]
    for version in range(4):
        in_memory = replay(enumerate(log[: version + 1]))
        assert state_in_sql(metastore, table, version) == in_memory
    assert [(t.path, t.dv_id) for t in reader.tombstones(table)] == [("a", "")]


@pytest.mark.parametrize("live", [None, FIRST])
def test_a_second_vector_for_a_live_file_needs_the_remove_of_the_first(metastore, reader, live):
    table = a_table(metastore, **VECTORS)
    commit(metastore, table, with_vector("a", live))
    with pytest.raises(RuleViolationError) as caught:
        commit(metastore, table, add("b"), with_vector("a", SECOND))
    assert (caught.value.rule, caught.value.table, caught.value.version) == ("DL-ADD-06", table, 2)
    with pytest.raises(RuleViolationError):
        commit(metastore, table, remove("a", deletion_vector=THIRD), with_vector("a", SECOND))
    assert reader.table(table).head_version == 1
    assert paths(reader.live_files(table)) == ["a"]


@pytest.mark.parametrize("path", ["never.parquet", 'it\'s "odd" \\ 100%.parquet', "é😀"])
def test_a_remove_of_a_file_that_is_not_there_is_kept_and_warned_of(metastore, reader, path):
    table = a_table(metastore)
    done = commit(metastore, table, add("a"), remove(path))
    (finding,) = done.findings
    assert (finding.rule, finding.table, finding.version) == ("DL-REM-06", table, 1)
    assert repr(path) in finding.message
    assert paths(reader.tombstones(table)) == [path]
    assert paths(reader.live_files(table)) == ["a"]


def test_a_second_remove_supersedes_the_first_tombstone(metastore, reader):
    table = a_table(metastore)
    commit(metastore, table, add("a"))
    commit(metastore, table, remove("a", deletion_timestamp=1))
    done = commit(metastore, table, remove("a", deletion_timestamp=2))
    assert [finding.rule for finding in done.findings] == ["DL-REM-06"]
    assert [t.deletion_timestamp for t in reader.tombstones(table)] == [2]
    assert [t.deletion_timestamp for t in reader.tombstones(table, 2)] == [1]


def test_a_removed_path_is_found_whatever_characters_it_has(metastore, reader):
    odd = ["a%20b", "a%25b", "x=1/é", "day=2026-01-01%2012%3A00/p", "😀", "a'b", "p=%22/f"]
    table = a_table(metastore)
    commit(metastore, table, *map(add, odd))
    done = commit(metastore, table, *map(remove, odd))
    assert done.findings == []
    assert list(reader.live_files(table)) == []


def test_whoever_stops_reading_early_leaves_nothing_open(metastore, reader):
    table = a_table(metastore)
    commit(metastore, table, add("a"), add("b"))
    files = reader.live_files(table)
    assert next(files).path == "a"
    del files
    commit(metastore, table, add("c"))
    assert paths(reader.live_files(table)) == ["a", "b", "c"]


def test_a_commit_by_the_bulk_road_equals_many_small_ones(metastore, reader):
    count = BULK_ROWS + 1
    files = [
        add(f"p={n}/é-{n}", partition_values={"p": str(n)}, size=n, tags={"n": None, "é": "\x01"})
        for n in range(count)
    ]
    gone = [remove(file.path, size=file.size, extra={"n": file.size}) for file in files]
    bulk = a_table(metastore, partitioned_by={"p": "string"})
    small = a_table(metastore, partitioned_by={"p": "string"})
    commit(metastore, bulk, *files)
    half = count // 2
    commit(metastore, small, *files[:half])
    commit(metastore, small, *files[half:])
    assert list(reader.live_files(bulk)) == list(reader.live_files(small)) == files
    commit(metastore, bulk, *gone)
    assert list(reader.tombstones(bulk)) == gone
    assert list(reader.live_files(bulk)) == []
    assert reader.table(bulk).size_bytes == 0
    assert list(reader.live_files(bulk, 1)) == files
    for found in reader.commits(bulk):
        found.encode(bulk)


def test_a_large_commit_keeps_the_place_of_every_action(metastore, reader):
    table = a_table(metastore, **VECTORS)
    files = [add(f"{n}") for n in range(BULK_ROWS)]
    cut = add("cut", deletion_vector=a_vector(), stats=stats_of(9))
    given = [txn("app", 1), *files[:7], remove("gone"), cut, *files[7:], txn("another", 2)]
    done = commit(metastore, table, *given)
    (found,) = reader.commits(table, first=done.version)
    assert found.file.actions[1:] == given
    assert list(reader.live_files(table)) == [*files[:7], cut, *files[7:]]
