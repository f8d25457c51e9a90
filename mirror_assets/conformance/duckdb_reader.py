"""DuckDB's delta extension (delta-kernel-rs) as an independent reader."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import duckdb

from mirror_assets.conformance.digests import digest_of
from mirror_assets.conformance.readers import Refused, Seen, names_below
from mirror_assets.delta.locations import Location
from mirror_assets.storage.options import StoreOptions

_BATCH_ROWS = 65_536
_WHEEL = "duckdb_extension_{}"


class DuckdbReader:
    """See Reader."""

    name = "duckdb"

    def read(self, place: Location, version: int, options: StoreOptions) -> Seen | Refused:
        """See Reader."""
        where = place.path if place.scheme == "file" else place.uri
        with duckdb.connect() as connection:
            connection.execute(f"LOAD {_quoted(str(_extension('delta')))}")
            connection.execute("SET TimeZone = 'UTC'")
            if place.scheme == "s3":
                if find_spec(_WHEEL.format("httpfs")):
                    # Without the wheel DuckDB fetches it by itself.
                    connection.execute(f"LOAD {_quoted(str(_extension('httpfs')))}")
                connection.execute(_secret(options))
            scan = f"({_quoted(where)}, version => {version})"
            listed = connection.sql(f"SELECT data_file FROM delta_list_files{scan}").fetchall()  # noqa: S608 - quoted
            result = connection.sql(f"SELECT * FROM delta_scan{scan}")  # noqa: S608 - quoted
            rows, digest = digest_of(result.to_arrow_reader(_BATCH_ROWS))
        paths = names_below(place, (file for (file,) in listed), encoded=False)
        return Seen(rows=rows, digest=digest, files=len(listed), paths=paths)

    def close(self) -> None:
        """See Reader: nothing is held."""


def _extension(name: str) -> Path:
    found = find_spec(_WHEEL.format(name))
    folders = found.submodule_search_locations if found else None
    files = (file for folder in folders or () for file in Path(folder).rglob(f"{name}.duckdb_*"))
    return next(files)


def _secret(options: StoreOptions) -> str:
    told = {name: secret.reveal() for name, secret in options.credentials}
    settings = {
        "KEY_ID": told.get("access_key_id"),
        "SECRET": told.get("secret_access_key"),
        "SESSION_TOKEN": told.get("session_token"),
        "REGION": options.region,
        "URL_STYLE": "path" if options.path_style else "vhost",
    }
    if options.endpoint is not None:
        parts = urlsplit(options.endpoint)
        settings |= {"ENDPOINT": parts.netloc, "USE_SSL": str(parts.scheme == "https").lower()}
    listed = ", ".join(f"{name} {_quoted(value)}" for name, value in settings.items() if value)
    return f"CREATE SECRET (TYPE s3, {listed})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
