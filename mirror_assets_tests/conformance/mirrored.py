"""Tables of every kind that the mirror writes, with what is true at each of their versions.

SQL tells the files, the test that wrote them knows the rows: readers are held to both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import msgspec
import pyarrow as pa

from mirror_assets.conformance.digests import digest_of
from mirror_assets.conformance.readers import Expected
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.cleanup import apply_cleanup, plan_of
from mirror_assets.mirror.service import Mirror
from mirror_assets_tests.builders import changed, commit
from mirror_assets_tests.delta.samples import a_domain, a_field, a_schema
from mirror_assets_tests.mirror.lake import Lake, removal
from mirror_assets_tests.mirror.published import age

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror_assets.delta.actions import Action, AddFile
    from mirror_assets.storage.options import StoreOptions
    from mirror_assets_tests.store_services import S3Server, StorePlace

V2 = ("v2Checkpoint",)
VECTORS = {"delta.enableDeletionVectors": "true"}
STRUCTS = {
    "delta.checkpoint.writeStatsAsJson": "false",
    "delta.checkpoint.writeStatsAsStruct": "true",
}


@dataclass
class RemoteLake(Lake):
    """A lake whose table lies in an object store."""

    server: S3Server | None = None
    place: StorePlace | None = None

    @property
    def location(self) -> str:
        return self.place.location

    @property
    def options(self) -> StoreOptions:
        return self.place.options

    def put(self, path: str, body: bytes) -> None:
        where = urlsplit(self.location)
        key = f"{where.path.lstrip('/')}/{path}"
        self.server.boto3().put_object(Bucket=where.netloc, Key=key, Body=body)


@dataclass
class Mirrored:
    """A table that the mirror publishes, and what readers must see of it."""

    lake: Lake
    #: the rows that the live files still have, by path, as they are to be read
    rows: dict[str, pa.Table] = field(default_factory=dict)
    adds: dict[str, AddFile] = field(default_factory=dict)
    #: all rows of every file, whether hidden or not
    whole: dict[str, pa.Table] = field(default_factory=dict)
    truth: dict[int, Expected] = field(default_factory=dict)
    #: logical names by physical ones
    names: dict[str, str] = field(default_factory=dict)

    def create(self, *fields: dict[str, Any], **options: Any) -> None:
        configuration = {"delta.checkpointInterval": "1000", **options.pop("configuration", {})}
        self.lake.create(*fields, configuration=configuration, **options)
        self._remember(0)

    def file(
        self, data: pa.Table, partition: Mapping[str, pa.Scalar] | None = None, folder: str = ""
    ) -> AddFile:
        """A data file of physical columns, to be committed."""
        values = partition or {}
        told = {name: _told(value) for name, value in values.items()}
        add = self.lake.file(data, told, folder=folder)
        for name, value in values.items():
            data = data.append_column(name, pa.array([value.as_py()] * data.num_rows, value.type))
        self.rows[add.path] = self.whole[add.path] = data
        self.adds[add.path] = add
        return add

    def commit(self, *actions: Action) -> int:
        version = commit(self.lake.metastore, self.lake.name, *actions).version
        self._remember(version)
        return version

    def remove(self, add: AddFile) -> Action:
        """The removal of a file that is live, to be committed."""
        del self.rows[add.path]
        return removal(self.adds.pop(add.path))

    def hide(self, add: AddFile, hidden: list[int], *, inline: bool = False) -> tuple[Action, ...]:
        """Rows of a file go by a deletion vector, to be committed."""
        vector = self.lake.hidden_rows(hidden) if inline else self.lake.delete_rows(hidden)
        holed = msgspec.structs.replace(add, deletion_vector=vector)
        gone, self.adds[add.path] = removal(self.adds[add.path]), holed
        whole = self.whole[add.path]
        self.rows[add.path] = whole.take([n for n in range(whole.num_rows) if n not in hidden])
        return gone, holed

    def rename(self, fields: list[dict[str, Any]], names: dict[str, str]) -> int:
        """Other logical names for the same physical columns."""
        metadata = LogReader(self.lake.metastore).summary(self.lake.name).metadata
        self.names = names
        schema = a_schema(*fields)
        return self.commit(msgspec.structs.replace(changed(metadata), schema_string=schema))

    def publish(self) -> None:
        self.mirror().settle([self.lake.name], patience_s=30)

    def checkpoint(self) -> None:
        """Publish, and build the checkpoint of the newest version."""
        self.publish()
        self.mirror().checkpoints.build(self.lake.name)

    def clean(self) -> None:
        """Let what lies before the newest version expire, and delete it."""
        newest = max(self.truth)
        lake = self.lake
        age(lake, until=newest, days=40)
        self.commit(self.file(numbers(9_000)))
        self.publish()
        done = plan_of(lake.metastore, lake.store, lake.name)
        assert done.keep_from == newest
        apply_cleanup(lake.metastore, lake.store, lake.name, done)
        self.truth = {v: truth for v, truth in self.truth.items() if v >= newest}

    def mirror(self) -> Mirror:
        return Mirror(self.lake.metastore, options=self.lake.options)

    def _remember(self, version: int) -> None:
        tables = [
            table.rename_columns([self.names.get(name, name) for name in table.column_names])
            for table in self.rows.values()
        ]
        rows, digest = digest_of(batch for table in tables for batch in table.to_batches())
        live = list(LogReader(self.lake.metastore).live_files(self.lake.name, version))
        assert {add.path for add in live} == set(self.rows)
        self.truth[version] = Expected(
            version=version,
            files=len(live),
            rows=rows,
            paths=frozenset(unquote(add.path) for add in live),
            digest=digest,
        )


def numbers(first: int, count: int = 3, **columns: Any) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), **columns})


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
        folder = quote(_told(values["p"]) or "__HIVE_DEFAULT_PARTITION__", safe=" ")
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


def _told(value: pa.Scalar) -> str | None:
    """A partition value as the protocol writes it."""
    known = value.as_py()
    match known:
        case None | str():
            return known
        case bool():
            return str(known).lower()
        case datetime():
            return f"{known:%Y-%m-%d %H:%M:%S.%f}"
    return str(known)
