"""Files as columns of numbers: the same whether they come from commits or from a checkpoint."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from mirror_assets.conformance.checkpoint_entries import Entries
from mirror_assets.conformance.checkpoint_files import read_adds, read_removes
from mirror_assets.conformance.file_columns import FileColumns, constant, key_hash, repeats
from mirror_assets.conformance.live_files import LiveFiles, live_file
from mirror_assets.conformance.row_counts import counts_of, num_records
from mirror_assets.delta.actions import AddFile, DeletionVector
from mirror_assets.delta.checkpoint import checkpoint_schema

VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*", size_in_bytes=34, cardinality=2
)
MEMBERS: list[dict[str, Any]] = [
    {},
    {"stats": '{"numRecords":7,"minValues":{"a":"\\u00e9"}}'},
    {"stats": '{"minValues":{}}'},
    {"partition_values": {"day": "1", "region": "é"}},
    {"partition_values": {"region": "é", "day": "1"}},
    {"partition_values": {"day": "é", "region": "1"}},
    {"partition_values": {"day": None, "region": ""}},
    {"tags": {"INSERTION_TIME": "1", "none": None}},
    {"deletion_vector": VECTOR, "stats": '{"numRecords":9}'},
    {"deletion_vector": msgspec.structs.replace(VECTOR, offset=0)},
    {"base_row_id": 0, "default_row_commit_version": 0, "clustering_provider": "liquid"},
    {"base_row_id": 2**62, "size": 2**63 - 1, "modification_time": -5},
]


def adds_of(members: list[dict[str, Any]]) -> list[AddFile]:
    required = {"partition_values": {}, "size": 5, "modification_time": 9, "data_change": False}
    return [
        AddFile(path=f"part-{number}", **(required | chosen))
        for number, chosen in enumerate(members)
    ]


def column_of(adds: list[AddFile]) -> pa.StructArray:
    rows = [msgspec.to_builtins(add) for add in adds]
    return pa.array(rows, checkpoint_schema().field("add").type)


def assert_same(one: FileColumns, other: FileColumns) -> None:
    for field in fields(FileColumns):
        assert getattr(one, field.name).tolist() == getattr(other, field.name).tolist(), field.name


def from_actions(adds: list[AddFile]) -> FileColumns:
    return FileColumns.of((add.path, live_file(add, num_records(add.stats))) for add in adds)


@pytest.mark.parametrize("skipped", [0, 3])
def test_adds_of_a_checkpoint_become_the_numbers_of_those_of_commits(skipped: int) -> None:
    adds = adds_of(MEMBERS)
    assert_same(
        read_adds(column_of(adds).slice(skipped), Entries()).files, from_actions(adds[skipped:])
    )


@pytest.mark.parametrize("members", MEMBERS)
def test_files_that_all_agree_in_a_member_have_the_same_numbers(members: dict[str, Any]) -> None:
    adds = adds_of([members] * 3)
    assert_same(read_adds(column_of(adds), Entries()).files, from_actions(adds))


def test_what_a_checkpoint_must_repeat_tells_files_apart() -> None:
    told = from_actions(adds_of(MEMBERS)).fingerprint.tolist()
    alike = {0: "statistics are not repeated", 1: "", 2: "", 3: "one map in two orders", 4: ""}
    distinct = [value for place, value in enumerate(told) if place not in alike]
    assert told[0] == told[1] == told[2]
    assert told[3] == told[4]
    assert len({*distinct, told[0], told[3]}) == len(distinct) + 2


def test_removes_have_the_key_of_their_logical_file() -> None:
    rows = [
        {"path": "a", "deletionTimestamp": 5, "dataChange": True},
        {"path": "a", "dataChange": False, "deletionVector": msgspec.to_builtins(VECTOR)},
    ]
    removes = read_removes(pa.array(rows, checkpoint_schema().field("remove").type))
    assert removes.keys.tolist() == [key_hash("a", ""), key_hash("a", VECTOR.unique_id)]
    assert removes.times.tolist() == [5, 0]
    assert removes.data_changes == 1


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (['{"numRecords":1}', '{"numRecords":2,"a":{"b":[1]}}'], ([1, 2], 0)),
        (['{"numRecords":1}', "{}"], ([1, -1], 0)),
        (['{"numRecords":1}', None], ([1, -1], 0)),
        (['{"numRecords":1}', '{"numRecords":2'], ([1, -1], 1)),
        # together they would be one object
        (['{"numRecords":1', ',"numNulls":2}'], ([-1, -1], 2)),
        (['{"numRecords":"1"}', "", "null"], ([-1, -1, -1], 3)),
        (['{"numRecords":1}{"numRecords":2}', '{"numRecords":3}'], ([-1, 3], 1)),
        ([], ([], 0)),
    ],
)
def test_statistics_count_rows_or_are_found_broken(
    texts: list[str | None], expected: tuple[list[int], int]
) -> None:
    counts, broken = counts_of(pa.array(["{}", *texts], pa.string()).slice(1))
    assert (counts.tolist(), broken) == expected


def test_two_sets_of_files_are_told_apart() -> None:
    adds = adds_of(MEMBERS)
    one, other = from_actions(adds[:8]).ordered(), from_actions(adds[3:]).ordered()
    compared = one.against(other)
    assert set(compared.only_here.key) == {hash(add.path) for add in adds[:3]}
    assert set(compared.only_there.key) == {hash(add.path) for add in adds[8:]}
    assert_same(compared.here, compared.there)
    assert len(compared.here) == 5


def test_nothing_is_told_apart_from_nothing() -> None:
    files, none = from_actions(adds_of(MEMBERS)).ordered(), from_actions([])
    assert len(files.against(none).only_here) == len(none.against(files).only_there) == len(files)
    assert len(none.against(none).here) == 0


def test_a_key_is_repeated_once_for_each_time() -> None:
    assert repeats(np.array([3, 1, 3, 2, 3, 1])).tolist() == [1, 3, 3]
    assert repeats(constant(4, 3)).tolist() == [4, 4]


def test_live_files_count_what_comes_and_goes() -> None:
    adds = adds_of([{"stats": '{"numRecords":9}'}, {"deletion_vector": VECTOR, "size": 7}])
    live = LiveFiles(from_actions(adds).ordered())
    assert (live.count, live.size_bytes, live.vectors, live.deleted_records) == (2, 12, 1, 2)
    assert live.records is None
    live.drop(adds[1].path)
    assert (live.count, live.size_bytes, live.vectors, live.records) == (1, 5, 0, 9)
    live.put(msgspec.structs.replace(adds[0], size=100, stats='{"numRecords":4}'))
    assert (live.count, live.size_bytes, live.records) == (1, 100, 4)
    live.drop("never there")
    live.put(adds[1])
    assert live.files().size.tolist() == [
        size for _, size in sorted([(hash(adds[0].path), 100), (hash(adds[1].path), 7)])
    ]
    assert live.path_of(hash(adds[1].path)) == adds[1].path


def test_many_changes_are_folded_into_what_was_there() -> None:
    """More than are held as they are; each other file dies again."""
    count = 120_000
    live = LiveFiles.of(adds_of([{"size": 1}] * 1000))
    for add in adds_of([{"size": 2}] * count):
        live.put(add)
    for number in range(0, count, 2):
        live.drop(f"part-{number}")
    assert (live.count, live.size_bytes) == (count // 2, count)
    files = live.files()
    assert set(files.key) == {hash(f"part-{number}") for number in range(1, count, 2)}
    assert set(files.size) == {2}
    assert live.get("part-0") is None
    assert live.get("part-1") == files.file(files.place_of(hash("part-1")))
