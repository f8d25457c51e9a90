"""A log in memory that is easy to damage."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from mirror_assets.delta.locations import Location
from mirror_assets.delta.log_paths import CommitName, LogListing
from mirror_assets.errors import StorageError

NOW_MS = 1_760_000_000_000
HEAD = 6
CHECKPOINT = 4
TABLE_ID = "5fba94ed-9794-4965-ba6e-6ee3c0d22af9"
UUID_TEXT = "80a083e8-7026-4e79-81be-64bd76c43a11"
VECTOR_FILE = f"deletion_vector_{UUID_TEXT}.bin"
PLACE = Location(uri="memory:///t", key="memory:///t")
Row = dict[str, Any]


@dataclass
class MemoryLog:
    """A log as a dictionary: what `verify_log` reads."""

    files: dict[str, bytes] = field(default_factory=dict)
    #: files of the table by path
    data: dict[str, bytes] = field(default_factory=dict)
    location: Location = PLACE
    mtime_ms: int = NOW_MS + 3_600_000

    def list(self) -> LogListing:
        return LogListing.of((name, len(data), self.mtime_ms) for name, data in self.files.items())

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise StorageError(f"no {name}")
        return self.files[name]

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self.read(name))

    def copy(self) -> MemoryLog:
        return MemoryLog(files=dict(self.files), data=dict(self.data))

    # what damage is made with

    def lines(self, version: int) -> list[Row]:
        return [orjson.loads(line) for line in self.commit(version).splitlines()]

    def commit(self, version: int) -> bytes:
        return self.files[CommitName(version).name]

    def put(self, version: int, lines: list[Row]) -> None:
        self.files[CommitName(version).name] = encoded(lines)

    def edit(self, version: int, action: str, change: Callable[[Row], object]) -> bool:
        """Change the first such action of a commit; whether there is one."""
        lines = self.lines(version)
        for line in lines:
            if action in line:
                change(line[action])
                self.put(version, lines)
                return True
        return False

    def checkpoint_name(self) -> str | None:
        """A top-level Parquet file of the checkpoint."""
        names = sorted(n for n in self.files if ".checkpoint." in n and n.endswith("parquet"))
        return names[0] if names else None

    def rows(self, name: str) -> list[Row]:
        rows = pq.read_table(io.BytesIO(self.files[name])).to_pylist(maps_as_pydicts="strict")
        return [{k: v for k, v in row.items() if v is not None} for row in rows]

    def put_rows(self, name: str, rows: list[Row], schema: pa.Schema | None = None) -> None:
        kept = schema or pq.read_schema(io.BytesIO(self.files[name]))
        self.files[name] = parquet(rows, kept)

    def file_with(self, action: str) -> str | None:
        """A Parquet file of the checkpoint, or a sidecar, that holds such an action."""
        names = (n for n in sorted(self.files) if n.endswith(".parquet"))
        return next((n for n in names if any(action in row for row in self.rows(n))), None)

    def edit_row(self, action: str, change: Callable[[Row], object]) -> bool:
        """Change the first such row of the checkpoint; whether there is one."""
        name = self.file_with(action)
        if name is None:
            return False
        rows = self.rows(name)
        change(next(row for row in rows if action in row)[action])
        self.put_rows(name, rows)
        return True

    def edit_json(self, name: str, change: Callable[[Row], object]) -> bool:
        if name not in self.files:
            return False
        document = json.loads(self.files[name])
        change(document)
        self.files[name] = orjson.dumps(document) + b"\n"
        return True


def encoded(lines: list[Row]) -> bytes:
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def parquet(rows: list[Row], schema: pa.Schema) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist(rows, schema=schema), sink, store_schema=False, compression="zstd"
    )
    return sink.getvalue()
