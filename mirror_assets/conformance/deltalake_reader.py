"""deltalake (delta-rs over delta-kernel-rs and DataFusion) as an independent reader."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from mirror_assets.conformance.readers import Refused, Seen, digest_of
from mirror_assets.delta.locations import Location
from mirror_assets.storage.options import StoreOptions

_CREDENTIALS = {
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}


class DeltalakeReader:
    """See Reader."""

    name = "deltalake"

    def read(self, place: Location, version: int, options: StoreOptions) -> Seen | Refused:
        """See Reader."""
        where = place.path if place.scheme == "file" else place.uri
        settings = None if place.scheme == "file" else _settings(options)
        table = DeltaTable(where, version=version, storage_options=settings)
        if table.version() != version:
            return Refused(f"it opened version {table.version()}")
        files = pa.table(table.get_add_actions()).num_rows
        result: Any = QueryBuilder().register("t", table).execute("select * from t")
        rows, digest = digest_of(pa.table(result.read_all()).to_batches())
        return Seen(rows=rows, digest=digest, files=files)

    def close(self) -> None:
        """See Reader: nothing is held."""


def _settings(options: StoreOptions) -> dict[str, str]:
    found = {
        _CREDENTIALS[name]: secret.reveal()
        for name, secret in options.credentials
        if name in _CREDENTIALS
    }
    if options.endpoint is not None:
        found["AWS_ENDPOINT_URL"] = options.endpoint
        found["AWS_ALLOW_HTTP"] = str(options.uses_http).lower()
    if options.region is not None:
        found["AWS_REGION"] = options.region
    if options.anonymous:
        found["AWS_SKIP_SIGNATURE"] = "true"
    return found
