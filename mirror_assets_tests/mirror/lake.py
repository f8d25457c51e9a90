"""Tables with real data files on disk, mirrored from SQL, and the readers that judge them."""

from __future__ import annotations

import io
import json
import math
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from mirror_assets.delta.actions import AddFile, DeletionVector, RemoveFile
from mirror_assets.delta.log_paths import CommitName
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.registry import create_table
from mirror_assets.mirror.checkpointer import PublishedCheckpoint, publish_checkpoint
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.stores import open_store
from mirror_assets_tests.builders import commit
from mirror_assets_tests.delta.samples import a_schema

if TYPE_CHECKING:
    from mirror_assets.delta.actions import Action
    from mirror_assets.metastore.database import Metastore
    from mirror_assets.storage.log_store import LogStore

NOW_MS = 1_760_000_000_000
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


@dataclass
class Lake:
    """One table: its data files, its rows in SQL, and its log."""

    metastore: Metastore
    root: Path
    name: str = "sales.orders"
    store: LogStore = field(init=False)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.store = open_store(self.location, self.options, allowed_roots=[])

    @property
    def location(self) -> str:
        return str(self.root)

    @property
    def options(self) -> StoreOptions:
        return StoreOptions(durable=False)

    def put(self, path: str, body: bytes) -> None:
        """Write a file below the root."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(body)

    def create(
        self, *fields: dict[str, Any], features: tuple[str, ...] = (), **options: Any
    ) -> None:
        wanted = {f"delta.feature.{feature}": "supported" for feature in features}
        configuration = {**wanted, **options.pop("configuration", {})}
        create_table(
            self.metastore,
            self.name,
            self.location,
            a_schema(*fields),
            configuration=configuration,
            **options,
        )

    def file(
        self, data: pa.Table, partition: dict[str, str | None] | None = None, *, folder: str = ""
    ) -> AddFile:
        """Write a data file; its add action, with statistics of its numbers and texts."""
        path, body = f"{folder}{uuid4()}.parquet", io.BytesIO()
        pq.write_table(data, body)
        self.put(path, body.getvalue())
        return AddFile(
            path=quote(path),
            partition_values=partition or {},
            size=len(body.getvalue()),
            modification_time=NOW_MS,
            data_change=True,
            stats=json.dumps(_statistics(data)),
        )

    def delete_rows(self, rows: list[int]) -> DeletionVector:
        """Write the file of a deletion vector."""
        identity = uuid4()
        bitmap = _roaring(rows)
        body = b"\x01" + struct.pack(">i", len(bitmap)) + bitmap
        checked = body + struct.pack(">I", zlib.crc32(bitmap))
        self.put(f"deletion_vector_{identity}.bin", checked)
        return DeletionVector(
            storage_type="u",
            path_or_inline_dv=_z85(identity.bytes),
            offset=1,
            size_in_bytes=len(bitmap),
            cardinality=len(rows),
        )

    def hidden_rows(self, rows: list[int]) -> DeletionVector:
        """A deletion vector that stands inline."""
        bitmap = _roaring(rows)
        return DeletionVector(
            storage_type="i",
            path_or_inline_dv=_z85(bitmap + b"\0" * (-len(bitmap) % 4)),
            size_in_bytes=len(bitmap),
            cardinality=len(rows),
        )

    def commit(self, *actions: Action) -> int:
        """Commit to SQL and publish the commit file."""
        version = commit(self.metastore, self.name, *actions).version
        self.mirror()
        return version

    def mirror(self) -> None:
        for made in LogReader(self.metastore).commits(self.name):
            self.store.put_if_absent(CommitName(made.version), made.encode(self.name))

    def checkpoint(self, version: int, now_ms: int = NOW_MS) -> PublishedCheckpoint:
        return publish_checkpoint(self.metastore, self.store, self.name, version, now_ms=now_ms)

    def forget_commits_before(self, version: int) -> None:
        """Readers then depend on the checkpoint."""
        for file in (self.root / "_delta_log").glob("*.json"):
            if file.name < CommitName(version).name:
                file.unlink()

    @property
    def log(self) -> Path:
        return self.root / "_delta_log"

    def live_paths(self, version: int | None = None) -> set[str]:
        return {add.path for add in LogReader(self.metastore).live_files(self.name, version)}

    def listed_paths(self) -> set[str]:
        """As deltalake lists the live files."""
        actions = pa.table(DeltaTable(str(self.root)).get_add_actions())
        return set(actions["path"].to_pylist())

    def listed_files(self) -> dict[str, dict[str, Any]]:
        """What deltalake says of the statistics of each file that has any."""
        listed = pa.table(DeltaTable(str(self.root)).get_add_actions()).to_pylist()
        return {
            name: {row["path"]: row[name] for row in listed if row.get(name) is not None}
            for name in ("num_records", "min", "max")
        }

    def transaction_version(self, application: str) -> int | None:
        return DeltaTable(str(self.root)).transaction_version(application)

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows in order, on which independent readers agree."""
        seen = self.rows_of_deltalake()
        assert seen == self._rows_of_duckdb()
        return seen

    def rows_of_deltalake(self) -> list[tuple[Any, ...]]:
        table = QueryBuilder().register("t", DeltaTable(str(self.root)))
        return _sorted(pa.table(table.execute("select * from t").read_all()))

    def _rows_of_duckdb(self) -> list[tuple[Any, ...]]:
        with duckdb.connect() as connection:
            connection.execute(f"LOAD '{_delta_extension()}'")
            found = connection.sql(f"select * from delta_scan('{self.root}')").to_arrow_table()
        return _sorted(found)


def removal(add: AddFile, deleted_at_ms: int = NOW_MS) -> RemoveFile:
    return RemoveFile(
        path=add.path,
        deletion_timestamp=deleted_at_ms,
        data_change=True,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        deletion_vector=add.deletion_vector,
    )


def _delta_extension() -> Path:
    site = Path(duckdb_extension_delta.__file__).parent
    return next(site.rglob("delta.duckdb_extension"))


def _sorted(table: pa.Table) -> list[tuple[Any, ...]]:
    names = sorted(table.column_names)
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    return sorted(rows, key=repr)


def _statistics(data: pa.Table) -> dict[str, Any]:
    columns = {name: data[name].drop_null().to_pylist() for name in data.column_names}
    known = {name: values for name, values in columns.items() if values}
    plain = {name: values for name, values in known.items() if _has_bounds(values)}
    return {
        "numRecords": data.num_rows,
        "minValues": {name: min(values) for name, values in plain.items()},
        "maxValues": {name: max(values) for name, values in plain.items()},
        "nullCount": {
            name: data[name].null_count
            for name in data.column_names
            if not pa.types.is_nested(data[name].type)
        },
    }


def _has_bounds(values: list[Any]) -> bool:
    """JSON has no word for numbers that are not finite."""
    if isinstance(values[0], float):
        return all(map(math.isfinite, values))
    return isinstance(values[0], int | str)


def _roaring(rows: list[int]) -> bytes:
    """One container of small row numbers, in the portable form of 64 bits (DL-DV-05)."""
    values = sorted(rows)
    container = struct.pack(f"<{len(values)}H", *values)
    header = struct.pack("<IIHHI", 12346, 1, 0, len(values) - 1, 16)
    return struct.pack("<IQI", 1681511377, 1, 0) + header + container


def _z85(data: bytes) -> str:
    text = ""
    for (word,) in struct.iter_unpack(">I", data):
        text += "".join(_Z85[word // 85**place % 85] for place in range(4, -1, -1))
    return text
