"""deltalake (delta-rs over delta-kernel-rs and DataFusion) as an independent reader."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from mirror_assets.conformance.digests import digest_of
from mirror_assets.conformance.readers import Refused, Seen, names_below
from mirror_assets.delta.locations import Location
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.reader_options import reader_options


class DeltalakeReader:
    """See Reader."""

    name = "deltalake"

    def read(self, place: Location, version: int, options: StoreOptions) -> Seen | Refused:
        """See Reader."""
        where = place.path if place.scheme == "file" else place.uri
        settings = reader_options(options, where) or None
        table = DeltaTable(where, version=version, storage_options=settings)
        if table.version() != version:
            return Refused(f"it opened version {table.version()}")
        files = pa.table(table.get_add_actions())["path"].to_pylist()
        result: Any = QueryBuilder().register("t", table).execute("select * from t")
        rows, digest = digest_of(pa.table(result.read_all()).to_batches())
        paths = names_below(place, files, encoded=True)
        return Seen(rows=rows, digest=digest, files=len(files), paths=paths)

    def close(self) -> None:
        """See Reader: nothing is held."""
