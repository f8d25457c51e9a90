"""The door to the metastore: connections, transactions, and errors in our own words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError

from mirror_assets.errors import (
    ConfigurationError,
    DatabaseUnavailableError,
    SchemaRevisionError,
)
from mirror_assets.metastore.dialect import Dialect, OutcomeUnknownError
from mirror_assets.metastore.engines import dialect_of, explain
from mirror_assets.metastore.migrate import require_current_revision, upgrade
from mirror_assets.metastore.statements import Statements


@dataclass(slots=True)
class Metastore:
    """A database that holds the metastore."""

    engine: Engine
    dialect: Dialect
    statements: Statements
    _revision_checked: bool = field(default=False, repr=False)
    #: the engine, as its dialect sees that a transaction is going to write
    _writing: Engine = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._writing = self.engine.execution_options(writes=True)

    @classmethod
    def open(cls, url: str) -> Self:
        """Make ready for the database at a SQLAlchemy URL; connects when first used."""
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError) as exc:
            remedy = "give a SQLAlchemy URL, such as sqlite:///metastore.db"
            message = "the metastore URL cannot be parsed"
            raise ConfigurationError(message, remedy=remedy) from exc
        dialect = dialect_of(parsed)
        engine = dialect.create_engine(parsed)
        return cls(engine, dialect, Statements(dialect, engine))

    @property
    def url(self) -> str:
        """Where it is, without its password."""
        url = self.engine.url
        secrets = {key: "***" for key in url.query if "password" in key}
        return url.update_query_dict(secrets).render_as_string(hide_password=True)

    @property
    def file(self) -> Path | None:
        """The file of an embedded engine; None for a server, or a database in memory."""
        path = self.engine.url.database
        is_embedded = self.dialect.name in ("sqlite", "duckdb")
        is_file = is_embedded and path and not path.startswith((":", "file:"))
        return Path(path) if is_file and path else None

    def require_file(self) -> None:
        """A slip in the path of an embedded engine must not make an empty database.

        Raises SchemaRevisionError where its file is missing.
        """
        if self.file is not None and not self.file.exists():
            remedy = "run `mirror-assets init` to make it, or correct the metastore URL"
            raise SchemaRevisionError(f"there is no metastore at {self.file}", remedy=remedy)

    def upgrade(self) -> str:
        """Create the schema or migrate it; return the revision it now has."""
        with self._errors_in_our_words():
            return upgrade(self.engine)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent look at the database; nothing is written."""
        with self._errors_in_our_words(), self.engine.connect() as connection:
            transaction = connection.begin()
            self._check_revision(connection)
            yield connection
            #: what was read is read, whatever becomes of the COMMIT
            with suppress(*self.dialect.errors):
                transaction.commit()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction: committed at the end of the block, rolled back by an exception.

        Raises OutcomeUnknownError if the connection broke during COMMIT.
        """
        with (
            self._errors_in_our_words(),
            self.dialect.one_writer(),
            self._writing.connect() as connection,
            connection.begin() as transaction,
            self._invalidated_if_lost(connection),
        ):
            self._check_revision(connection)
            yield connection
            self._commit(transaction.commit)

    @contextmanager
    def commits_awaited(self) -> Iterator[Callable[[float], bool]]:
        """A function that waits for news of a commit, at most so many seconds."""
        with self._errors_in_our_words(), self.dialect.commits_awaited(self.engine) as wait:
            yield wait

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep the database open for a series of transactions; only DuckDB gains by it."""
        with self._errors_in_our_words(), self.dialect.kept_open(self.engine):
            yield

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()

    def _commit(self, commit: Callable[[], None]) -> None:
        try:
            commit()
        except self.dialect.errors as exc:
            known = explain(self.dialect, exc)
            if isinstance(known, DatabaseUnavailableError):
                message = f"the connection broke during COMMIT: {known.message}"
                raise OutcomeUnknownError(message) from exc
            raise

    @contextmanager
    def _invalidated_if_lost(self, connection: Connection) -> Iterator[None]:
        """SQLAlchemy sees a lost connection only in what it executes itself."""
        try:
            yield
        except OutcomeUnknownError as exc:
            connection.invalidate(exc)
            raise
        except self.dialect.driver_error as exc:
            if isinstance(explain(self.dialect, exc), DatabaseUnavailableError):
                connection.invalidate(exc)
            raise

    def _check_revision(self, connection: Connection) -> None:
        if not self._revision_checked:
            require_current_revision(connection)
            self._revision_checked = True

    @contextmanager
    def _errors_in_our_words(self) -> Iterator[None]:
        try:
            yield
        except self.dialect.errors as exc:
            known = explain(self.dialect, exc)
            if known is None:
                raise
            raise known from exc
