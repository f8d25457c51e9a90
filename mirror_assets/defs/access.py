"""The resource of every asset, job and sensor: settings, the metastore, the mirror.

Settings are read where the code runs, so that nothing of them is stored in Dagster. Connections
live as long as the block that asked for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from mirror_assets.metastore.database import Metastore
from mirror_assets.mirror.engine import EngineSettings
from mirror_assets.mirror.service import Mirror
from mirror_assets.settings import Settings, load_settings


class MirrorAccess(dg.ConfigurableResource):  # type: ignore[type-arg] # it is its own value
    """The way from Dagster to the tables."""

    @property
    def settings(self) -> Settings:
        return load_settings().settings

    @contextmanager
    def metastore(self) -> Iterator[Metastore]:
        """The metastore; SchemaRevisionError where the file of an embedded one is missing."""
        opened = Metastore.open(self.settings.metastore_url.get_secret_value())
        try:
            opened.require_file()
            yield opened
        finally:
            opened.close()

    @contextmanager
    def mirror(self, owner: str | None = None) -> Iterator[Mirror]:
        """The mirror of this process; `owner` is its name in leases and heartbeats."""
        settings = self.settings
        bounds = EngineSettings(
            tables=settings.mirror_tables,
            versions=settings.mirror_versions,
            threads=settings.mirror_threads,
            lease_ms=settings.mirror_lease_ms,
        )
        with self.metastore() as metastore:
            yield Mirror(
                metastore,
                options=settings.store_options(),
                allowed_roots=settings.allowed_roots,
                settings=bounds,
                owner=owner,
                single_writer=settings.single_writer,
                checksums=settings.mirror_checksums == "all",
            )
