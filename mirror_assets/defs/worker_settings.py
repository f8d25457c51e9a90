"""What a Spark task needs of the settings of its own machine; it imports no Dagster."""

from __future__ import annotations

from mirror_assets.settings import load_settings
from mirror_assets.storage.options import StoreOptions


def metastore_url_here() -> str:
    """The metastore as the settings of the task's machine name it."""
    return load_settings().settings.metastore_url.get_secret_value()


def store_options_here() -> StoreOptions:
    """Credentials are those of the task's machine."""
    return load_settings().settings.store_options()
