"""How a command ends: clean, refused or failed."""

from __future__ import annotations

from enum import IntEnum

from mirror_assets.errors import (
    BackpressureError,
    CommitConflictError,
    ConfigurationError,
    ImportRefusedError,
    LocationError,
    MalformedActionError,
    MirrorAssetsError,
    PermanentError,
    RuleViolationError,
    TableExistsError,
    TableNotFoundError,
    TableStateError,
    UnsupportedTableError,
    VersionNotFoundError,
)


class ExitCode(IntEnum):
    """The three ways, as scripts see them."""

    CLEAN = 0
    #: findings, or a request that was understood and refused
    REFUSED = 1
    #: what was asked for could not even be judged
    FAILED = 2


class UsageError(PermanentError):
    """The command line itself is wrong: an unknown option, a missing argument or file."""

    code = "MA-602"
    default_remedy = "`mirror-assets COMMAND --help` shows what the command takes"


_REFUSALS = (
    BackpressureError,
    CommitConflictError,
    ImportRefusedError,
    LocationError,
    MalformedActionError,
    RuleViolationError,
    TableExistsError,
    TableNotFoundError,
    TableStateError,
    UnsupportedTableError,
    VersionNotFoundError,
)


def exit_code_of(error: MirrorAssetsError) -> ExitCode:
    """Refused or failed: a wrong setting is a failure, unless it is one table's (its name)."""
    if isinstance(error, ConfigurationError) and error.table is not None:
        return ExitCode.REFUSED
    return ExitCode.REFUSED if isinstance(error, _REFUSALS) else ExitCode.FAILED
