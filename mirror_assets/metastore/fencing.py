"""Fences: a table feature that no other engine knows, so that none of them may write.

Readers do not look at writer-only features. A fence is an ordinary commit of a protocol action:
what the old version numbers implied stays, by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mirror_assets.delta.actions import CommitInfo, TableProtocol
from mirror_assets.delta.commit_file import canonical_json
from mirror_assets.delta.features import (
    FENCE,
    is_fenced,
    protocol_with,
    protocol_without,
)
from mirror_assets.errors import CommitConflictError
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.outcomes import CommitRequest, Conflict

#: another change of the protocol may win in between
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fencing:
    """How a table stands, and the version that made it so; None if it was so before."""

    table: str
    is_fenced: bool
    version: int | None
    protocol: TableProtocol


def set_fence(reader: LogReader, writer: SqlTxnLogWriter, name: str, *, fenced: bool) -> Fencing:
    """Put the fence up, or take it down; one that stands as wanted is left alone.

    Raises what a commit raises, and CommitConflictError if other changes of the protocol win
    again and again.
    """
    for _ in range(_ATTEMPTS):
        head = reader.summary(name)
        request = fence_request(name, head.protocol, head.version, fenced=fenced)
        if request is None:
            return Fencing(table=name, is_fenced=fenced, version=None, protocol=head.protocol)
        (outcome,) = writer.commit_all([request])
        if not isinstance(outcome, Conflict):
            protocol = request.actions[1]
            assert isinstance(protocol, TableProtocol)  # noqa: S101 - as `fence_request` made it
            return Fencing(table=name, is_fenced=fenced, version=outcome.version, protocol=protocol)
    message = "the protocol was changed by others again and again"
    raise CommitConflictError(message, table=name, remedy="try again")


def fence_request(
    name: str, protocol: TableProtocol, read_version: int, *, fenced: bool
) -> CommitRequest | None:
    """The commit that changes the fence; None where it stands as wanted."""
    if is_fenced(protocol) == fenced:
        return None
    if fenced:
        new = protocol_with(protocol, [FENCE])
        versions = {
            "minReaderVersion": new.min_reader_version,
            "minWriterVersion": new.min_writer_version,
            "writerFeatures": new.writer_features,
        }
        parameters = {"newProtocol": canonical_json(versions).decode()}
        info = {"operation": "UPGRADE PROTOCOL", "operationParameters": parameters}
    else:
        new = protocol_without(protocol, FENCE)
        parameters = {"featureName": FENCE}
        info = {"operation": "DROP FEATURE", "operationParameters": parameters}
    return CommitRequest(table=name, actions=[CommitInfo(info), new], read_version=read_version)
