"""What checks look at: the log as listed, and one of its files in the light of what came before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from mirror_assets.conformance.checkpoint_scan import CheckpointScan
from mirror_assets.conformance.checks import Found
from mirror_assets.conformance.commit_lines import CommitLines
from mirror_assets.conformance.history import History
from mirror_assets.delta.actions import (
    Action,
    AddFile,
    CommitInfo,
    MetaData,
    RemoveFile,
    TableProtocol,
)
from mirror_assets.delta.log_paths import Checkpoint, LogEntry, LogListing
from mirror_assets.findings import Severity

_Kind = TypeVar("_Kind")
_SETTINGS: Final = frozenset({TableProtocol, MetaData})


@dataclass(slots=True, kw_only=True)
class Log:
    """The listing, and what is learnt of the log while it is read."""

    listing: LogListing
    #: reads of a file of the table by its path in an action; None where it cannot be read
    read_data: Callable[[str], bytes | None] | None = None
    #: by version, then by the name of the first file
    scans: dict[str, CheckpointScan] = field(default_factory=dict)
    history: History = field(default_factory=History)


class Commit:
    """One commit file, and the state before it."""

    __slots__ = (
        *("version", "entry", "data", "content", "before", "during", "log"),
        *("actions", "kinds", "adds", "removes", "removed", "is_ordinary", "_by_kind"),
    )

    def __init__(
        self,
        *,
        version: int,
        entry: LogEntry,
        data: bytes,
        content: CommitLines,
        before: History,
        log: Log,
    ) -> None:
        self.version, self.entry, self.data = version, entry, data
        self.content, self.before, self.log = content, before, log
        #: what could be understood
        self.actions: list[Action] = []
        groups: dict[type[Any], list[tuple[int, Any]]] = {}
        for number, action in content.lines:
            if action is not None:
                self.actions.append(action)
                groups.setdefault(type(action), []).append((number, action))
        self._by_kind = groups
        #: the kinds of its actions
        self.kinds = frozenset(groups)
        self.adds: list[AddFile] = [add for _, add in groups.get(AddFile, ())]
        self.removes: list[RemoveFile] = [remove for _, remove in groups.get(RemoveFile, ())]
        #: by path
        self.removed = {remove.path: remove for remove in self.removes}
        #: one commitInfo, in front, and then something else, all in canonical lines
        self.is_ordinary = (
            version > 0
            and not content.found
            and len(groups.get(CommitInfo, ())) == 1
            and type(self.actions[0]) is CommitInfo
            and len(groups) > 1
            and self.kinds.isdisjoint(_SETTINGS)
        )
        #: the state before, with the protocol and metaData of this very commit
        self.during = before
        if not self.kinds.isdisjoint(_SETTINGS):
            self.during = before.with_settings(self.actions)

    @property
    def features(self) -> frozenset[str]:
        """What the protocol in force promises."""
        return self.during.features

    def each(self, kind: type[_Kind]) -> list[tuple[int, _Kind]]:
        """The actions of a kind, with the number of their line."""
        return self._by_kind.get(kind, [])

    def only(self, kind: type[_Kind]) -> _Kind | None:
        """The first action of a kind."""
        return next((action for _, action in self.each(kind)), None)

    def found(
        self, rule: str, message: str, line: int | None = None, *, at_most: Severity | None = None
    ) -> Found:
        """A breach in this commit."""
        name = self.entry.name
        return Found(
            rule=rule,
            message=message,
            version=self.version,
            file=name,
            line=line,
            at_most=at_most,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointView:
    """One checkpoint as it was read, and the state at its version by the commits, if known."""

    checkpoint: Checkpoint
    scan: CheckpointScan
    #: None where only the checkpoint itself tells the state
    replayed: History | None
    log: Log

    @property
    def version(self) -> int:
        """The version whose state it claims to be."""
        return self.checkpoint.version

    def found(
        self, rule: str, message: str, file: str | None = None, *, at_most: Severity | None = None
    ) -> Found:
        """A breach in this checkpoint."""
        name = file or self.checkpoint.names[0]
        return Found(rule=rule, message=message, version=self.version, file=name, at_most=at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """`_last_checkpoint`, a version checksum or a compaction, and the state at its version."""

    entry: LogEntry
    data: bytes
    #: at the version it speaks of; None where that is not known
    history: History | None
    log: Log
    version: int | None = None

    def found(self, rule: str, message: str, *, at_most: Severity | None = None) -> Found:
        """A breach in this file."""
        name = self.entry.name
        return Found(rule=rule, message=message, version=self.version, file=name, at_most=at_most)
