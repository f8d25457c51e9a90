"""The kinds of tables that the mirror writes: each makes one, with what is hard to read in it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from mirror_assets_tests.conformance.mirrored import Mirrored, numbers, partition_value
from mirror_assets_tests.delta.samples import a_domain, a_field

if TYPE_CHECKING:
    from collections.abc import Callable

V2 = ("v2Checkpoint",)
VECTORS = {"delta.enableDeletionVectors": "true"}
STRUCTS = {
    "delta.checkpoint.writeStatsAsJson": "false",
    "delta.checkpoint.writeStatsAsStruct": "true",
}


def plain(table: Mirrored) -> None:
    table.create(a_field("id"), a_field("name", "string"))
    first = table.file(numbers(0, 3, name=["a", None, ""]))
    table.commit(first)
    table.commit(table.file(numbers(10, 2, name=["ü 😀", "x" * 50])))
    table.commit(table.remove(first), table.file(numbers(20, 1, name=["z"])))


TYPES: dict[str, tuple[Any, pa.Array]] = {
    "i8": ("byte", pa.array([-128, None, 127], pa.int8())),
    "i16": ("short", pa.array([-32768, None, 32767], pa.int16())),
    "i32": ("integer", pa.array([-(2**31), None, 2**31 - 1], pa.int32())),
    "i64": ("long", pa.array([-(2**63), None, 2**63 - 1], pa.int64())),
    "f32": ("float", pa.array([0.5, None, float("-inf")], pa.float32())),
    "f64": ("double", pa.array([1e300, None, float("nan")], pa.float64())),
    "small": ("decimal(9,2)", pa.array([Decimal("-1.50"), None, Decimal("0.00")])),
    "large": ("decimal(38,10)", pa.array([Decimal("9" * 28 + "." + "1" * 10), None, Decimal(0)])),
    "flag": ("boolean", pa.array([True, None, False])),
    "text": ("string", pa.array(["", None, "tab\tline\nü"])),
    "bytes": ("binary", pa.array([b"", None, b"\x00\xff"])),
    "day": ("date", pa.array([date(1600, 2, 29), None, date(9999, 12, 31)])),
    "at": (
        "timestamp",
        pa.array(
            [datetime(1900, 1, 1, tzinfo=UTC), None, datetime(2026, 3, 29, 1, 30, 0, 5, UTC)],
            pa.timestamp("us", "UTC"),
        ),
    ),
}
NESTED: dict[str, tuple[Any, pa.Array]] = {
    "point": (
        {"type": "struct", "fields": [a_field("x", "integer"), a_field("y", "string")]},
        pa.array(
            [{"x": 1, "y": "a"}, None, {"x": None, "y": None}],
            pa.struct([("x", pa.int32()), ("y", pa.string())]),
        ),
    ),
    "list": (
        {"type": "array", "elementType": "long", "containsNull": True},
        pa.array([[1, None], None, []], pa.list_(pa.int64())),
    ),
    "pairs": (
        {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
        pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int64())),
    ),
}
_DECIMALS = {"small": pa.decimal128(9, 2), "large": pa.decimal128(38, 10)}


def types(table: Mirrored) -> None:
    _typed(table, TYPES)


def nested(table: Mirrored) -> None:
    _typed(table, NESTED)


def _typed(table: Mirrored, columns: dict[str, tuple[Any, pa.Array]]) -> None:
    table.create(a_field("id"), *(a_field(name, kind) for name, (kind, _) in columns.items()))
    arrays = {
        name: values.cast(_DECIMALS.get(name, values.type)) for name, (_, values) in columns.items()
    }
    table.commit(table.file(numbers(0, 3, **arrays)))
    table.checkpoint()
    table.commit(table.file(numbers(10, 1, **{n: a.slice(2) for n, a in arrays.items()})))


def timestamps_ntz(table: Mirrored) -> None:
    table.create(
        a_field("id"),
        a_field("wall", "timestamp_ntz"),
        a_field("p", "timestamp_ntz"),
        partition_columns=["p"],
        features=("timestampNtz",),
    )
    moments = [datetime(1900, 1, 1), None, datetime(2026, 3, 29, 2, 30, 0, 5)]  # noqa: DTZ001 - without a zone is the point
    for number, moment in enumerate(moments):
        wall = pa.array(moments, pa.timestamp("us"))
        table.commit(
            table.file(
                numbers(10 * number, 3, wall=wall), {"p": pa.scalar(moment, pa.timestamp("us"))}
            )
        )
    table.checkpoint()


PARTITIONS: dict[str, tuple[str, list[pa.Scalar]]] = {
    "p": (
        "string",
        [
            pa.scalar(text, pa.string())
            for text in (
                "plain",
                " a b ",
                "quo\"te's",
                "back\\slash",
                "emoji 😀",
                "ü=%/:?#&+",
                None,
            )
        ],
    ),
    "n": ("integer", [pa.scalar(n, pa.int32()) for n in (0, -1, 2**31 - 1, 7, 8, 9, None)]),
    "d": (
        "date",
        [
            pa.scalar(day, pa.date32())
            for day in (date(2026, 1, 31), date(1900, 1, 1), *[date(2026, 2, 1)] * 4, None)
        ],
    ),
    "t": (
        "timestamp",
        [
            pa.scalar(
                None if second is None else datetime(2026, 1, 31, 10, 0, second, 5, UTC),
                pa.timestamp("us", "UTC"),
            )
            for second in (*range(6), None)
        ],
    ),
    "flag": ("boolean", [pa.scalar(b, pa.bool_()) for b in (True, False) * 3 + (None,)]),
    "money": (
        "decimal(9,2)",
        [
            pa.scalar(None if text is None else Decimal(text), pa.decimal128(9, 2))
            for text in ("1.50", "-2.00", "0.00", "3.25", "4.00", "5.00", None)
        ],
    ),
}


def partitioned(table: Mirrored, **options: Any) -> None:
    table.create(
        a_field("id"),
        *(a_field(name, kind) for name, (kind, _) in PARTITIONS.items()),
        partition_columns=list(PARTITIONS),
        **options,
    )
    for number in range(7):
        values = {name: scalars[number] for name, (_, scalars) in PARTITIONS.items()}
        folder = quote(partition_value(values["p"]) or "__HIVE_DEFAULT_PARTITION__", safe=" ")
        table.commit(table.file(numbers(10 * number), values, folder=f"p={folder}/"))
    table.checkpoint()
    table.commit(table.remove(next(iter(table.adds.values()))))


def partitioned_structs(table: Mirrored) -> None:
    """The checkpoint tells partition values as typed columns."""
    partitioned(table, configuration={"delta.minWriterVersion": "7", **STRUCTS})


def vectors(table: Mirrored) -> None:
    table.create(a_field("id"), features=("deletionVectors",), configuration=VECTORS)
    first, second = table.file(numbers(0, 5)), table.file(numbers(10, 5))
    table.commit(first, second)
    table.commit(*table.hide(first, [1, 3]))
    table.commit(*table.hide(first, [0, 1, 3]), *table.hide(second, [4], inline=True))
    table.checkpoint()
    table.commit(table.remove(first), table.file(numbers(20)))


def mapped(table: Mirrored) -> None:
    _mapped(table, partitioned=False)


def mapped_partitioned(table: Mirrored) -> None:
    _mapped(table, partitioned=True)


def _mapped(table: Mirrored, *, partitioned: bool) -> None:
    def fields(first: str) -> list[dict[str, Any]]:
        return [
            a_field(
                name,
                kind,
                **{
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": f"col-{number}",
                },
            )
            for number, (name, kind) in enumerate(((first, "long"), ("the part", "string")), 1)
        ]

    table.names = {"col-1": "the id", "col-2": "the part"}
    table.create(
        *fields("the id"),
        partition_columns=["the part"] if partitioned else [],
        features=("columnMapping",),
        configuration={
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "2",
        },
    )
    data = pa.table({"col-1": pa.array([1, 2], pa.int64())})
    if partitioned:
        table.commit(table.file(data, {"col-2": pa.scalar("a b")}))
    else:
        table.commit(table.file(data.append_column("col-2", pa.array(["a", None]))))
    table.rename(fields("the number"), {"col-1": "the number", "col-2": "the part"})
    table.checkpoint()


def classic(table: Mirrored) -> None:
    _checkpointed(table)


def classic_cleaned(table: Mirrored) -> None:
    _checkpointed(table)
    table.clean()


def v2(table: Mirrored) -> None:
    _checkpointed(table, features=V2)


def v2_cleaned(table: Mirrored) -> None:
    _checkpointed(table, features=V2)
    table.clean()


def struct_statistics(table: Mirrored) -> None:
    _checkpointed(table, configuration={"delta.minWriterVersion": "7", **STRUCTS})


def _checkpointed(table: Mirrored, **options: Any) -> None:
    table.create(a_field("id"), **options)
    for number in range(4):
        table.commit(table.file(numbers(10 * number)))
    table.commit(table.remove(list(table.adds.values())[1]))
    table.checkpoint()


def writer_features(table: Mirrored) -> None:
    """What readers need not know: times in commits, row ids, domains."""
    table.create(
        a_field("id"),
        features=("inCommitTimestamp", "rowTracking", "domainMetadata"),
        configuration={
            "delta.enableInCommitTimestamps": "true",
            "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": "_row-id",
            "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
        },
    )
    table.commit(table.file(numbers(0)), a_domain("d", configuration='{"a":1}'))
    table.checkpoint()
    table.commit(table.file(numbers(10)))


def widened(table: Mirrored) -> None:
    table.create(a_field("id", "integer"), features=("typeWidening",))
    table.commit(table.file(pa.table({"id": pa.array([1], pa.int32())})))
    change = {"fromType": "integer", "toType": "long"}
    table.rename([a_field("id", "long", **{"delta.typeChanges": [change]})], {})
    table.commit(table.file(numbers(2**40)))
    table.checkpoint()


KINDS: tuple[Callable[[Mirrored], None], ...] = (
    plain,
    types,
    nested,
    timestamps_ntz,
    partitioned,
    partitioned_structs,
    vectors,
    mapped,
    mapped_partitioned,
    classic,
    classic_cleaned,
    v2,
    v2_cleaned,
    struct_statistics,
    writer_features,
    widened,
)
