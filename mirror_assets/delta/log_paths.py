"""Names below `_delta_log`, in both directions, and what a listing of them says.

`parse_log_path` turns a name into one small frozen value, whose `name` gives it back; what the
protocol does not name is `Unknown`, never an error (DL-FILE-15). `LogListing` sorts a whole
listing by kind and answers which versions there are. Nothing here does I/O.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, fields
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, Literal
from urllib.parse import unquote

from mirror_assets.delta.actions import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LOG_DIRECTORY: Final = "_delta_log"
SIDECAR_DIRECTORY: Final = "_sidecars"
STAGED_DIRECTORY: Final = "_staged_commits"
CUT_DIRECTORY: Final = "_cuts"

_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_VERSIONED: Final = re.compile(r"([0-9]{20})\.(.+)")
_PART: Final = re.compile(r"checkpoint\.([0-9]{10})\.([0-9]{10})\.parquet")
_V2: Final = re.compile(rf"checkpoint\.({_UUID})\.(json|parquet)")
_COMPACTED: Final = re.compile(r"([0-9]{20})\.compacted\.json")
_STAGED: Final = re.compile(rf"({_UUID})\.json")
_CUT: Final = re.compile(r"cut-([0-9]{20})\.json")
_COMMIT_LIKE: Final = re.compile(r"[0-9]+\.json")
_SIDECAR: Final = re.compile(r"[^./][^/]*\.parquet")


class _Name:
    """What all names share: the form they are written in; `str()` is the name."""

    __slots__ = ()
    form: ClassVar[str]

    @property
    def name(self) -> str:
        """The name below `_delta_log`."""
        return self.form.format(self)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class CommitName(_Name):
    """`<version>.json` (DL-FILE-01)."""

    form: ClassVar[str] = "{0.version:020d}.json"
    version: int


@dataclass(frozen=True, slots=True)
class ClassicCheckpoint(_Name):
    """`<version>.checkpoint.parquet` (DL-FILE-05)."""

    form: ClassVar[str] = "{0.version:020d}.checkpoint.parquet"
    version: int


@dataclass(frozen=True, slots=True)
class MultiPartCheckpoint(_Name):
    """`<version>.checkpoint.<part>.<parts>.parquet`, parts counted from 1 (DL-FILE-06)."""

    form: ClassVar[str] = "{0.version:020d}.checkpoint.{0.part:010d}.{0.parts:010d}.parquet"
    version: int
    part: int
    parts: int


@dataclass(frozen=True, slots=True)
class V2Checkpoint(_Name):
    """`<version>.checkpoint.<uuid>.<json|parquet>`, the top-level file (DL-FILE-07)."""

    form: ClassVar[str] = "{0.version:020d}.checkpoint.{0.uuid}.{0.format}"
    version: int
    uuid: str
    format: Literal["json", "parquet"]


@dataclass(frozen=True, slots=True)
class SidecarName(_Name):
    """`_sidecars/<file>`, file actions of V2 checkpoints (DL-FILE-08)."""

    form: ClassVar[str] = "_sidecars/{0.file}"
    file: str


@dataclass(frozen=True, slots=True)
class Compaction(_Name):
    """`<first>.<last>.compacted.json` (DL-FILE-09)."""

    form: ClassVar[str] = "{0.first:020d}.{0.last:020d}.compacted.json"
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class VersionChecksum(_Name):
    """`<version>.crc` (DL-FILE-10)."""

    form: ClassVar[str] = "{0.version:020d}.crc"
    version: int


@dataclass(frozen=True, slots=True)
class LastCheckpoint(_Name):
    """`_last_checkpoint`."""

    form: ClassVar[str] = "_last_checkpoint"


@dataclass(frozen=True, slots=True)
class StagedCommit(_Name):
    """`_staged_commits/<version>.<uuid>.json`: a proposal, no evidence of a commit (DL-FILE-11)."""

    form: ClassVar[str] = "_staged_commits/{0.version:020d}.{0.uuid}.json"
    version: int
    uuid: str


@dataclass(frozen=True, slots=True)
class CutName(_Name):
    """`_cuts/cut-<version>.json`: ours, and named so that no reader takes it for a commit."""

    form: ClassVar[str] = "_cuts/cut-{0.version:020d}.json"
    version: int


@dataclass(frozen=True, slots=True)
class Unknown(_Name):
    """A name the protocol does not know: readers ignore it (DL-FILE-15)."""

    form: ClassVar[str] = "{0.text}"
    text: str

    @property
    def looks_like_commit(self) -> bool:
        """Digits and `.json`, but not a version of 20: some readers take it for a commit."""
        return _COMMIT_LIKE.fullmatch(self.text) is not None


CheckpointName = ClassicCheckpoint | MultiPartCheckpoint | V2Checkpoint
LogPath = (
    CommitName
    | CheckpointName
    | SidecarName
    | Compaction
    | VersionChecksum
    | LastCheckpoint
    | StagedCommit
    | CutName
    | Unknown
)

_PLAIN: Final[dict[str, type[CommitName | VersionChecksum | ClassicCheckpoint]]] = {
    "json": CommitName,
    "crc": VersionChecksum,
    "checkpoint.parquet": ClassicCheckpoint,
}


def parse_log_path(name: str) -> LogPath:
    """The kind of a file by its name relative to `_delta_log`; `parse_log_path(p.name) == p`."""
    if name == LastCheckpoint.form:
        return LastCheckpoint()
    directory, slash, rest = name.partition("/")
    if slash:
        return _parse_nested(directory, rest) or Unknown(name)
    match = _VERSIONED.fullmatch(name)
    version = _version(match[1]) if match else None
    if match is None or version is None:
        return Unknown(name)
    return _parse_versioned(version, match[2]) or Unknown(name)


def sidecar_name(path: str) -> SidecarName:
    """Where the `path` of a sidecar action points to.

    Sidecars always lie in the table's own directory, so only the last segment counts, whatever
    scheme or parents a writer put before it.
    """
    return SidecarName(unquote(path.rpartition("/")[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One file of the log, as a store lists it."""

    path: LogPath
    size: int
    mtime_ms: int

    @property
    def name(self) -> str:
        """The name below `_delta_log`."""
        return self.path.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The top-level files of one checkpoint: one, or all parts in their order."""

    version: int
    files: tuple[LogEntry, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names below `_delta_log`."""
        return tuple(entry.name for entry in self.files)

    @property
    def is_complete(self) -> bool:
        """All parts are there and none is empty (DL-FILE-06, DL-FILE-13)."""
        first = self.files[0].path
        wanted = first.parts if isinstance(first, MultiPartCheckpoint) else 1
        return len(self.files) == wanted and all(entry.size > 0 for entry in self.files)

    @property
    def preference(self) -> tuple[int, int, str]:
        """Greater is better among checkpoints of one version, as Spark compares (DL-V2-08)."""
        match self.files[0].path:
            case V2Checkpoint() as path:
                return (2, 0, path.name)
            case MultiPartCheckpoint(parts=parts):
                return (1, parts, "")
            case _:
                return (0, 0, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogListing:
    """All files of a log by kind; versions ascend, names are unique."""

    commits: MappingProxyType[int, LogEntry]
    #: complete checkpoints per version, the preferred one first
    checkpoints: MappingProxyType[int, tuple[Checkpoint, ...]]
    #: checkpoints that readers must take for absent: parts missing, or an empty file
    incomplete_checkpoints: tuple[Checkpoint, ...]
    checksums: MappingProxyType[int, LogEntry]
    compactions: tuple[LogEntry, ...]
    sidecars: MappingProxyType[str, LogEntry]
    staged_commits: tuple[LogEntry, ...]
    cuts: MappingProxyType[int, LogEntry]
    last_checkpoint: LogEntry | None
    unknown: tuple[LogEntry, ...]

    @classmethod
    def of(cls, files: Iterable[tuple[str, int, int]]) -> LogListing:
        """Sort `(name below _delta_log, size, mtime_ms)` by kind, in any order of arrival."""
        unique = {name: (size, mtime_ms) for name, size, mtime_ms in files}
        kinds: defaultdict[type, list[LogEntry]] = defaultdict(list)
        for name in sorted(unique):
            path = parse_log_path(name)
            size, mtime_ms = unique[name]
            kinds[type(path)].append(LogEntry(path=path, size=size, mtime_ms=mtime_ms))
        complete, incomplete = _checkpoints(kinds)
        return cls(
            commits=_by_version(kinds[CommitName]),
            checkpoints=complete,
            incomplete_checkpoints=incomplete,
            checksums=_by_version(kinds[VersionChecksum]),
            compactions=tuple(kinds[Compaction]),
            sidecars=MappingProxyType({entry.name: entry for entry in kinds[SidecarName]}),
            staged_commits=tuple(kinds[StagedCommit]),
            cuts=_by_version(kinds[CutName]),
            last_checkpoint=next(iter(kinds[LastCheckpoint]), None),
            unknown=tuple(kinds[Unknown]),
        )

    @property
    def is_empty(self) -> bool:
        """There is no file at all, not even an unknown one."""
        return not any(getattr(self, member.name) for member in fields(self))

    @property
    def first_commit(self) -> int | None:
        """The oldest version with a commit file."""
        return next(iter(self.commits), None)

    @property
    def last_commit(self) -> int | None:
        """The newest version with a commit file."""
        return next(reversed(self.commits), None)

    @property
    def misnamed_commits(self) -> tuple[LogEntry, ...]:
        """Files that some readers take for commits and others ignore (DL-FILE-01)."""
        return tuple(entry for entry in self.unknown if _COMMIT_LIKE.fullmatch(entry.name))

    def gaps(self) -> tuple[range, ...]:
        """Versions without a commit file between the first and the last one (DL-FILE-03)."""
        pairs = pairwise(self.commits)
        return tuple(range(low + 1, high) for low, high in pairs if high > low + 1)

    def newest_checkpoint(self, at_or_below: int | None = None) -> Checkpoint | None:
        """The preferred complete checkpoint of the highest version, or None."""
        for version in reversed(self.checkpoints):
            if at_or_below is None or version <= at_or_below:
                return self.checkpoints[version][0]
        return None

    def reconstructible(self) -> tuple[range, ...]:
        """The versions whose table state the log still gives, as ascending disjoint ranges.

        A version is one if it has a checkpoint, or is commit 0, or has a commit file and its
        predecessor is one (DL-FILE-04).
        """
        ranges: list[range] = []
        for version in sorted(self.commits.keys() | self.checkpoints.keys()):
            if ranges and ranges[-1].stop == version:
                ranges[-1] = range(ranges[-1].start, version + 1)
            elif version == 0 or version in self.checkpoints:
                ranges.append(range(version, version + 1))
        return tuple(ranges)

    def oldest_reconstructible(self) -> int | None:
        """The oldest version whose table state the log still gives, or None."""
        ranges = self.reconstructible()
        return ranges[0].start if ranges else None


def _parse_nested(directory: str, rest: str) -> LogPath | None:
    if directory == SIDECAR_DIRECTORY and _SIDECAR.fullmatch(rest):
        return SidecarName(rest)
    if directory == CUT_DIRECTORY:
        cut = _CUT.fullmatch(rest)
        return CutName(int(cut[1])) if cut and _version(cut[1]) is not None else None
    match = _VERSIONED.fullmatch(rest) if directory == STAGED_DIRECTORY else None
    version = _version(match[1]) if match else None
    staged = _STAGED.fullmatch(match[2]) if match else None
    return StagedCommit(version, staged[1]) if staged and version is not None else None


def _parse_versioned(version: int, rest: str) -> LogPath | None:
    if kind := _PLAIN.get(rest):
        return kind(version)
    if match := _PART.fullmatch(rest):
        part, parts = int(match[1]), int(match[2])
        return MultiPartCheckpoint(version, part, parts) if 1 <= part <= parts else None
    if match := _V2.fullmatch(rest):
        return V2Checkpoint(version, match[1], "json" if match[2] == "json" else "parquet")
    if match := _COMPACTED.fullmatch(rest):
        last = _version(match[1])
        return Compaction(version, last) if last is not None and last > version else None
    return None


def _version(digits: str) -> int | None:
    version = int(digits)
    return version if version <= INT64_MAX else None


def _checkpoints(
    kinds: Mapping[type, list[LogEntry]],
) -> tuple[MappingProxyType[int, tuple[Checkpoint, ...]], tuple[Checkpoint, ...]]:
    groups: defaultdict[tuple[int, str | int], list[LogEntry]] = defaultdict(list)
    for kind in (ClassicCheckpoint, MultiPartCheckpoint, V2Checkpoint):
        for entry in kinds.get(kind, ()):
            groups[_checkpoint_key(entry.path)].append(entry)
    found = [Checkpoint(version=key[0], files=tuple(files)) for key, files in groups.items()]
    found.sort(key=lambda checkpoint: checkpoint.preference, reverse=True)
    found.sort(key=lambda checkpoint: checkpoint.version)
    complete: defaultdict[int, tuple[Checkpoint, ...]] = defaultdict(tuple)
    for checkpoint in found:
        if checkpoint.is_complete:
            complete[checkpoint.version] += (checkpoint,)
    incomplete = tuple(checkpoint for checkpoint in found if not checkpoint.is_complete)
    return MappingProxyType(dict(complete)), incomplete


def _checkpoint_key(path: LogPath) -> tuple[int, str | int]:
    """Parts of one checkpoint have one key, every other file its own."""
    match path:
        case MultiPartCheckpoint(version=version, parts=parts):
            return (version, parts)
        case ClassicCheckpoint(version=version) | V2Checkpoint(version=version):
            return (version, path.name)
        case _:
            raise AssertionError(path)


def _by_version(entries: Iterable[LogEntry]) -> MappingProxyType[int, LogEntry]:
    """Names of 20 digits sort as their versions do."""
    return MappingProxyType(
        {
            entry.path.version: entry
            for entry in entries
            if isinstance(entry.path, CommitName | VersionChecksum | CutName)
        }
    )
