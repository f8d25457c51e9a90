from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirror_assets.delta.actions import CheckpointMetadata, Sidecar, TableProtocol, Txn
from mirror_assets.delta.arrays import array_of
from mirror_assets.delta.checkpoint import checkpoint_schema, read_checkpoint_batches
from mirror_assets.delta.checkpoint_columns import CheckpointColumns, string_maps
from mirror_assets.delta.checkpoint_content import CheckpointContent, count_content
from mirror_assets.delta.checkpoint_writer import CheckpointWriter
from mirror_assets.errors import CheckpointMismatchError
from mirror_assets_tests.delta.samples import a_domain, a_field, a_metadata, a_protocol

STRUCT = {"delta.checkpoint.writeStatsAsStruct": "true"}
PLAIN = TableProtocol(min_reader_version=1, min_writer_version=2)


def rows(*adds: dict[str, Any]) -> pa.RecordBatch:
    """Adds as SQL's rows."""
    defaults: dict[str, Any] = {
        "path": "a.parquet",
        "partition_values": "{}",
        "size": 1,
        "modification_time": 2,
        "stats": None,
        "tags": None,
        "clustering_provider": None,
        "base_row_id": None,
        "default_row_commit_version": None,
        "dv_storage_type": None,
        "dv_path_or_inline_dv": None,
        "dv_offset": None,
        "dv_size_in_bytes": None,
        "dv_cardinality": None,
    }
    return pa.RecordBatch.from_pylist([defaults | one for one in adds])


def written(columns: CheckpointColumns, *batches: pa.RecordBatch) -> io.BytesIO:
    out = io.BytesIO()
    with CheckpointWriter(out, columns, columns.schema()) as writer:
        writer.write_adds(batches)
    out.seek(0)
    return out


def adds_of(columns: CheckpointColumns, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row["add"] for row in pq.read_table(written(columns, *batches)).to_pylist()]


def test_all_kinds_of_actions_are_read_back_as_they_were_written() -> None:
    protocol = a_protocol("domainMetadata", reader=["v2Checkpoint"])
    metadata = a_metadata(configuration={"a": "b"}, name="n", created_time=5)
    actions = [
        CheckpointMetadata(version=4, tags={"x": None, "y": "z"}),
        protocol,
        metadata,
        Txn(app_id="app", version=1),
        a_domain(),
        Sidecar(path="s.parquet", size_in_bytes=9, modification_time=8),
    ]
    columns = CheckpointColumns.of(protocol, metadata)
    out = io.BytesIO()
    with CheckpointWriter(out, columns, columns.schema(v2=True)) as writer:
        writer.write_actions(actions)
    out.seek(0)

    found = [action for batch in read_checkpoint_batches(out) for action in batch]

    assert sorted(found, key=repr) == sorted(actions, key=repr)
    assert writer.content == CheckpointContent(
        protocols=1, metadatas=1, txns=1, domains=1, checkpoint_metadatas=1, sidecars=1
    )


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        (PLAIN, (None, None)),
        (
            TableProtocol(
                min_reader_version=1, min_writer_version=2, reader_features=[], writer_features=[]
            ),
            (None, None),
        ),
        (a_protocol(), (None, [])),
        (a_protocol(reader=[]), ([], [])),
        (a_protocol(reader=["columnMapping"]), (["columnMapping"], ["columnMapping"])),
    ],
)
def test_feature_lists_stand_only_where_the_versions_allow_them(
    protocol: TableProtocol, expected: tuple[list[str] | None, list[str] | None]
) -> None:
    columns = CheckpointColumns.of(protocol, a_metadata())
    out = io.BytesIO()
    with CheckpointWriter(out, columns, columns.schema()) as writer:
        writer.write_actions([protocol])

    row = pq.read_table(io.BytesIO(out.getvalue())).to_pylist()[0]["protocol"]

    assert (row["readerFeatures"], row["writerFeatures"]) == expected


def test_maps_keep_the_order_of_their_keys_and_null_values() -> None:
    texts = pa.array(['{"b":"1","a":null}', None, "{}", '{"b":"1","a":null}'])

    maps = string_maps(texts)

    assert maps.to_pylist() == [[("b", "1"), ("a", None)], None, [], [("b", "1"), ("a", None)]]


def test_nearly_unique_maps_are_right_too() -> None:
    values = [{"p": f"value {number}"} for number in range(1000)]

    maps = string_maps(pa.array([json.dumps(value) for value in values]))

    assert [dict(entries) for entries in maps.to_pylist()] == values


def test_an_empty_text_of_statistics_is_written_as_none() -> None:
    columns = CheckpointColumns.of(PLAIN, a_metadata())

    found = adds_of(columns, rows({"stats": ""}, {"stats": "{}"}))

    assert [add["stats"] for add in found] == [None, "{}"]


def test_the_types_that_a_driver_chose_do_not_matter() -> None:
    columns = CheckpointColumns.of(PLAIN, a_metadata())
    batch = rows({"dv_storage_type": "u", "dv_path_or_inline_dv": "x", "dv_size_in_bytes": 3})
    loose = batch.cast(
        pa.schema(
            [
                pa.field(f.name, pa.large_string() if pa.types.is_string(f.type) else f.type)
                for f in batch.schema
            ]
        )
    )

    assert adds_of(columns, loose) == adds_of(columns, batch)


def test_large_input_is_cut_into_row_groups() -> None:
    columns = CheckpointColumns.of(PLAIN, a_metadata())
    batch = rows(*({"path": f"{n}.parquet"} for n in range(30_000)))

    out = written(columns, batch, batch, batch)

    assert pq.ParquetFile(out).metadata.num_row_groups == 2
    assert count_content(out) == CheckpointContent(adds=90_000, size_bytes=90_000)


TYPED = a_metadata(
    a_field("l"),
    a_field("d", "decimal(20,2)"),
    a_field("t", "timestamp"),
    a_field("n", "timestamp_ntz"),
    a_field("day", "date"),
    a_field("f", "double"),
    a_field("s", "string"),
    a_field("b", "boolean"),
    a_field("in", {"type": "struct", "fields": [a_field("x", "short")]}),
    a_field("list", {"type": "array", "elementType": "long", "containsNull": True}),
    configuration=STRUCT,
)
BIG = Decimal("123456789012345678.25")


def parsed(bounds: str, metadata: Any = TYPED) -> dict[str, Any]:
    columns = CheckpointColumns.of(a_protocol(), metadata)
    stats = f'{{"numRecords":5,"minValues":{bounds},"nullCount":{{"l":1,"list":2}}}}'
    result: dict[str, Any] = adds_of(columns, rows({"stats": stats}))[0]["stats_parsed"]
    return result


def test_statistics_are_typed_as_the_columns_are() -> None:
    found = parsed(
        '{"l":-5,"d":123456789012345678.25,"t":"2026-01-02T03:04:05.678Z",'
        '"n":"2026-01-02T03:04:05.678","day":"2026-01-02","f":1.5,"s":"x","in":{"x":7}}'
    )

    assert found["numRecords"] == 5
    assert found["minValues"] == {
        "l": -5,
        "d": BIG,
        "t": datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
        "n": datetime(2026, 1, 2, 3, 4, 5, 678_000),  # noqa: DTZ001 - it has no zone
        "day": date(2026, 1, 2),
        "f": 1.5,
        "s": "x",
        "in": {"x": 7},
    }
    assert found["nullCount"]["l"] == 1
    assert found["nullCount"]["list"] == 2
    assert found["tightBounds"] is None
    assert "b" not in found["minValues"]


@pytest.mark.parametrize(
    "bounds",
    [
        '{"l":9223372036854775808}',
        '{"l":1.5}',
        '{"l":"1"}',
        '{"d":0.125}',
        '{"d":1234567890123456789012.0}',
        '{"t":"2026-01-02T03:04:05.678"}',
        '{"n":"2026-01-02T03:04:05.678Z"}',
        '{"day":"soon"}',
        '{"f":"x"}',
        '{"s":5}',
        '{"in":5}',
        '{"in":{"x":40000}}',
    ],
)
def test_a_bound_that_is_not_of_its_type_is_unknown_and_never_wrong(bounds: str) -> None:
    found = parsed(bounds)["minValues"]

    assert set(found.pop("in") or {"x": None}.items()) <= {("x", None), "x"}
    assert set(found.values()) == {None}


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks_come_as_text(text: str) -> None:
    assert str(parsed(f'{{"f":"{text}"}}')["minValues"]["f"]) == str(float(text))


@pytest.mark.parametrize("stats", [None, "", "{", "[]", "null", "5"])
def test_statistics_that_cannot_be_read_are_null(stats: str | None) -> None:
    columns = CheckpointColumns.of(a_protocol(), TYPED)

    assert adds_of(columns, rows({"stats": stats}))[0]["stats_parsed"] is None


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"delta.dataSkippingNumIndexedCols": "2"}, {"a", "s"}),
        ({"delta.dataSkippingNumIndexedCols": "0"}, None),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, {"a", "s", "z,z"}),
        ({"delta.dataSkippingStatsColumns": "a,`z,z`"}, {"a", "z,z"}),
        ({"delta.dataSkippingStatsColumns": "s.x"}, {"s"}),
    ],
)
def test_statistics_cover_the_columns_that_the_table_indexes(
    properties: dict[str, str], expected: set[str] | None
) -> None:
    inner = {"type": "struct", "fields": [a_field("x")]}
    metadata = a_metadata(
        a_field("a"),
        a_field("s", inner),
        a_field("z,z"),
        a_field("p"),
        partition_columns=["p"],
        configuration={**STRUCT, **properties},
    )

    found = parsed("{}", metadata)

    assert (set(found["nullCount"]) if "nullCount" in found else None) == expected


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "a b", "a b"),
        ("string", "", None),
        ("long", "-5", -5),
        ("byte", "300", None),
        ("boolean", "true", True),
        ("double", "NaN", "nan"),
        ("decimal(4,1)", "12.5", Decimal("12.5")),
        ("decimal(4,1)", "12.55", None),
        ("date", "2026-02-28", date(2026, 2, 28)),
        ("date", "2026-02-31", None),
        ("timestamp", "2026-01-02 03:04:05.000006", datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
        ("timestamp", "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("binary", "ü", "ü".encode()),
    ],
)
def test_partition_values_are_typed(kind: str, text: str, value: Any) -> None:
    metadata = a_metadata(
        a_field("id"), a_field("p", kind), partition_columns=["p"], configuration=STRUCT
    )
    columns = CheckpointColumns.of(a_protocol(), metadata)
    values = json.dumps({"p": text})

    found = adds_of(columns, rows({"partition_values": values}, {"partition_values": '{"p":null}'}))

    first, second = (add["partitionValues_parsed"]["p"] for add in found)
    assert second is None
    assert str(first) == value if value == "nan" else first == value


def test_without_json_the_statistics_stand_in_the_struct_whatever_the_other_property_says() -> None:
    properties = {
        "delta.checkpoint.writeStatsAsJson": "false",
        "delta.checkpoint.writeStatsAsStruct": "false",
    }
    columns = CheckpointColumns.of(a_protocol(), a_metadata(configuration=properties))

    names = {field.name for field in columns.add_type}

    assert "stats_parsed" in names
    assert "stats" not in names


def test_old_writers_know_no_choice() -> None:
    columns = CheckpointColumns.of(PLAIN, a_metadata(configuration=STRUCT))

    assert columns.schema().equals(checkpoint_schema())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", None, "ü😀", ""], pa.string()),
        ([None, None], pa.map_(pa.string(), pa.string())),
        ([], pa.list_(pa.string())),
        ([1, None, -(2**63), 2**63 - 1], pa.int64()),
        ([2**31 - 1, -(2**31)], pa.int32()),
        ([True, None, False] * 5, pa.bool_()),
        ([["a", None], [], None], pa.list_(pa.string())),
        ([{"a": "b", "c": None}, None, {}], pa.map_(pa.string(), pa.string())),
        ([{"x": 1}, None, {"y": "z", "other": 1}], pa.struct({"x": pa.int64(), "y": pa.string()})),
    ],
)
def test_arrays_are_those_of_arrow(values: list[Any], kind: pa.DataType) -> None:
    expected = [
        list(v.items()) if isinstance(v, dict) and pa.types.is_map(kind) else v for v in values
    ]

    made = array_of(values, kind)

    made.validate(full=True)
    assert made.equals(pa.array(expected, kind))


def test_a_row_with_two_actions_is_found() -> None:
    schema = checkpoint_schema()
    row = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}, "txn": {"appId": "a"}}
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row], schema=schema), out)

    with pytest.raises(CheckpointMismatchError, match="exactly one action"):
        count_content(io.BytesIO(out.getvalue()))


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 1000])
def test_what_is_no_parquet_file_is_found(data: bytes) -> None:
    with pytest.raises(CheckpointMismatchError, match="cannot be decoded"):
        count_content(io.BytesIO(data))


def test_another_schema_is_found() -> None:
    out = written(CheckpointColumns.of(PLAIN, a_metadata()), rows({}))

    with pytest.raises(CheckpointMismatchError, match="schema"):
        count_content(out, schema=checkpoint_schema(v2=True))
