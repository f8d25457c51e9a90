"""The table state: what remains when actions are replayed in version order.

In memory and simple on purpose: it is the yardstick for the state that SQL keeps in indexes and
for checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror_assets.delta.actions import (
    Action,
    AddFile,
    DomainMetadata,
    MetaData,
    RemoveFile,
    TableProtocol,
    Txn,
)
from mirror_assets.errors import RuleViolationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: a logical file: path and id of its deletion vector, empty without one (DL-REC-01)
FileKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table at a version; -1 is the table before its first commit."""

    version: int = -1
    protocol: TableProtocol | None = None
    metadata: MetaData | None = None
    files: Mapping[FileKey, AddFile] = field(default_factory=dict)
    #: newest remove of each logical file that is not live; none expires here
    tombstones: Mapping[FileKey, RemoveFile] = field(default_factory=dict)
    txns: Mapping[str, Txn] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)

    @property
    def num_files(self) -> int:
        """How many logical files are live."""
        return len(self.files)

    @property
    def size_bytes(self) -> int:
        """The sum of their sizes."""
        return sum(add.size for add in self.files.values())

    def apply(self, version: int, actions: Iterable[Action]) -> TableState:
        """The state after one more commit.

        Raises RuleViolationError (DL-FILE-03) if it is not the next version.
        """
        return replay([(version, actions)], base=self)


def replay(
    commits: Iterable[tuple[int, Iterable[Action]]], base: TableState | None = None
) -> TableState:
    """The state after these commits, in version order, on top of `base` or of nothing.

    Raises RuleViolationError (DL-FILE-03) where a version is left out.
    """
    builder = _Builder(base or TableState())
    for version, actions in commits:
        if version != builder.version + 1:
            message = f"version {version} follows version {builder.version}"
            raise RuleViolationError(message, rule="DL-FILE-03", version=version)
        builder.apply(version, actions)
    return builder.state()


def state_at(version: int, actions: Iterable[Action]) -> TableState:
    """The state that a checkpoint of this version holds."""
    builder = _Builder(TableState())
    builder.apply(version, actions)
    return builder.state()


class _Builder:
    """The dictionaries while they still change, so that a replay copies them once."""

    def __init__(self, base: TableState) -> None:
        self.version = base.version
        self._protocol = base.protocol
        self._metadata = base.metadata
        self._files = dict(base.files)
        self._tombstones = dict(base.tombstones)
        self._txns = dict(base.txns)
        self._domains = dict(base.domains)

    def state(self) -> TableState:
        return TableState(
            version=self.version,
            protocol=self._protocol,
            metadata=self._metadata,
            files=self._files,
            tombstones=self._tombstones,
            txns=self._txns,
            domains=self._domains,
        )

    def apply(self, version: int, actions: Iterable[Action]) -> None:
        """Removes go first whatever their place: order in a commit says nothing (DL-CMT-16)."""
        self.version = version
        adds: list[AddFile] = []
        for action in actions:
            match action:
                case AddFile():
                    adds.append(action)
                case RemoveFile():
                    key = (action.path, action.dv_id)
                    self._files.pop(key, None)
                    self._tombstones[key] = action
                case MetaData():
                    self._metadata = action
                case TableProtocol():
                    self._protocol = action
                case Txn():
                    self._txns[action.app_id] = action
                case DomainMetadata():
                    self._apply_domain(action)
                case _:
                    pass  # cdc, commitInfo and unknown actions are no part of the state
        for add in adds:
            key = (add.path, add.dv_id)
            self._tombstones.pop(key, None)
            self._files[key] = add

    def _apply_domain(self, action: DomainMetadata) -> None:
        if action.removed:
            self._domains.pop(action.domain, None)
        else:
            self._domains[action.domain] = action
