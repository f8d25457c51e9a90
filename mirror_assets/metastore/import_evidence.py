"""What else a log says of its state: its newest checkpoint, and its version checksums.

A checkpoint that cannot be read is only a warning where the commits are there, since the
reference reader falls back to them. One with other content is an error: every reader believes the
checkpoint, and would see another table than SQL. A wrong version checksum harms nobody but those
who look for errors with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirror_assets.delta.actions import AddFile, MetaData, TableProtocol
from mirror_assets.delta.version_checksum import UnusableChecksum, parse_version_checksum
from mirror_assets.errors import MalformedActionError, StorageError
from mirror_assets.findings import Severity
from mirror_assets.metastore.import_parts import file_key
from mirror_assets.metastore.import_source import checkpoint_actions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from mirror_assets.delta.actions import Action
    from mirror_assets.delta.log_paths import Checkpoint, LogEntry
    from mirror_assets.metastore.import_findings import FindingLog
    from mirror_assets.metastore.import_references import Resolved
    from mirror_assets.metastore.import_source import LogSource

    Integers = NDArray[np.int64]

#: protocol and metaData at a version
InForceAt = tuple["TableProtocol | None", "MetaData | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvidence:
    """Compares what a log says beside its commits with the state that they give."""

    source: LogSource
    resolved: Resolved
    findings: FindingLog

    def compare_checkpoint(
        self, checkpoint: Checkpoint, in_force: InForceAt, relocated: Callable[[Action], Action]
    ) -> None:
        """Compare files, protocol and metaData (DL-REC-10)."""
        told = _Told()
        try:
            for batch in checkpoint_actions(self.source, checkpoint):
                told.take(batch, relocated)
        except (MalformedActionError, StorageError) as exc:
            self.findings.note(
                exc.rule or "DL-FILE-13",
                Severity.WARNING,
                f"a checkpoint that cannot be read: {exc.message}",
                version=checkpoint.version,
                file=checkpoint.names[0],
                remedy="take it away: some readers fail on it, though all commits are there",
            )
            return
        for message in told.differences(self.resolved, checkpoint.version, in_force):
            self.findings.note(
                "DL-REC-10",
                Severity.ERROR,
                f"the checkpoint and the commits tell different states: {message}",
                version=checkpoint.version,
                file=checkpoint.names[0],
                remedy="find out which is right; `--history checkpoint` begins at the checkpoint",
            )

    def compare_checksums(self, checksums: Mapping[int, LogEntry], floor: int, head: int) -> int:
        """Compare numbers and sizes of files (DL-CRC-02); return how many checksums there are."""
        numbers, sizes = self.resolved.totals(floor, head)
        entries = {v: entry for v, entry in checksums.items() if floor <= v <= head}
        for version, entry in entries.items():
            told = parse_version_checksum(self.source.read(entry.name))
            if isinstance(told, UnusableChecksum):
                reason = told.reason
            elif _differs(told.num_files, int(numbers[version - floor])):
                reason = f"numFiles is {told.num_files}, not {numbers[version - floor]}"
            elif _differs(told.table_size_bytes, int(sizes[version - floor])):
                reason = f"tableSizeBytes is {told.table_size_bytes}, not {sizes[version - floor]}"
            else:
                continue
            self.findings.note(
                "DL-CRC-02", Severity.WARNING, reason, version=version, file=entry.name
            )
        return len(entries)


class _Told:
    """What a checkpoint tells of the state, as far as it is compared."""

    def __init__(self) -> None:
        self._hashes: list[Integers] = []
        self._sizes: list[Integers] = []
        self._protocols: list[TableProtocol] = []
        self._metadata: list[MetaData] = []

    def take(self, actions: list[Action], relocated: Callable[[Action], Action]) -> None:
        adds = [a for a in map(relocated, actions) if isinstance(a, AddFile)]
        hashes = (hash(file_key(add)) for add in adds)
        self._hashes.append(np.fromiter(hashes, np.int64, len(adds)))
        self._sizes.append(np.fromiter((add.size for add in adds), np.int64, len(adds)))
        self._protocols += [a for a in actions if isinstance(a, TableProtocol)]
        self._metadata += [a for a in actions if isinstance(a, MetaData)]

    def differences(
        self,
        resolved: Resolved,
        version: int,
        in_force: InForceAt,
    ) -> list[str]:
        hashes, sizes = np.concatenate(self._hashes), np.concatenate(self._sizes)
        live = resolved.live_at(version)
        found = []
        if len(hashes) != (count := int(live.sum())):
            found.append(f"{len(hashes)} files, not {count}")
        elif not _same_pairs(hashes, sizes, resolved.hashes[live], resolved.sizes[live]):
            found.append("other files, or other sizes of them")
        if len(self._protocols) != 1 or not _same_protocol(self._protocols[0], in_force[0]):
            found.append("another protocol")
        if len(self._metadata) != 1 or not _same_metadata(self._metadata[0], in_force[1]):
            found.append("another metaData")
        return found


def _same_pairs(
    hashes: Integers, sizes: Integers, other_hashes: Integers, other_sizes: Integers
) -> bool:
    order, other = np.argsort(hashes, kind="stable"), np.argsort(other_hashes, kind="stable")
    same = np.array_equal(hashes[order], other_hashes[other])
    return same and np.array_equal(sizes[order], other_sizes[other])


def _same_protocol(told: TableProtocol, other: TableProtocol | None) -> bool:
    return other is not None and _protocol_key(told) == _protocol_key(other)


def _protocol_key(protocol: TableProtocol) -> tuple[object, ...]:
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        frozenset(protocol.reader_features or ()),
        frozenset(protocol.writer_features or ()),
    )


def _same_metadata(told: MetaData, other: MetaData | None) -> bool:
    return other is not None and _metadata_key(told) == _metadata_key(other)


def _metadata_key(metadata: MetaData) -> tuple[object, ...]:
    return (
        metadata.id,
        metadata.schema_string,
        tuple(metadata.partition_columns),
        frozenset(metadata.configuration.items()),
    )


def _differs(told: int | None, found: int) -> bool:
    return told is not None and told != found
