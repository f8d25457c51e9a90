"""What every table stands on: the metastore and the object stores, with checks of their own."""

from __future__ import annotations

from typing import Any, Final

import dagster as dg

from mirror_assets.defs.keys import METASTORE, OBJECT_STORE, PLATFORM_GROUP
from mirror_assets.settings import Settings, redact

_KINDS: Final = {"sqlite": "sqlite", "duckdb": "duckdb", "postgresql": "postgres"}


def platform_assets(settings: Settings) -> list[Any]:
    """Two external assets, upstream of everything."""
    url = settings.metastore_url.get_secret_value()
    engine = url.partition(":")[0].partition("+")[0]
    look: dict[str, Any] = {"group_name": PLATFORM_GROUP, "owners": list(settings.table_owners)}
    return [
        dg.AssetSpec(
            METASTORE,
            kinds={_KINDS.get(engine, "sql")},
            description="The database that ratifies commits: what tables *should* be.",
            metadata={"url": redact(url)},
            **look,
        ),
        dg.AssetSpec(
            OBJECT_STORE,
            kinds={"s3" if settings.store_endpoint else "file"},
            description="Where the logs are published: what readers find.",
            metadata={"endpoint": settings.store_endpoint or "by the tables' locations"},
            **look,
        ),
    ]
