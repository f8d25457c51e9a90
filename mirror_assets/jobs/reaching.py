"""How tasks of Spark reach SQL and the stores: by the settings of the machine they run on.

A plan carries the two functions, and a metastore URL only if somebody named one on a command line.
"""

from __future__ import annotations

from functools import partial

from mirror_assets.pipeline.access import Access
from mirror_assets.settings import Settings, load_settings
from mirror_assets.storage.options import StoreOptions


def access_here(settings: Settings, metastore_url: str | None = None) -> Access:
    """Access with the roots and habits of these settings."""
    return Access(
        metastore_url=partial(_metastore_url, metastore_url),
        store_options=_store_options,
        allowed_roots=settings.allowed_roots,
        single_writer=settings.single_writer,
        checksums=settings.mirror_checksums == "all",
    )


def _metastore_url(option: str | None) -> str:
    """In a task: as the settings of its machine say, unless the command line named one."""
    return load_settings({"metastore_url": option}).settings.metastore_url.get_secret_value()


def _store_options() -> StoreOptions:
    """In a task: credentials are those of its machine."""
    return load_settings().settings.store_options()
