"""The validator: reads a log once, in version order, and asks every rule.

    report = verify_log(open_log("s3://bucket/table"), profile=Profile.FOREIGN)

Memory is bounded: commits pass by one at a time, checkpoints batch by batch, and of each live file
only a row of numbers is kept. Requests to a store are many in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from mirror_assets.conformance import (  # noqa: F401 - they register their checks
    action_rules,
    checkpoint_entry_rules,
    checkpoint_rules,
    checkpoint_schema_rules,
    checksum_rules,
    commit_rules,
    file_name_rules,
    history_rules,
    pointer_rules,
    vector_rules,
)
from mirror_assets.conformance.checkpoint_scan import CheckpointScan, scan_checkpoint
from mirror_assets.conformance.checks import (
    CHECKPOINT,
    CHECKSUM,
    COMMIT,
    COMPACTION,
    END,
    LOG,
    POINTER,
    Found,
    checked_rules,
)
from mirror_assets.conformance.commit_lines import read_lines
from mirror_assets.conformance.compaction_rules import Range
from mirror_assets.conformance.history import History
from mirror_assets.conformance.live_files import LiveFiles
from mirror_assets.conformance.report import Growth, Report
from mirror_assets.conformance.rulebook import Profile
from mirror_assets.conformance.views import CheckpointView, Commit, Document, Log
from mirror_assets.conformance.weighing import Weighing
from mirror_assets.delta.actions import DomainMetadata, MetaData, TableProtocol, Txn
from mirror_assets.delta.log_paths import Compaction, LogEntry
from mirror_assets.delta.schema import DataType, PrimitiveType, parse_schema, walk_fields
from mirror_assets.errors import RuleViolationError
from mirror_assets.storage.log_source import LogSource

#: requests in flight: latency, not bandwidth, is what a store makes one wait for
REQUESTS: Final = 16
_POINTS: Final = 1_000

Watch = Callable[[int, History], Iterator[Found]]


def verify_log(
    source: LogSource,
    *,
    profile: Profile = Profile.FOREIGN,
    table: str | None = None,
    read_data: Callable[[str], bytes | None] | None = None,
    watch: Watch | None = None,
) -> Report:
    """Check a log by all rules that can be told from it.

    `read_data` reads a file of the table by its path, for deletion vectors; without it those in
    files are taken on trust. `watch` is called with each version and the state at it, and may find
    something, too. Raises StorageError if the log cannot be listed or read.
    """
    run = _Run(source, profile=profile, table=table, read_data=read_data, watch=watch)
    run.go()
    return run.report()


@dataclass
class _Run:
    source: LogSource
    profile: Profile = field(kw_only=True)
    table: str | None = field(kw_only=True)
    read_data: Callable[[str], bytes | None] | None = field(kw_only=True)
    watch: Watch | None = field(kw_only=True)
    files: int = 0
    versions: int = 0
    growth: list[Growth] = field(default_factory=list)

    def go(self) -> None:
        listing = self.source.list()
        self.weighing = Weighing(self.profile, self.table)
        self.log = Log(listing=listing, read_data=self.read_data)
        self.ranges = [_range(entry) for entry in listing.compactions]
        self._ask(LOG, self.log)
        versions = sorted({*listing.commits, *listing.checkpoints, *listing.checksums})
        wanted = (
            entry
            for version in versions
            for entry in (listing.commits.get(version), listing.checksums.get(version))
            if entry is not None
        )
        with _reading(self.source, wanted) as contents:
            for version in versions:
                self._version(version, contents)
        self._pointer()
        self._ask(END, self.log)

    def report(self) -> Report:
        types, partitions = _types(self.log.history)
        return Report(
            location=self.source.location.uri,
            profile=self.profile,
            table=self.table,
            findings=tuple(self.weighing.findings),
            rules=tuple(sorted(checked_rules())),
            files=self.files,
            versions=self.versions,
            more=self.weighing.more(),
            growth=tuple(self.growth),
            features=self.log.history.features,
            types=types,
            partitions=partitions,
        )

    def _version(self, version: int, contents: Iterator[tuple[LogEntry, bytes]]) -> None:
        listing, history = self.log.listing, self.log.history
        scans = [
            (checkpoint, scan_checkpoint(self.source, checkpoint, listing))
            for checkpoint in listing.checkpoints.get(version, ())
        ]
        _prime(history, [scan for _, scan in scans])
        if version in listing.commits:
            entry, data = next(contents)
            self._commit(version, entry, data)
        elif history.version < version and version in listing.checkpoints:
            history.forget()
            history.version = version
        for checkpoint, scan in scans:
            self.files += len(checkpoint.files) + len(scan.sidecars)
            self.log.scans[checkpoint.names[0]] = _slim(scan)
            replayed = history if history.is_known else None
            view = CheckpointView(checkpoint=checkpoint, scan=scan, replayed=replayed, log=self.log)
            self._ask(CHECKPOINT, view)
            if replayed is None and scan.is_readable:
                _adopt(history, version, scan)
        if version in listing.checksums:
            entry, data = next(contents)
            self.files += 1
            known = history if history.version == version and history.is_known else None
            document = Document(
                entry=entry, data=data, history=known, log=self.log, version=version
            )
            self._ask(CHECKSUM, document)
        self._grown(version)
        if self.watch is not None and history.version == version:
            self.weighing.tell(self.watch(version, history))

    def _commit(self, version: int, entry: LogEntry, data: bytes) -> None:
        history = self.log.history
        if version != history.version + 1:
            history.forget()
        commit = Commit(
            version=version,
            entry=entry,
            data=data,
            content=read_lines(data),
            before=history,
            log=self.log,
        )
        self.weighing.tell(COMMIT.run_about(commit, commit))
        history.apply(version, commit.actions)
        self.files += 1
        self.versions += 1
        for span in self.ranges:
            if span.first <= version <= span.last:
                span.add(commit.actions)
                span.seen += 1
            if version == span.last:
                self._compaction(span)

    def _compaction(self, span: Range) -> None:
        span.data = self.source.read(span.entry.name)
        self.files += 1
        self._ask(COMPACTION, span)
        span.newest.clear()

    def _pointer(self) -> None:
        entry = self.log.listing.last_checkpoint
        if entry is None:
            if self.log.listing.checkpoints and 0 not in self.log.listing.commits:
                message = "commits are cleaned up, and there is no _last_checkpoint: Trino fails"
                self.weighing.tell([Found(rule="DL-LCP-02", message=message)])
            return
        self.files += 1
        document = Document(
            entry=entry, data=self.source.read(entry.name), history=None, log=self.log
        )
        self._ask(POINTER, document)

    def _grown(self, version: int) -> None:
        live = self.log.history.live
        if live is None or self.log.history.version != version:
            return
        self.growth.append(Growth(version, live.count, live.size_bytes, live.records))
        if len(self.growth) > 2 * _POINTS:
            self.growth = self.growth[::2]

    def _ask(self, checks: Any, view: object) -> None:
        self.weighing.tell(checks.run(view))


def _adopt(history: History, version: int, scan: CheckpointScan) -> None:
    """Take the state from a checkpoint, where the commits do not tell it."""
    history.version = version
    history.live = LiveFiles(scan.files, scan.names)
    history.vectors = {path: (version, vector) for path, vector in scan.vectors.items()}
    history.tombstones = {}
    for action in scan.others:
        match action:
            case TableProtocol():
                history.protocol = action
            case MetaData():
                history.metadata = action
            case Txn():
                history.txns[action.app_id] = action
            case DomainMetadata():
                history.domains[action.domain] = action
            case _:
                pass


def _prime(history: History, scans: list[CheckpointScan]) -> None:
    """Where the log begins with a checkpoint, it tells the settings of its own commit, too."""
    for action in (action for scan in scans for action in scan.others):
        if isinstance(action, TableProtocol) and history.protocol is None:
            history.protocol = action
        elif isinstance(action, MetaData) and history.metadata is None:
            history.metadata = action


def _slim(scan: CheckpointScan) -> CheckpointScan:
    """What the pointer is judged by, without the files."""
    return CheckpointScan(
        is_readable=scan.is_readable, counts=scan.counts, size_bytes=scan.size_bytes
    )


def _types(history: History) -> tuple[frozenset[str], frozenset[str]]:
    """The types of columns and their members, and of partition columns, as readers know them."""
    metadata = history.metadata
    try:
        schema = parse_schema("" if metadata is None else metadata.schema_string)
    except RuleViolationError:
        return frozenset(), frozenset()
    types = frozenset(_type_name(member.type) for _, member in walk_fields(schema))
    parts = (schema.find(name) for name in (() if metadata is None else metadata.partition_columns))
    return types, frozenset(_type_name(member.type) for member in parts if member is not None)


def _type_name(kind: DataType) -> str:
    if isinstance(kind, PrimitiveType):
        return kind.name
    return type(kind).__name__.removesuffix("Type").lower()


def _range(entry: LogEntry) -> Range:
    path = entry.path
    if not isinstance(path, Compaction):
        raise TypeError(path)
    return Range(entry=entry, first=path.first, last=path.last)


class _reading:  # noqa: N801 - reads as a function: `with _reading(...) as contents`
    """The contents of files in order, many requests ahead; local files one at a time."""

    def __init__(self, source: LogSource, wanted: Iterator[LogEntry]) -> None:
        self._source, self._wanted = source, wanted
        local = source.location.scheme in ("file", "memory")
        self._pool = None if local else ThreadPoolExecutor(REQUESTS, "log-reader")

    def __enter__(self) -> Iterator[tuple[LogEntry, bytes]]:
        if self._pool is None:
            return ((entry, self._source.read(entry.name)) for entry in self._wanted)
        return self._ahead(self._pool)

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _ahead(self, pool: ThreadPoolExecutor) -> Iterator[tuple[LogEntry, bytes]]:
        waiting: deque[tuple[LogEntry, Future[bytes]]] = deque()
        for entry in self._wanted:
            waiting.append((entry, pool.submit(self._source.read, entry.name)))
            if len(waiting) > 2 * REQUESTS:
                first, content = waiting.popleft()
                yield first, content.result()
        while waiting:
            first, content = waiting.popleft()
            yield first, content.result()
