"""The schema's revision: bringing a database up to date, and refusing one that is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, Engine, inspect, text

from mirror_assets.errors import SchemaRevisionError

if TYPE_CHECKING:
    from alembic.config import Config

#: what this code reads and writes; a test holds it equal to alembic's newest revision
SCHEMA_REVISION: Final = "0003"


def upgrade(engine: Engine, revision: str = "head") -> str:
    """Create the schema or migrate it, in one transaction; return the revision it now has.

    Raises SchemaRevisionError for a database that a newer release has migrated.
    """
    from alembic import command  # noqa: PLC0415 - only `init` migrates, and each start would pay

    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        found = current_revision(connection)
        if found is not None and found > SCHEMA_REVISION:
            raise _newer(found)
        command.upgrade(alembic_config(connection), revision)
        return current_revision(connection) or ""


def current_revision(connection: Connection) -> str | None:
    """The revision the database is at; None without any schema."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("select version_num from alembic_version")).scalar()
    return found


def require_current_revision(connection: Connection) -> None:
    """Raise SchemaRevisionError unless the database has the schema of this code."""
    found = current_revision(connection)
    if found == SCHEMA_REVISION:
        return
    if found is None:
        message = "the database holds no metastore yet"
        raise SchemaRevisionError(message)
    if found > SCHEMA_REVISION:
        raise _newer(found)
    message = f"the metastore has schema revision {found}, older than this code's {SCHEMA_REVISION}"
    raise SchemaRevisionError(message, remedy="back it up, then run `mirror-assets init`")


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, without a file of its own."""
    from alembic.config import Config  # noqa: PLC0415 - as above

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _newer(found: str) -> SchemaRevisionError:
    message = f"the metastore has schema revision {found}, newer than this code's {SCHEMA_REVISION}"
    return SchemaRevisionError(message, remedy="upgrade mirror-assets to the release that made it")
