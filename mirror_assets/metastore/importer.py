"""Taking a table over: its log becomes rows, with history, without losing a byte.

    plan -> register -> decode and write, batch by batch -> prove parity -> own

Until parity is proven the table is IMPORTING: nobody can commit to it. A killed import goes on
where it stopped when it is started again; a refused one leaves nothing behind.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, or_, select

from mirror_assets.delta.locations import Location, normalise_location
from mirror_assets.errors import ImportRefusedError, TableStateError
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.dropping import forget
from mirror_assets.metastore.heads import TableState
from mirror_assets.metastore.import_findings import FindingLog
from mirror_assets.metastore.import_plan import History, ImportPlan, Start, plan_import
from mirror_assets.metastore.import_run import ImportProgress, ImportRun
from mirror_assets.metastore.import_source import LogSource, why_unreadable
from mirror_assets.metastore.import_store import (
    ImportStore,
    take_back_unfinished,
    write_record,
)
from mirror_assets.metastore.log_reader import TableRecord
from mirror_assets.metastore.registry import refuse_taken, register, require_name
from mirror_assets.metastore.relocation import Relocation
from mirror_assets.metastore.tables import dl_tables

if TYPE_CHECKING:
    from mirror_assets.delta.log_paths import LogListing
    from mirror_assets.metastore.database import Metastore
    from mirror_assets.metastore.import_audit import Parity


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What was taken over, or would be."""

    table: str
    location: str
    #: oldest version with a commit, oldest whose state is known, newest
    first_version: int
    floor_version: int
    version: int
    commits: int
    adds: int
    removes: int
    #: lines that are their own canonical form; lines whose text is kept, or was changed
    exact_lines: int
    rewritten_lines: int
    num_files: int
    size_bytes: int
    parity: Parity
    #: the version up to which an earlier, interrupted import had come
    resumed_after: int | None = None
    is_dry_run: bool = False
    findings: list[Finding] = field(default_factory=list)


def import_table(
    metastore: Metastore,
    source: LogSource,
    name: str,
    *,
    location: Location | str | None = None,
    dry_run: bool = False,
    up_to_version: int | None = None,
    history: History = "full",
    mirror_to: Location | str | None = None,
    take_over: bool = False,
    progress: Callable[[ImportProgress], None] | None = None,
) -> ImportReport:
    """Take the table of a log over, or only look whether it can be.

    Its log counts as published where it is; with `mirror_to` it is to be published at another
    place, with absolute paths to data files that stay where they are. A log with our fence is
    another deployment's, unless `take_over` says that it is gone. Raises ImportRefusedError with
    its findings, and then nothing of the table is left; TableExistsError for a name or a place
    that is taken.
    """
    place = _place(source.location if location is None else location)
    findings = FindingLog(name)
    listing = source.list()
    plan = plan_import(listing, up_to_version=up_to_version, history=history)
    findings.take(plan.findings)
    start = _readable_start(source, plan, findings)
    importing = _Importing(
        metastore=metastore,
        name=name,
        place=place,
        target=place if mirror_to is None else _place(mirror_to),
    )
    span = _span(listing, plan, start)
    record = importing.look() if dry_run else importing.begin(span)
    moves = mirror_to is not None
    run = ImportRun(
        metastore=metastore,
        source=source,
        listing=listing,
        plan=plan,
        start=start,
        record=record,
        store=None if dry_run else ImportStore(metastore, record, is_published=not moves),
        relocation=Relocation(place.uri.removesuffix("/")) if moves else None,
        findings=findings,
        progress=progress,
        takes_over=take_over,
    )
    with metastore.kept_open(), importing.undone_if_refused(record), _gc_paused():
        run.read_log()
        parity, resolved = run.prove()
        findings.refuse()
        if run.store is not None:
            importing.own(run.store.record)
    totals = tuple(int(series[-1]) for series in resolved.totals(start.floor, plan.head))
    return _report(importing, run, span, parity, totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """What of a log an import takes over; the same on every run of one import."""

    first_version: int
    floor_version: int
    head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Importing:
    """The row of the table while it is being imported."""

    metastore: Metastore
    name: str
    #: where the log and the data files are, and where the log is to be published
    place: Location
    target: Location

    def look(self) -> TableRecord:
        """Make sure that the name and the place are free; a row that nobody writes."""
        require_name(self.name)
        with self.metastore.read() as connection:
            self._begun(connection)
        values: dict[str, Any] = dict.fromkeys((column.name for column in dl_tables.c), 0)
        return TableRecord(**values | {"name": self.name, "head_version": -1})

    def begin(self, span: _Span) -> TableRecord:
        """Register the table, or go on with what an earlier run has begun."""
        require_name(self.name)
        with self.metastore.write() as connection:
            begun = self._begun(connection)
            if begun is None:
                moves = self.place != self.target
                register(
                    self.metastore,
                    connection,
                    self.name,
                    self.target,
                    state=TableState.IMPORTING,
                    data_location=self.place.uri if moves else None,
                )
                begun = self._begun(connection)
                assert begun is not None  # noqa: S101 - registered a moment ago
            if begun.head_version < begun.floor_version:
                begun = _blank(begun, span)
            elif (begun.first_version, begun.floor_version) != (
                span.first_version,
                span.floor_version,
            ) or begun.head_version > span.head:
                raise self._other_span()
            take_back_unfinished(connection, begun)
            write_record(connection, begun)
        return begun

    def own(self, record: TableRecord) -> None:
        """The table takes commits from now on."""
        with self.metastore.write() as connection:
            write_record(connection, replace(record, state=TableState.ACTIVE))

    @contextmanager
    def undone_if_refused(self, record: TableRecord) -> Iterator[None]:
        """Leave nothing of a table that is refused."""
        try:
            yield
        except ImportRefusedError:
            if record.table_id:
                with self.metastore.write() as connection:
                    forget(connection, record.table_id)
            raise

    def _begun(self, connection: Connection) -> TableRecord | None:
        """The row of an earlier run; TableExistsError if name or place are another table's."""
        found = or_(dl_tables.c.name == self.name, dl_tables.c.location_key == self.target.key)
        for row in connection.execute(select(dl_tables).where(found)).mappings():
            record = TableRecord(**row)
            data = record.data_location or record.location
            mine = record.location_key == self.target.key and data == self.place.uri
            if record.name == self.name and mine and record.state == TableState.IMPORTING:
                return record
            refuse_taken(connection, self.name, self.target)
        return None

    def _other_span(self) -> TableStateError:
        message = "an earlier, unfinished import took another range of versions"
        remedy = (
            f"repeat it with the same options, or `mirror-assets drop {self.name} --apply` first"
        )
        return TableStateError(message, table=self.name, remedy=remedy)


def _report(
    importing: _Importing, run: ImportRun, span: _Span, parity: Parity, totals: tuple[int, ...]
) -> ImportReport:
    counts, begun_at = run.counts, run.record.head_version
    return ImportReport(
        table=importing.name,
        location=importing.target.uri,
        first_version=span.first_version,
        floor_version=span.floor_version,
        version=span.head,
        commits=counts.commits,
        adds=counts.adds,
        removes=counts.removes,
        exact_lines=counts.exact_lines,
        rewritten_lines=counts.rewritten_lines,
        num_files=totals[0],
        size_bytes=totals[1],
        parity=parity,
        resumed_after=begun_at if begun_at >= 0 else None,
        is_dry_run=run.store is None,
        findings=run.findings.all(),
    )


def _blank(record: TableRecord, span: _Span) -> TableRecord:
    """The row before the first version is imported."""
    floor = span.floor_version
    return replace(
        record,
        head_version=-1,
        first_version=span.first_version,
        floor_version=floor,
        head_timestamp_ms=0,
        protocol_version=floor,
        metadata_version=floor,
        num_files=0,
        size_bytes=0,
        num_removes=0,
        mirrored_version=-1,
    )


def _span(listing: LogListing, plan: ImportPlan, start: Start) -> _Span:
    commits = plan.commits(listing, start)
    first = commits[0].path.version if commits else start.floor + 1  # type: ignore[union-attr] # commits have one
    return _Span(first_version=first, floor_version=start.floor, head=plan.head)


def _readable_start(source: LogSource, plan: ImportPlan, findings: FindingLog) -> Start:
    """The first start whose checkpoint can be read; ImportRefusedError without any."""
    for start in plan.starts:
        if start.checkpoint is None:
            return start
        reason = why_unreadable(source, start.checkpoint)
        if reason is None:
            return start
        findings.note(
            "DL-FILE-13",
            Severity.WARNING,
            f"a checkpoint that cannot be read: {reason}",
            version=start.floor,
            file=start.checkpoint.names[0],
        )
    message = "no readable checkpoint stands for the commits that are gone"
    findings.note("DL-FILE-04", Severity.ERROR, message, version=plan.head)
    findings.refuse()
    raise AssertionError(plan)


def _place(location: Location | str) -> Location:
    return normalise_location(location) if isinstance(location, str) else location


@contextmanager
def _gc_paused() -> Iterator[None]:
    """The rows of an import hold no cycles; looking for some costs a tenth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
