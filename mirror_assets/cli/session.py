"""What every command works with: settings, the metastore, and a way to answer.

The metastore brings SQLAlchemy and three drivers along, settings bring pydantic. They are imported
when a command first needs them, here and in the commands' bodies, so that `--help` answers at once.
"""

# ruff: noqa: PLC0415 - see above: imported when needed, for the start-up time

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from mirror_assets.cli.output import Output

if TYPE_CHECKING:
    from mirror_assets.metastore.database import Metastore
    from mirror_assets.metastore.log_reader import LogReader
    from mirror_assets.metastore.log_writer import SqlTxnLogWriter
    from mirror_assets.mirror.service import Mirror
    from mirror_assets.settings import LoadedSettings, Settings


@dataclass
class Session:
    """One run of one command."""

    output: Output
    metastore_url: str | None = None
    _opened: list[Metastore] = field(default_factory=list)

    @cached_property
    def loaded(self) -> LoadedSettings:
        """The settings and their sources; logging is set up by them."""
        from mirror_assets.cli.logs import log_to_stderr
        from mirror_assets.settings import load_settings

        loaded = load_settings({"metastore_url": self.metastore_url})
        log_to_stderr(loaded.settings.log_level)
        return loaded

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.loaded.settings

    @cached_property
    def metastore(self) -> Metastore:
        """The metastore that the settings name; SchemaRevisionError where its file is missing."""
        opened = self.new_metastore
        opened.require_file()
        return opened

    @cached_property
    def new_metastore(self) -> Metastore:
        """The same, for the command that makes it."""
        from mirror_assets.metastore.database import Metastore

        opened = Metastore.open(self.settings.metastore_url.get_secret_value())
        self._opened.append(opened)
        return opened

    @cached_property
    def reader(self) -> LogReader:
        """Everything that only looks."""
        from mirror_assets.metastore.log_reader import LogReader

        return LogReader(self.metastore)

    @cached_property
    def writer(self) -> SqlTxnLogWriter:
        """The one way in."""
        from mirror_assets.metastore.log_writer import Backpressure, SqlTxnLogWriter

        settings = self.settings
        limits = Backpressure(
            warn=settings.backpressure_warn,
            wait=settings.backpressure_wait,
            refuse=settings.backpressure_refuse,
        )
        return SqlTxnLogWriter(
            self.metastore, engine_info=settings.engine_info, backpressure=limits
        )

    @cached_property
    def mirror(self) -> Mirror:
        """The way out."""
        return self.mirror_within(None)

    def mirror_within(self, seconds: float | None) -> Mirror:
        """The same, with no request to a store longer than so many seconds."""
        from mirror_assets.mirror.engine import EngineSettings
        from mirror_assets.mirror.service import Mirror

        settings, options = self.settings, self.settings.store_options()
        if seconds is not None:
            longest = min(options.request_timeout_s, max(seconds, 0.1))
            connecting = min(options.connect_timeout_s, longest)
            options = replace(options, request_timeout_s=longest, connect_timeout_s=connecting)
        bounds = EngineSettings(
            tables=settings.mirror_tables,
            versions=settings.mirror_versions,
            threads=settings.mirror_threads,
            lease_ms=settings.mirror_lease_ms,
        )
        roots = settings.allowed_roots
        return Mirror(
            self.metastore,
            options=options,
            allowed_roots=roots,
            settings=bounds,
            single_writer=settings.single_writer,
            checksums=settings.mirror_checksums == "all",
        )

    def close(self) -> None:
        """Give the connections back."""
        for metastore in self._opened:
            metastore.close()
