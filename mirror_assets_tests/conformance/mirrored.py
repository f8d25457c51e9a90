"""Tables of every kind that the mirror writes, with what is true at each of their versions.

SQL tells the files, the test that wrote them knows the rows: readers are held to both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa

from mirror_assets.conformance.digests import digest_of
from mirror_assets.conformance.readers import Expected
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.cleanup import apply_cleanup, plan_of
from mirror_assets.mirror.service import Mirror
from mirror_assets_tests.builders import changed, commit
from mirror_assets_tests.delta.samples import a_schema
from mirror_assets_tests.mirror.lake import Lake, removal
from mirror_assets_tests.mirror.published import age

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_assets.delta.actions import Action, AddFile
    from mirror_assets.storage.options import StoreOptions
    from mirror_assets_tests.store_services import S3Server, StorePlace


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
        told = {name: partition_value(value) for name, value in values.items()}
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


def partition_value(value: pa.Scalar) -> str | None:
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
