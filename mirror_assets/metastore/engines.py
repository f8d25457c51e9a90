"""The database engines a metastore can live in, chosen by URL."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Final

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, NoSuchModuleError

from mirror_assets.errors import ConfigurationError, MirrorAssetsError
from mirror_assets.metastore.dialect import Dialect

#: by the first word of a URL; loaded when asked for, because three drivers and Arrow would cost
#: every command a third of a second
_DIALECTS: Final = {
    "postgresql": "mirror_assets.metastore.postgres:PostgresDialect",
    "postgres": "mirror_assets.metastore.postgres:PostgresDialect",
    "sqlite": "mirror_assets.metastore.sqlite:SqliteDialect",
    "duckdb": "mirror_assets.metastore.duck:DuckDbDialect",
}


def dialect_of(url: URL) -> Dialect:
    """The dialect that speaks to the database of a URL; no other's driver is loaded."""
    name = _DIALECTS.get(url.drivername.partition("+")[0])
    if name is None:
        message = f"no metastore can live in a {url.drivername!r} database"
        raise ConfigurationError(message, remedy="use postgresql://, sqlite:/// or duckdb:///")
    dialect: Dialect = resolve_name(name)()
    return dialect


def explain(dialect: Dialect, error: Exception) -> MirrorAssetsError | None:
    """SQLAlchemy's or a driver's error in our words; None for what only a bug explains."""
    if isinstance(error, NoSuchModuleError):
        return ConfigurationError(str(error))
    if isinstance(error, DBAPIError) and isinstance(error.orig, Exception):
        error = error.orig
    return error if isinstance(error, MirrorAssetsError) else dialect.explain(error)
