"""What the decoder of an import hands on: rows of a version, and which files they speak of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mirror_assets.delta.actions import (
    Action,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    MetaData,
    RemoveFile,
    Sidecar,
    TableProtocol,
    Txn,
    UnknownAction,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sqlalchemy import Table

    from mirror_assets.findings import Finding
    from mirror_assets.metastore.columns import Row
    from mirror_assets.metastore.plain_rows import FileShape


class BadFileError(Exception):
    """A file of the log that cannot be understood; the finding refuses the import."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(finding.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRefs:
    """Files that a version adds, or removes.

    A key is the path's bytes and, behind a NUL, the id of the deletion vector where there is one.
    """

    is_add: bool
    keys: list[bytes]
    ordinals: NDArray[np.int64]
    sizes: NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class Part:
    """Some or all rows of one version."""

    version: int
    #: a commit below the floor: its rows are no part of any state
    is_history: bool = False
    rows: dict[Table, list[Row]] = field(default_factory=dict)
    #: rows of plain files as PostgreSQL's COPY takes them
    texts: list[tuple[FileShape, bytes]] = field(default_factory=list)
    #: files of the fast lane
    files: list[FileRefs] = field(default_factory=list)
    num_rows: int = 0
    _singles: dict[bool, list[tuple[bytes, int, int]]] = field(default_factory=dict)

    def add_rows(self, table: Table, rows: list[Row]) -> None:
        self.rows.setdefault(table, []).extend(rows)
        self.num_rows += len(rows)

    def add_text(self, shape: FileShape, text: bytes, count: int) -> None:
        self.texts.append((shape, text))
        self.num_rows += count

    def refer(self, is_add: bool, key: bytes, ordinal: int, size: int) -> None:  # noqa: FBT001 - the kind of reference
        """Note one file."""
        if not self.is_history:
            self._singles.setdefault(is_add, []).append((key, ordinal, size))

    def all_files(self) -> list[FileRefs]:
        """The files of both lanes."""
        singles = [
            FileRefs(
                is_add=is_add,
                keys=[key for key, _, _ in files],
                ordinals=np.array([ordinal for _, ordinal, _ in files], np.int64),
                sizes=np.array([size for _, _, size in files], np.int64),
            )
            for is_add, files in self._singles.items()
        ]
        return [*self.files, *singles]


@dataclass(slots=True, kw_only=True)
class CommitFacts:
    """What a commit file says as a whole, once all its lines are read."""

    version: int
    file: str
    mtime_ms: int
    sha256: str = ""
    byte_length: int = 0
    final_newline: bool = True
    #: the file itself, where its lines alone cannot give it back
    raw_file: bytes | None = None
    info: CommitInfo | None = None
    info_ordinal: int | None = None
    info_raw: str | None = None
    num_actions: int = 0
    #: rows by table
    counts: dict[str, int] = field(default_factory=dict)
    exact_lines: int = 0
    rewritten_lines: int = 0
    protocols: list[TableProtocol] = field(default_factory=list)
    metadata: list[MetaData] = field(default_factory=list)
    app_ids: list[str] = field(default_factory=list)
    domains: list[str] = field(default_factory=list)
    #: rule and line of what is odd, but harmless
    oddities: list[tuple[str, int]] = field(default_factory=list)

    def note_plain(self, table: Table, count: int) -> None:
        """Count plain lines."""
        self.num_actions += count
        self.exact_lines += count
        self.count(table, count)

    def count(self, table: Table, rows: int = 1) -> None:
        """Count rows of a table."""
        self.counts[table.name] = self.counts.get(table.name, 0) + rows

    def note(self, action: Action, ordinal: int, *, is_exact: bool) -> None:
        """Remember what an action says of the table."""
        self.num_actions += 1
        self.exact_lines += is_exact
        self.rewritten_lines += not is_exact
        match action:
            case CommitInfo() if self.info is None:
                self.info, self.info_ordinal = action, ordinal
            case TableProtocol():
                self.protocols.append(action)
            case MetaData():
                self.metadata.append(action)
            case Txn():
                self.app_ids.append(action.app_id)
            case DomainMetadata():
                self.domains.append(action.domain)
            case CheckpointMetadata() | Sidecar():
                self.oddities.append(("DL-CMT-05", ordinal + 1))
            case UnknownAction():
                self.oddities.append(("DL-CMT-04", ordinal + 1))
            case _:
                pass


def file_key(action: AddFile | RemoveFile) -> bytes:
    """The key of a logical file (DL-REC-01)."""
    return join_key(action.path, action.dv_id)


def join_key(path: str, dv_id: str) -> bytes:
    """Path and id of the deletion vector as a key."""
    return b"%b\0%b" % (path.encode(), dv_id.encode()) if dv_id else path.encode()


def split_key(key: bytes) -> tuple[str, str]:
    """Path and id of the deletion vector."""
    path, _, dv_id = key.decode().partition("\0")
    return path, dv_id


def size_of(action: AddFile | RemoveFile) -> int:
    """The size that an add or remove tells; 0 for a remove that does not."""
    return action.size or 0
