from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from mirror_assets.delta.actions import (
    Action,
    AddFile,
    CheckpointMetadata,
    DeletionVector,
    DomainMetadata,
    Format,
    MetaData,
    RemoveFile,
    Sidecar,
    TableProtocol,
    Txn,
)
from mirror_assets.delta.checkpoint import (
    checkpoint_schema,
    read_checkpoint_batches,
    read_json_checkpoint,
)
from mirror_assets.delta.commit_file import decode, encode
from mirror_assets.delta.log_paths import Checkpoint, LogListing, sidecar_name
from mirror_assets.errors import MalformedActionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

ADD = {"path": "p", "partitionValues": [], "size": 1, "modificationTime": 2, "dataChange": False}
ACTIONS: list[dict[str, Any]] = [
    {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["a"]}},
    {"metaData": {"id": "i", "schemaString": "{}", "configuration": [("k", "v")]}},
    {"txn": {"appId": "x", "version": 1}},
    {"add": ADD},
    {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
    {"remove": {"path": "q", "deletionTimestamp": 5, "dataChange": False}},
    {"checkpointMetadata": {"version": 4}},
    {"sidecar": {"path": "s.parquet", "sizeInBytes": 7, "modificationTime": 8}},
]


def parquet(
    rows: Sequence[dict[str, Any]], schema: pa.Schema | None = None, **options: Any
) -> pa.Buffer:
    table = pa.Table.from_pylist(rows, schema or checkpoint_schema(v2=True))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def read(source: Any, **options: Any) -> list[Action]:
    return [action for batch in read_checkpoint_batches(source, **options) for action in batch]


def only_add(source: Any) -> AddFile:
    (action,) = read(source)
    assert isinstance(action, AddFile)
    return action


def test_each_kind_of_row_becomes_its_action() -> None:
    actions = read(parquet(ACTIONS))

    assert sorted(actions, key=lambda action: type(action).__name__) == [
        AddFile(path="p", partition_values={}, size=1, modification_time=2, data_change=False),
        CheckpointMetadata(version=4),
        DomainMetadata(domain="d", configuration="{}", removed=False),
        MetaData(
            id="i",
            format=Format(),
            schema_string="{}",
            partition_columns=[],
            configuration={"k": "v"},
        ),
        RemoveFile(path="q", deletion_timestamp=5, data_change=False),
        Sidecar(path="s.parquet", size_in_bytes=7, modification_time=8),
        TableProtocol(min_reader_version=3, min_writer_version=7, reader_features=["a"]),
        Txn(app_id="x", version=1),
    ]


def test_all_members_of_a_file_are_kept() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "ab", "sizeInBytes": 3, "cardinality": 4}
    row = ADD | {
        "partitionValues": [("a", "1"), ("b", None)],
        "tags": [("t", None)],
        "deletionVector": vector | {"offset": 0, "maxRowIndex": 9},
        "baseRowId": 5,
        "defaultRowCommitVersion": 6,
        "clusteringProvider": "liquid",
        "stats": '{"numRecords": 7}',
    }

    assert only_add(parquet([{"add": row}])) == AddFile(
        path="p",
        partition_values={"a": "1", "b": None},
        size=1,
        modification_time=2,
        data_change=False,
        stats='{"numRecords": 7}',
        tags={"t": None},
        deletion_vector=DeletionVector(
            storage_type="u", path_or_inline_dv="ab", offset=0, size_in_bytes=3, cardinality=4
        ),
        base_row_id=5,
        default_row_commit_version=6,
        clustering_provider="liquid",
    )


def test_files_with_and_without_optional_members_do_not_mix() -> None:
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 3, "cardinality": 4}
    rows = [
        {"add": ADD | {"path": "0", "deletionVector": vector, "partitionValues": [("a", "0")]}},
        {"txn": {"appId": "between", "version": 1}},
        {"add": ADD | {"path": "1", "partitionValues": None}},
        {"add": ADD | {"path": "2", "partitionValues": [("a", "2")], "tags": []}},
    ]

    adds = [action for action in read(parquet(rows)) if isinstance(action, AddFile)]

    assert [add.path for add in adds] == ["0", "1", "2"]
    assert [add.partition_values for add in adds] == [{"a": "0"}, {}, {"a": "2"}]
    assert [add.dv_id for add in adds] == ["ix", "", ""]
    assert [add.tags for add in adds] == [None, None, {}]


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
@pytest.mark.parametrize("row_group_size", [3, 1000])
def test_batches_bound_what_is_held_and_lose_nothing(batch_size: int, row_group_size: int) -> None:
    rows = [{"add": ADD | {"path": str(i), "partitionValues": [("i", str(i))]}} for i in range(50)]
    source = parquet(rows, row_group_size=row_group_size)

    batches = list(read_checkpoint_batches(source, batch_size=batch_size))

    assert max(map(len, batches)) <= batch_size
    adds = [action for batch in batches for action in batch if isinstance(action, AddFile)]
    assert [(add.path, add.partition_values) for add in adds] == [
        (str(i), {"i": str(i)}) for i in range(50)
    ]


@pytest.mark.parametrize(
    "members",
    [
        [],
        [("unheardOf", pa.struct({"x": pa.int64()}))],
        [("stats_parsed", pa.string())],
    ],
)
def test_missing_and_unknown_members_do_not_matter(
    members: list[tuple[str, pa.DataType]],
) -> None:
    old = pa.struct(
        [
            pa.field("path", pa.string(), nullable=False),
            pa.field("size", pa.int32(), nullable=False),
            pa.field("modificationTime", pa.int64(), nullable=False),
            *members,
        ]
    )
    schema = pa.schema({"add": old, "commitInfo": pa.struct({"x": pa.int64()}), "z": pa.bool_()})
    row = {"add": {"path": "p", "size": 1, "modificationTime": 2}, "z": True}

    assert only_add(parquet([row, {"commitInfo": {"x": 1}}], schema)) == AddFile(
        path="p", partition_values={}, size=1, modification_time=2, data_change=False
    )


def test_a_row_with_two_actions_gives_both() -> None:
    kinds = {type(action) for action in read(parquet([ACTIONS[0] | ACTIONS[1]]))}

    assert kinds == {TableProtocol, MetaData}


def test_a_file_without_actions_gives_none() -> None:
    assert read(parquet([{"x": 1}], pa.schema({"x": pa.int64()}))) == []
    assert read(parquet([])) == []


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(pa.py_buffer(b""), id="empty"),
        pytest.param(pa.py_buffer(b"PAR1 torn"), id="torn"),
        pytest.param(parquet([{"add": ADD | {"size": None}}]), id="add without size"),
        pytest.param(parquet([{"sidecar": {"path": "s"}}]), id="sidecar without size"),
        pytest.param(
            parquet([{"add": {"path": "p"}}], pa.schema({"add": pa.struct({"path": pa.string()})})),
            id="add with a path alone",
        ),
    ],
)
def test_what_is_torn_or_lacks_required_members_is_refused(source: pa.Buffer) -> None:
    with pytest.raises(MalformedActionError):
        read(source)


def test_a_json_checkpoint_gives_the_actions_of_its_lines() -> None:
    actions = [
        CheckpointMetadata(version=4),
        Sidecar(path="s.parquet", size_in_bytes=7, modification_time=8),
        TableProtocol(min_reader_version=1, min_writer_version=2),
    ]

    data = encode(actions) + b'{"commitInfo":{}}\n{"unheardOf":{}}\n'

    assert read_json_checkpoint(data) == actions


STATS_TYPE = pa.struct(
    {
        "i": pa.int32(),
        "f": pa.float32(),
        "d": pa.float64(),
        "dec": pa.decimal128(8, 5),
        "s": pa.string(),
        "day": pa.date32(),
        "ts": pa.timestamp("us", tz="UTC"),
        "ntz": pa.timestamp("us"),
        "b": pa.bool_(),
        "bin": pa.binary(),
        "nested": pa.struct({"x": pa.struct({"y": pa.int64()})}),
    }
)


def parsed_stats(values: dict[str, Any] | None, **options: Any) -> str | None:
    parsed = pa.struct({"numRecords": pa.int64(), "minValues": STATS_TYPE})
    members = [field for field in checkpoint_schema().field("add").type if field.name != "stats"]
    schema = pa.schema({"add": pa.struct([*members, pa.field("stats_parsed", parsed)])})
    stats = None if values is None else {"numRecords": 3, "minValues": values}
    return only_add(parquet([{"add": ADD | {"stats_parsed": stats}}], schema, **options)).stats


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "{}"),
        ({"i": -5, "s": 'a"ü', "b": True}, '{"i":-5,"s":"a\\"ü","b":true}'),
        ({"f": 0.1, "d": 2.5}, '{"f":0.1,"d":2.5}'),
        ({"d": float("nan"), "f": float("-inf")}, '{"f":"-Infinity","d":"NaN"}'),
        ({"dec": Decimal("8.99900")}, '{"dec":8.99900}'),
        ({"dec": Decimal("0.00001")}, '{"dec":0.00001}'),
        ({"day": date(2021, 8, 9)}, '{"day":"2021-08-09"}'),
        (
            {"ts": datetime(2021, 8, 9, 13, 32, 39, 123_999, tzinfo=UTC)},
            '{"ts":"2021-08-09T13:32:39.123Z"}',
        ),
        (
            {"ts": datetime(1969, 12, 31, 23, 59, 59, 999_001, tzinfo=UTC)},
            '{"ts":"1969-12-31T23:59:59.999Z"}',
        ),
        ({"ts": datetime(1, 1, 1, tzinfo=UTC)}, '{"ts":"0001-01-01T00:00:00.000Z"}'),
        ({"ts": datetime(9999, 12, 31, tzinfo=UTC)}, '{"ts":"9999-12-31T00:00:00.000Z"}'),
        ({"ntz": datetime(2021, 8, 9, 1, 2, 3)}, '{"ntz":"2021-08-09T01:02:03.000"}'),  # noqa: DTZ001
        ({"bin": b"x"}, "{}"),
        ({"nested": {"x": {"y": 1}}}, '{"nested":{"x":{"y":1}}}'),
        ({"nested": {"x": None}}, '{"nested":{}}'),
    ],
)
def test_statistics_in_columns_become_deltas_json(values: dict[str, Any], text: str) -> None:
    assert parsed_stats(values) == f'{{"numRecords":3,"minValues":{text}}}'


def test_an_int96_timestamp_is_an_instant() -> None:
    text = parsed_stats(
        {"ts": datetime(2021, 8, 9, tzinfo=UTC)}, use_deprecated_int96_timestamps=True
    )

    assert text == '{"numRecords":3,"minValues":{"ts":"2021-08-09T00:00:00.000Z"}}'


def test_a_file_without_statistics_has_none() -> None:
    assert parsed_stats(None) is None


@pytest.mark.parametrize("write_statistics", [True, False])
def test_the_text_of_statistics_is_preferred_to_the_columns(write_statistics: bool) -> None:
    parsed = pa.field("stats_parsed", pa.struct({"numRecords": pa.int64()}))
    schema = pa.schema({"add": pa.struct([*checkpoint_schema().field("add").type, parsed])})
    rows = [
        {"add": ADD | {"stats": '{"numRecords": 1}', "stats_parsed": {"numRecords": 1}}},
        {"add": ADD | {"stats": None, "stats_parsed": {"numRecords": 2}}},
        {"add": ADD},
    ]

    adds = read(parquet(rows, schema, write_statistics=write_statistics))

    assert [add.stats for add in adds if isinstance(add, AddFile)] == [
        '{"numRecords": 1}',
        '{"numRecords":2}',
        None,
    ]


@pytest.mark.parametrize("partition_by", [[], ["p", "q"]])
def test_a_checkpoint_of_deltalake_holds_the_files_it_lists(
    tmp_path: Path, partition_by: list[str]
) -> None:
    for i in range(4):
        data = pa.table({"p": ["a b", None, "ü"], "q": [i, i, i + 1], "v": [1.5, None, -2.0]})
        write_deltalake(tmp_path, data, mode="append", partition_by=partition_by or None)
    table = DeltaTable(tmp_path)
    table.delete("q = 1")
    table.create_checkpoint()

    (checkpoint,) = LogListing.of(files_of(tmp_path)).checkpoints[table.version()]
    actions = actions_of(tmp_path / "_delta_log", checkpoint)

    adds = {action.path: action for action in actions if isinstance(action, AddFile)}
    listed = pa.table(table.get_add_actions()).to_pylist()
    assert set(adds) == {row["path"] for row in listed}
    for row in listed:
        stats = json.loads(adds[row["path"]].stats or "{}")
        assert adds[row["path"]].size == row["size_bytes"]
        assert stats["numRecords"] == row["num_records"]
        partition = row.get("partition") or {}
        assert {k: None if v is None else str(v) for k, v in partition.items()} == adds[
            row["path"]
        ].partition_values
    (meta,) = [action for action in actions if isinstance(action, MetaData)]
    assert meta.id == table.metadata().id
    assert meta.partition_columns == partition_by


@pytest.mark.corpora
def test_every_checkpoint_of_the_corpora_equals_the_replay_of_its_commits(corpora: Path) -> None:
    compared = 0
    for log in sorted(corpora.glob("*/*/_delta_log")):
        listing = LogListing.of(files_of(log.parent))
        for version, checkpoints in listing.checkpoints.items():
            for checkpoint in checkpoints:
                actions = actions_of(log, checkpoint)
                if all(v in listing.commits for v in range(version + 1)):
                    compared += 1
                    commits = [log / listing.commits[v].name for v in range(version + 1)]
                    assert live(actions) == live(replayable(commits)), checkpoint.names
    assert compared


def files_of(table: Path) -> Iterable[tuple[str, int, int]]:
    log = table / "_delta_log"
    for file in log.rglob("*"):
        if file.is_file():
            yield file.relative_to(log).as_posix(), file.stat().st_size, 0


def actions_of(log: Path, checkpoint: Checkpoint) -> list[Action]:
    actions = [action for name in checkpoint.names for action in read_file(log / name)]
    sidecars = [sidecar_name(a.path).name for a in actions if isinstance(a, Sidecar)]
    return actions + [action for name in sidecars for action in read_file(log / name)]


def read_file(path: Path) -> list[Action]:
    if path.suffix == ".json":
        return read_json_checkpoint(path.read_bytes())
    with path.open("rb") as stream:
        return read(stream)


def replayable(commits: list[Path]) -> Iterable[Action]:
    for commit in commits:
        yield from decode(commit.read_bytes()).actions


def live(actions: Iterable[Action]) -> dict[tuple[str, str], AddFile]:
    """The live files, without what checkpoints change: `dataChange`, and absent or empty tags."""
    files: dict[tuple[str, str], AddFile] = {}
    for action in actions:
        match action:
            case AddFile():
                files[action.path, action.dv_id] = msgspec.structs.replace(
                    action, data_change=False, tags=action.tags or None, extra={}
                )
            case RemoveFile():
                files.pop((action.path, action.dv_id), None)
            case _:
                pass
    return files
