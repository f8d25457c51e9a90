"""The one tree of errors: what happened, where, and the way out.

MirrorAssetsError
├── TransientError            trying again may help
│   ├── DatabaseUnavailableError        MA-101
│   ├── DatabaseLockedError             MA-102
│   ├── BackpressureError               MA-107
│   ├── StoreUnavailableError           MA-203
│   ├── StoreThrottledError             MA-204
│   ├── StorageFullError                MA-209
│   └── SparkJobError                   MA-504
└── PermanentError            trying again will not help
    ├── SchemaRevisionError             MA-103
    ├── DatabaseReadOnlyError           MA-104
    ├── TableNotFoundError              MA-105
    ├── TableExistsError                MA-106
    ├── TableStateError                 MA-108
    ├── VersionNotFoundError            MA-109
    ├── CommitIntegrityError            MA-110
    ├── LocationError                   MA-201
    ├── StorageError                    MA-202
    ├── StoreAuthError                  MA-205
    ├── ClockSkewError                  MA-206
    ├── TlsError                        MA-207
    ├── StoreConfigError                MA-208
    ├── UnsafeStoreError                MA-210
    ├── RuleViolationError              MA-301
    ├── MalformedActionError            MA-302
    ├── UnsupportedTableError           MA-303
    ├── ImportRefusedError              MA-304
    ├── CommitConflictError             MA-401
    ├── DivergenceError                 MA-402
    ├── MirrorAheadError                MA-403
    ├── LogGapError                     MA-404
    ├── CheckpointMismatchError         MA-411
    ├── TableUnreadableError            MA-412
    ├── ReaderMissingError              MA-413
    ├── SchemaMismatchError             MA-501
    ├── RowsRefusedError                MA-502
    ├── WriteRefusedError               MA-503
    └── ConfigurationError              MA-601

The docstring of a leaf says what it means; `mirror-assets explain CODE` prints it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class MirrorAssetsError(Exception):
    """Base of everything this package raises on purpose."""

    code: ClassVar[str] = "MA-000"
    default_remedy: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        version: int | None = None,
        rule: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.message = message
        self.table = table
        self.version = version
        self.rule = rule
        self._remedy = remedy
        super().__init__(message)

    @property
    def remedy(self) -> str:
        """What to do about it; the commands of the default one name the table, once it is known."""
        if self._remedy is not None:
            return self._remedy
        name = self.table
        return self.default_remedy.replace("NAME", name) if name else self.default_remedy

    def at(self, *, table: str | None = None, version: int | None = None) -> MirrorAssetsError:
        """Fill in where it happened, where the raiser could not know; return self."""
        self.table = self.table if self.table is not None else table
        self.version = self.version if self.version is not None else version
        return self

    def as_dict(self) -> dict[str, str | int | None]:
        """The error as the `--json` document shows it."""
        return {
            "code": self.code,
            "error": type(self).__name__,
            "message": self.message,
            "table": self.table,
            "version": self.version,
            "rule": self.rule,
            "remedy": self.remedy,
        }

    def __str__(self) -> str:
        where = "".join(
            part
            for part in (
                f" table {self.table!r}" if self.table is not None else "",
                f" version {self.version}" if self.version is not None else "",
                f" rule {self.rule}" if self.rule is not None else "",
            )
        )
        head = f"{self.code}{where}: {self.message}"
        return f"{head}. Remedy: {self.remedy}" if self.remedy else head


class TransientError(MirrorAssetsError):
    """Trying again may help."""


class PermanentError(MirrorAssetsError):
    """Trying again will not help: a person or another input is needed."""


class DatabaseUnavailableError(TransientError):
    """The metastore's database does not answer, or cut the connection."""

    code = "MA-101"
    default_remedy = "check that the database runs and the metastore URL is right, then try again"


class DatabaseLockedError(TransientError):
    """Another process holds the embedded database."""

    code = "MA-102"
    default_remedy = "let the other process finish, or use PostgreSQL for more than one process"


class SchemaRevisionError(PermanentError):
    """The metastore's schema is missing, or older or newer than this code."""

    code = "MA-103"
    default_remedy = "run `mirror-assets init`"


class DatabaseReadOnlyError(PermanentError):
    """The metastore cannot be written: read-only file, replica or missing grant."""

    code = "MA-104"
    default_remedy = "point the metastore URL at the primary, or grant write access"


class TableNotFoundError(PermanentError):
    """No registered table has this name."""

    code = "MA-105"
    default_remedy = "`mirror-assets tables` lists the registered ones"


class TableExistsError(PermanentError):
    """The name or the location is taken by a registered table."""

    code = "MA-106"
    default_remedy = "choose another name and location; `mirror-assets tables` lists what is taken"


class BackpressureError(TransientError):
    """The table's unmirrored backlog is over the configured limit."""

    code = "MA-107"
    default_remedy = "start or repair the mirror, then try again; nothing was committed"


class TableStateError(PermanentError):
    """The table does not accept this operation in its present state."""

    code = "MA-108"


class VersionNotFoundError(PermanentError):
    """The table has no such version, or its history does not reach back to it."""

    code = "MA-109"
    default_remedy = "`mirror-assets history NAME` lists the versions"


class CommitIntegrityError(PermanentError):
    """The bytes made from SQL's rows do not have the digest frozen at the commit."""

    code = "MA-110"
    default_remedy = "nothing was published; restore the table's rows from a backup"


class LocationError(PermanentError):
    """A location or path that leaves its root, or cannot be a table's home."""

    code = "MA-201"
    default_remedy = "give an absolute path or URI without `..`, control or encoded characters"


class StorageError(PermanentError):
    """The store could not be read."""

    code = "MA-202"
    default_remedy = "check the location and the credentials"


class StoreUnavailableError(TransientError):
    """The store does not answer, cut the connection, or answered with a failure of its own."""

    code = "MA-203"
    default_remedy = "check that the store runs and can be reached; the mirror tries again itself"


class StoreThrottledError(TransientError):
    """The store asks for fewer requests."""

    code = "MA-204"
    default_remedy = "the mirror slows down by itself; raise the store's limits if it lasts"

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy)
        #: how long the store asked to be left alone, if it said
        self.retry_after_s = retry_after_s


class StoreAuthError(PermanentError):
    """The store knows us not, or does not let us do this."""

    code = "MA-205"
    default_remedy = "renew the credentials, or grant what the message names"


class ClockSkewError(PermanentError):
    """The store refuses signed requests, because this host's clock is off."""

    code = "MA-206"
    default_remedy = "set the clock by NTP (`chronyc makestep`); the credentials are not to blame"


class TlsError(PermanentError):
    """The store's certificate is not trusted, not its own, or expired."""

    code = "MA-207"
    default_remedy = "renew the store's certificate, or give the one of its authority"


class StoreConfigError(PermanentError):
    """A bucket, root or setting of the store is missing or wrong."""

    code = "MA-208"
    default_remedy = "create the bucket or root, or correct the store's settings"


class StorageFullError(TransientError):
    """The disk or the quota of the store is full; nothing half-written was left."""

    code = "MA-209"
    default_remedy = "free some space; the mirror tries again at long intervals"


class UnsafeStoreError(PermanentError):
    """The store cannot create a file only where there is none: two writers would both win."""

    code = "MA-210"
    default_remedy = "use a store that `mirror-assets verify-store` passes"


class RuleViolationError(PermanentError):
    """The commit breaks a rule of the Delta protocol; nothing was written."""

    code = "MA-301"
    default_remedy = "correct the actions; nothing was written"


class MalformedActionError(PermanentError):
    """A line is not one Delta action in JSON."""

    code = "MA-302"
    default_remedy = "correct the line; nothing was written"


class UnsupportedTableError(PermanentError):
    """The table's protocol asks for more than this software can write."""

    code = "MA-303"


class ImportRefusedError(PermanentError):
    """The log cannot be taken over; the findings say why."""

    code = "MA-304"
    default_remedy = "repair the log with the engine that wrote it; nothing was imported"

    def __init__(
        self,
        message: str,
        *,
        findings: Sequence[Any] = (),
        table: str | None = None,
        version: int | None = None,
        rule: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, table=table, version=version, rule=rule, remedy=remedy)
        #: of type Finding, which stands beside this module; those of severity error first
        self.findings: list[Any] = list(findings)


class CommitConflictError(PermanentError):
    """A multi-table transaction met a conflicting commit; none of its parts was committed."""

    code = "MA-401"
    default_remedy = "read the tables again and repeat the transaction"


class DivergenceError(PermanentError):
    """A commit file in the log says something else than SQL; it was left alone."""

    code = "MA-402"
    default_remedy = (
        "`mirror-assets diff NAME` shows both, nothing was overwritten; either "
        "`mirror-assets fork NAME --to URI` lets SQL's history go on elsewhere, or move the "
        "foreign file away, then `mirror-assets resume NAME`"
    )


class MirrorAheadError(PermanentError):
    """The log holds versions that SQL does not know: SQL was restored, or somebody wrote there."""

    code = "MA-403"
    default_remedy = (
        "`mirror-assets adopt NAME` shows the log's versions and takes them over, "
        "`mirror-assets fork NAME --to URI` lets SQL's history go on elsewhere; nothing was written"
    )


class LogGapError(PermanentError):
    """A commit file below the mirrored version is missing in the log."""

    code = "MA-404"
    default_remedy = "`mirror-assets reconcile NAME --mode smart --apply` publishes it again"


class CheckpointMismatchError(PermanentError):
    """A checkpoint does not hold what SQL says of the table; nothing points at it."""

    code = "MA-411"
    default_remedy = "nothing was overwritten; `mirror-assets reconcile` tells what differs"


class TableUnreadableError(PermanentError):
    """An independent reader cannot open the published table."""

    code = "MA-412"
    default_remedy = "`mirror-assets reconcile NAME --mode full` tells what is wrong with the log"


class ReaderMissingError(PermanentError):
    """A reader was asked for whose environment has not been made."""

    code = "MA-413"
    default_remedy = "run `make readers` in the checkout, or set MIRROR_READERS to their folder"


class SchemaMismatchError(PermanentError):
    """The columns of a DataFrame do not fit the table; nothing was written."""

    code = "MA-501"
    default_remedy = "cast or drop the columns, or ask for `merge_schema` to add new ones"


class RowsRefusedError(PermanentError):
    """Rows break a rule that the table or the caller declared; nothing was committed."""

    code = "MA-502"
    default_remedy = "correct the rows; the report says which rule they break"

    #: what was found, as a JSON document; None if the message says it all
    report: Any = None


class WriteRefusedError(PermanentError):
    """Spark was asked for a write that is not done this way; nothing was committed."""

    code = "MA-503"


class SparkJobError(TransientError):
    """A Spark job failed for good; its files, if any, are in no commit."""

    code = "MA-504"
    default_remedy = "look at the cause in Spark's log, then write again; nothing was committed"


class ConfigurationError(PermanentError):
    """A setting is missing or wrong."""

    code = "MA-601"
    default_remedy = "`mirror-assets config show` prints the effective settings and their source"
